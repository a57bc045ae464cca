"""What submit.sh would submit and what it refuses, without Slurm: it sees only an empty queue.

usage: test_submit.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from cluster import ROOT

TOKENS = ROOT / "checkpoints" / "tiny-olmo2" / "tokens" / "docs.fit.bin"
STEP0, STEP10 = (ROOT / "checkpoints" / "tiny-olmo2" / f"step{step}" for step in (0, 10))
KEYS = {"tokens.path": TOKENS, "tokens.limit": 600, "tokens.sequence_length": 60, "predict.streams": "k",
        "predict.references": 1, "output.directory": "out"}
MANIFEST = ("name\tstep\ttokens\tpath\trepository\n"
            f"step 0\t0\t\t{STEP0}\torg/model\n"
            f"ten\t10\t\t{STEP10}\t\n"
            f"3\t10\t\t{STEP10}\t\n"
            f"last\t10\t\t{STEP10}\t\n")


class Submit(unittest.TestCase):
    program = ""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_submit_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.write("squeue", "#!/bin/sh\n")  # an empty queue
        (self.folder / "squeue").chmod(0o755)
        self.write("manifest.tsv", MANIFEST)
        self.write("site.env", (ROOT / "slurm" / "site.env.example").read_text() + f"HEADSPAN_PROGRAM={self.program}\n")

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def write_job(self, **sections):
        keys = KEYS | {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
        lines = [f"[{key.split('.')[0]}]\n{key.split('.')[1]} = {value}  # a comment\n" for key, value in keys.items()]
        self.write("job.ini", "; a job\n" + "".join(lines))

    def run_here(self, *command):
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run(list(map(str, command)), cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env=environment, check=False)

    def study(self, *keys):
        run = self.run_here(self.program, "study", "job.ini", *keys)
        self.assertEqual(run.returncode, 0, run.stderr)

    def submit(self, *options):
        """Returns (exit code, words of the sbatch commands, the other lines)."""
        run = self.run_here(ROOT / "slurm" / "submit.sh", "job.ini", "--site", "site.env", "--dry-run", *options)
        lines = run.stdout.splitlines()
        return (run.returncode, [shlex.split(line) for line in lines if line.startswith("sbatch ")],
                [line for line in lines + run.stderr.splitlines() if line.startswith(("submit: ", "headspan: "))])

    def assert_finished(self, units):
        self.assertEqual(self.submit(), (0, [], [f"submit: all {units} checkpoints are finished; nothing to submit"]))

    def assert_refused(self, line, *options):
        code, commands, lines = self.submit(*options)
        self.assertEqual((code, commands, len(lines)), (2, [], 1), lines)
        self.assertRegex(lines[0], line)

    # --- finished is what headspan study --units says ---

    def test_rows_pretrained_and_random(self):
        self.write_job(model={"manifest": "manifest.tsv", "select": "step 0,ten", "init": "pretrained,random"})
        self.assertEqual(len(self.submit()[1]), 2)
        self.study()
        self.assert_finished(4)
        (self.folder / "out" / "tiny-olmo2" / "ten-random.h5.done").unlink()
        self.assertIn("--array=1%8", self.submit()[1][0])

    def test_path(self):
        self.write_job(model={"path": STEP0})
        command = self.submit()[1][0]
        self.assertEqual((command[-1], [word for word in command if "array" in word]), ("job.ini", []))
        self.study()
        self.assert_finished(1)

    # --- what is submitted ---

    def test_array_of_selected_rows(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        for select, array in (("all", "0-3"), ("3", "2"), ("row:3", "3"), ("last,0-1", "0-1,3"), ("2-3,step 0", "0,2-3")):
            keys = [f"--model.select={select}"] if select == "all" else ["--model.select", select]
            command = self.submit("--", *keys, "--predict.pool=4")[1][0]
            self.assertIn(f"--array={array}%8", command)
            self.assertEqual(command[command.index("job.ini") + 1:], ["--predict.pool=4"])

    def test_task_studies_its_row(self):
        """Row 3 is not the row that is named 3."""
        self.write_job(model={"manifest": "manifest.tsv"})
        self.write("site.env", (self.folder / "site.env").read_text() + "HEADSPAN_LAUNCHER=()\n")
        for row, name in ((2, "3"), (3, "last")):
            run = self.run_here("env", f"SLURM_ARRAY_TASK_ID={row}", "SLURM_JOB_ID=7", "SLURM_CPUS_PER_TASK=1",
                                "SLURM_JOB_NODELIST=here", "bash", ROOT / "slurm" / "study.sbatch", "site.env", "job.ini")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((self.folder / "out" / "tiny-olmo2" / f"{name}.h5.done").exists(), run.stderr)
        self.assertIn("--array=0-1%8", self.submit()[1][0])

    def test_task_that_started_no_rank_fails(self):
        """srun's exit code can be 0 then. `overwrite` in the job makes no difference."""
        self.write_job(model={"manifest": "manifest.tsv"}, output={"overwrite": "true"})
        for launcher, code in (("true", 1), ("", 0), ("true", 0)):
            self.write("site.env", (self.folder / "site.env").read_text() + f"HEADSPAN_LAUNCHER=({launcher})\n")
            run = self.run_here("env", "SLURM_ARRAY_TASK_ID=1", "SLURM_ARRAY_JOB_ID=7", "SLURM_JOB_ID=8", "SLURM_CPUS_PER_TASK=1",
                                "SLURM_JOB_NODELIST=here", "bash", ROOT / "slurm" / "study.sbatch", "site.env", "job.ini")
            self.assertEqual(run.returncode, code, run.stderr)
            self.assertEqual("yet not all is done, submit again to go on" in run.stderr, code == 1, run.stderr)
            self.assertIn("study: job 7_1, restart 0, on here: ", run.stderr)

    def test_site_decides(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        with open(self.folder / "site.env", "a") as site:
            site.write("HEADSPAN_PARTITION=long\nHEADSPAN_ACCOUNT=mine\nHEADSPAN_NODES=2\nHEADSPAN_AT_A_TIME=3\n"
                       "HEADSPAN_OPTIONS=('--constraint=a b')\nHEADSPAN_SAVE_SECONDS=300\n")
        (study, report), (groups, _) = self.submit()[1], self.submit("--mode", "groups")[1]
        for command in (study, report, groups):
            self.assertLessEqual({"--partition=long", "--account=mine"}, set(command))
        self.assertLessEqual({"--nodes=2", "--array=0-3%3", "--constraint=a b", "--signal=B:USR1@300", "--requeue",
                              "--open-mode=append"}, set(study))
        self.assertLessEqual({"--dependency=afterany:JOB", "--nodes=1"}, set(report))
        self.assertLessEqual({"--nodes=6"}, set(groups))  # three groups of two nodes
        self.assertEqual(groups[-3:], ["job.ini", "--run.groups", "3"])

    def test_manifest_is_for_the_report_of_all_rows(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        self.assertEqual(self.submit()[1][1][-2:], ["out", "manifest.tsv"])
        self.assertEqual(self.submit("--", "--model.select", "ten")[1][1][-1], "out")

    # --- what is refused ---

    def test_command_line(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        self.assert_refused(r"^submit: command line: --mode = fast: is no mode; array or groups$", "--mode", "fast")
        self.assert_refused(r"^submit: command line: --site: has no value; ", "--site")
        self.assert_refused(r"^submit: command line: --quick: is not an option; ", "--quick")
        self.assert_refused(r"^submit: command line: more.ini: is one argument too many; ", "more.ini")
        self.assert_refused(r"^headspan: command line: the required argument for option '--model.dtype' is missing; ",
                            "--", "--model.dtype")
        self.assert_refused(r"^submit: command line: --run.groups: is chosen by --mode groups; ", "--mode", "groups", "--",
                            "--run.groups=2")
        self.assert_refused(r"^submit: command line: --help: asks for no study; ", "--", "--help")

    def test_job(self):
        self.assert_refused(r"^headspan: job.ini: ")
        self.write("job.ini", "[output]\ndirectory = out\n")
        self.assert_refused(r"^headspan: job.ini: names no input; ")
        self.write_job(model={"manifest": "manifest.tsv"}, output={"directory": ""})
        self.assert_refused(r"^headspan: job.ini: output.directory: is missing; ")
        self.write_job(model={"manifest": "manifest.tsv", "select": "eleven"})
        self.assert_refused(r"^headspan: model.select = eleven: is no row of the manifest; all, names such as step 0, ")
        self.write("manifest.tsv", MANIFEST + f"a,b\t10\t\t{STEP10}\t\n")
        self.assert_refused(r"^headspan: manifest.tsv: line 6 name = 'a,b': cannot be selected ")

    def test_site(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        self.assert_refused(r"^submit: none.env: cannot be read; copy .*/slurm/site.env.example ", "--site", "none.env")
        whole = (self.folder / "site.env").read_text()
        for setting in ("HEADSPAN_TIME", "HEADSPAN_OPTIONS", "headspan_environment"):
            self.write("site.env", whole.replace(f"\n{setting}", "\nother"))
            self.assert_refused(rf"^submit: .*/site.env: {setting}: is missing; see .*/site.env.example$")
        self.write("site.env", whole + "HEADSPAN_AT_A_TIME=0\n")
        self.assert_refused(r"^submit: .*/site.env: HEADSPAN_AT_A_TIME = 0: is no number of checkpoints; ")
        self.write("site.env", whole + "headspan_environment() { return 1; }\n")
        self.assert_refused(r"^submit: headspan_environment of .*/site.env failed$")
        self.write("site.env", whole + "HEADSPAN_PROGRAM=./headspan\n")
        self.assert_refused(r"^submit: .*/site.env: HEADSPAN_PROGRAM = ./headspan: is no program here; ")


if __name__ == "__main__":
    Submit.program = os.path.realpath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
