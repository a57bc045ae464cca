"""headspan-bench scaling prints a table that holds together, and rates that headspan plan takes; headspan-bench device
agrees with the CPU.

usage: test_scaling.py HEADSPAN MPIEXEC HEADSPAN_BENCH [unittest's arguments]
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import TINY_OLMO2, StudyTest, main

BENCH = sys.argv.pop(3)


class Scaling(StudyTest):
    def test_table_and_rates(self):
        command = [self.mpiexec, "-n", "3", BENCH, "scaling", "--folder", TINY_OLMO2 / "step0", "--tokens", "600",
                   "--sequence-length", "100", "--repeats", "1"]
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)

        for kind in ("strong", "weak"):
            with self.subTest(kind=kind):
                text = run.stdout.split(f"\n{kind} scaling")[1].split("\n\n")[1]
                header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
                rows = [dict(zip(header, line)) for line in lines]
                self.assertEqual([(row["ranks"], row["tokens"]) for row in rows],
                                 [(str(r), str(600 * (r if kind == "weak" else 1))) for r in (1, 2, 3)])
                for row in rows:
                    measured, expected = (
                        {name: float(re.search(pattern, cell)[1]) for name, cell in row.items() if "(" in cell}
                        for pattern in (r"^(\S+)", r"\((\S+)\)"))
                    self.assertEqual(list(measured), ["forward", "gram", "pairs", "heads", "selection", "ceiling", "overlap",
                                                      "all"])
                    for seconds in (measured, expected):
                        self.assertGreater(min(seconds.values()), 0)
                        self.assertAlmostEqual(seconds["all"] / sum(seconds[p] for p in measured if p != "all"), 1, delta=0.02)
                    alone = float(rows[0]["all"].split()[0]) / (1 if kind == "weak" else int(row["ranks"]))
                    self.assertAlmostEqual(float(row["efficiency"]), alone / measured["all"], delta=0.02)
                    if kind == "strong" and row["ranks"] == "1":
                        self.assertEqual(measured, expected)

        rates = self.folder / "rates"
        rates.write_text(run.stdout[run.stdout.index("ceiling_gflops"):])
        tokens = self.write_tokens("ids.bin", range(1, 601))
        plan = self.run_program(1, "plan", f"--model.path={TINY_OLMO2 / 'step0'}", f"--tokens.path={tokens}", "--ranks=1",
                                f"--output.directory={self.folder}", f"--rates={rates}")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        gflops = float(re.search(r"^gram_gflops = (\S+)$", run.stdout, re.MULTILINE)[1])
        flops, planned = (float(re.search(rf"^{line} .*gram=(\S+)", plan.stdout, re.MULTILINE)[1])
                          for line in ("flops_of_a_unit", "seconds_of_a_unit"))
        self.assertAlmostEqual(planned / (flops / (gflops * 1e9)), 1, delta=2e-3)


class Device(StudyTest):
    def test_agrees_with_the_cpu(self):
        command = [self.mpiexec, "-n", "1", BENCH, "device", "--folder", TINY_OLMO2 / "step0", "--tokens", "900",
                   "--sequence-length", "100", "--repeats", "1"]
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        found = re.findall(r'^bench=device figure="R2 of all pairs, forward in (\w+), products in (\w+), .*value=\S+ .*met=yes',
                           run.stdout, re.MULTILINE)
        self.assertEqual(found, [("float64", "float64"), ("float64", "split"), ("bfloat16", "bfloat16")])

        command = [self.mpiexec, "-n", "1", BENCH, "products", "--layers", "2", "--heads", "4", "--tokens", "300", "--repeats", "1"]
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual(re.findall(r'^bench=products figure="Gram, (\w+), ', run.stdout, re.MULTILINE),
                         ["float64", "float32", "split", "bfloat16"])


if __name__ == "__main__":
    main()
