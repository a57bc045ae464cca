"""The commands of headspan plan in slurm/README.md work in a clone, without weights or tokens of the paper's models. Its table
is for processors on which headspan's own products are the fastest: a BLAS copies what it multiplies.

usage: test_plan_jobs.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "slurm" / "README.md").read_text()
JOBS = {"Llama-3.1-8B": "llama-3.1-8b", "Falcon3-10B": "falcon3-10b", "OLMo-2-7B": "olmo-2-7b", "Qwen3-32B": "qwen3-32b"}
PROGRAM = sys.argv.pop(1)
sys.argv.pop(1)


def plan(*arguments, folder=ROOT):
    return run("plan", *arguments, folder=folder)


def run(command, *arguments, folder):
    return subprocess.run([PROGRAM, command, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)


def clone(folder):
    """Copies what git tracks of the folders that a plan reads, so that fetched files cannot help."""
    tracked = subprocess.run(["git", "ls-files", "jobs/*.ini", "checkpoints/*.json", "checkpoints/*/manifest.tsv",
                              "checkpoints/*/fetch.sh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())


class PlanOfAClone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_clone_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        clone(cls.folder)
        cls.choose_own_products()

    @classmethod
    def choose_own_products(cls):
        """Replaces what plan has measured to be the fastest here."""
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")
        plan(f"jobs/{JOBS['Llama-3.1-8B']}.corrected.ini", "--ranks=1", folder=cls.folder)
        products = list((cls.folder / "cache" / "headspan").glob("products-*"))
        assert products, "plan keeps nothing of what it measures"
        for file in products:
            file.write_text("kernel\n")

    def gib(self, *arguments):
        run = plan(*arguments, folder=self.folder)
        self.assertEqual(run.returncode, 0, f"{arguments}\n{run.stderr}")
        return float(re.search(r"gib_of_the_fullest_rank=(\S+)", run.stdout)[1])

    def test_commands_that_are_shown(self):
        commands = re.findall(r"^\S*headspan plan (jobs/.*)$", PAGE, re.MULTILINE)
        self.assertGreater(len(commands), 0)
        for command in commands:
            self.gib(*command.split())

    def test_job_files_as_the_paper_computed(self):
        for job in JOBS.values():
            self.gib(f"jobs/{job}.paper.ini", "--ranks=64")

    def test_table_of_memory(self):
        ranks = [int(n) for n in re.search(r"^\| ranks \|(.*)\|$", PAGE, re.MULTILINE)[1].split("|")]
        rows = re.findall(rf"^\| ({'|'.join(JOBS)}), K(, Q)? and V \|(.*)\|$", PAGE, re.MULTILINE)
        self.assertEqual(len(rows), 2 * len(JOBS))
        for model, queries, row in rows:
            told = dict(zip(ranks, map(float, row.split("|"))))
            count = 8 if queries else 1
            with self.subTest(model=model, queries=queries, ranks=count):
                gib = self.gib(f"jobs/{JOBS[model]}.corrected.ini", f"--ranks={count}", "--run.tensor_parallel=1",
                               f"--predict.streams={'k,q,v' if queries else 'k,v'}")
                self.assertAlmostEqual(gib, told[count], delta=max(1, 0.02 * told[count]))

    def test_missing_checkpoints_are_told_with_the_command_that_brings_them(self):
        smollm2 = "checkpoints/smollm2/model: does not exist; fetch it: bash checkpoints/smollm2/fetch.sh"
        olmo2 = ("checkpoints/olmo-2-7b/step150: does not exist; fetch it: python3 checkpoints/fetch.py "
                 "checkpoints/olmo-2-7b/manifest.tsv step150")
        llama = ("checkpoints/Llama-3.1-8B-Instruct: holds neither model.safetensors nor model.safetensors.index.json; "
                 "download the checkpoint into it, hf download REPOSITORY --local-dir checkpoints/Llama-3.1-8B-Instruct, "
                 "or study random weights, model.init = random")
        for told, command, *words in ((smollm2, "plan", "jobs/smollm2.ini", "--ranks=2"), (smollm2, "study", "jobs/smollm2.ini"),
                                      (smollm2, "study", "jobs/smollm2.ini", "--model.init=random"),
                                      (olmo2, "plan", "jobs/figure3-olmo-2-7b.ini", "--ranks=2"),
                                      (olmo2, "study", "jobs/figure3-olmo-2-7b.ini"),
                                      (llama, "study", "jobs/llama-3.1-8b.corrected.ini")):
            with self.subTest(command=command, words=words):
                found = run(command, *words, folder=self.folder)
                self.assertEqual((found.returncode, found.stderr), (2, f"headspan: {told}\n"))

    def test_missing_tokens_are_told(self):
        run = plan("jobs/qwen3-32b.corrected.ini", "--ranks=64", folder=self.folder)

        self.assertRegex(run.stderr, r"headspan: notice: checkpoints/Qwen3-32B/tokens/c4.bin is missing: 30000 tokens in "
                                     r"sequences of 2048 are assumed")
        self.assertRegex(run.stdout, r"n_fit=21808 n_heldout=8192")


if __name__ == "__main__":
    unittest.main()
