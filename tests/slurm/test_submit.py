"""What submit.sh would submit, and what it refuses, without Slurm: an empty queue is all it sees. That list_units.py and
the program agree on where results lie is read off results that the program wrote.

usage: test_submit.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import hashlib
import os
import shlex
import shutil
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
        """(exit code, words of the sbatch commands, the other lines)."""
        run = self.run_here(ROOT / "slurm" / "submit.sh", "job.ini", "--site", "site.env", "--dry-run", *options)
        lines = run.stdout.splitlines()
        return (run.returncode, [shlex.split(line) for line in lines if line.startswith("sbatch ")],
                [line for line in lines + run.stderr.splitlines() if line.startswith("submit: ")])

    def assert_finished(self, units):
        self.assertEqual(self.submit(), (0, [], [f"submit: all {units} checkpoints are finished; nothing to submit"]))

    def assert_refused(self, line, *options):
        code, commands, lines = self.submit(*options)
        self.assertEqual((code, commands, len(lines)), (2, [], 1), lines)
        self.assertRegex(lines[0], line)

    # --- finished is what the program has published ---

    def test_rows_pretrained_and_random(self):
        self.write_job(model={"manifest": "manifest.tsv", "select": "step 0,ten", "init": "pretrained,random"})
        self.assertEqual(len(self.submit()[1]), 2)
        self.study()
        self.assert_finished(4)

    def test_one_kind_of_weights_is_missing(self):
        self.write_job(model={"manifest": "manifest.tsv", "select": "step 0,ten", "init": "pretrained,random"})
        self.study()
        (self.folder / "out" / "tiny-olmo2" / "ten-random.h5.done").unlink()
        self.assertIn("--array=1%8", self.submit()[1][0])

    def test_path_relative_and_a_saved_gram(self):
        shutil.copytree(STEP0, self.folder / "mine" / "weights")
        self.write_job(model={"path": "mine/weights/"}, output={"directory": "out", "save_gram": "true"})
        command = self.submit()[1][0]
        self.assertEqual((command[-1], [word for word in command if "array" in word]), ("job.ini", []))
        self.study()
        self.assert_finished(1)
        (self.folder / "out" / "weights" / "weights.gram.h5").unlink()
        self.assertEqual(len(self.submit()[1]), 2)

    def test_folder_named_by_the_job_or_by_a_cache(self):
        cached = self.folder / "models--org--name" / "snapshots" / "c0ffee"
        shutil.copytree(STEP0, cached)
        self.write_job(model={"path": cached, "name": "mine"})
        self.study()
        self.assertTrue((self.folder / "out" / "mine" / "c0ffee.h5").exists())
        self.assert_finished(1)
        self.write_job(model={"path": cached})
        self.assertEqual(len(self.submit()[1]), 2)
        self.study()
        self.assertTrue((self.folder / "out" / "org--name" / "c0ffee.h5").exists())
        self.assert_finished(1)

    def test_saved_grams(self):
        self.write_job(model={"path": STEP0}, output={"directory": "grams", "save_gram": "true"})
        self.study()
        self.write("job.ini", "[grams]\npaths = grams/tiny-olmo2/step0.gram.h5\n[predict]\nreferences = 1\n"
                              "[output]\ndirectory = out\n")
        self.assertEqual(len(self.submit()[1]), 2)
        self.study()
        self.assert_finished(1)

    def test_result_cut_short(self):
        self.write_job(model={"path": STEP0})
        self.study()
        os.truncate(self.folder / "out" / "tiny-olmo2" / "step0.h5", 100)
        self.assertEqual(len(self.submit()[1]), 2)

    def test_result_with_one_flipped_bit(self):
        self.write_job(model={"path": STEP0})
        self.study()
        path = self.folder / "out" / "tiny-olmo2" / "step0.h5"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        self.assertEqual(len(self.submit()[1]), 2)

    def test_only_regular_files_are_opened(self):
        self.write_job(model={"path": STEP0})
        result = self.folder / "out" / "tiny-olmo2" / "step0.h5"
        done = Path(f"{result}.done")
        result.parent.mkdir(parents=True)
        result.write_bytes(b"")
        os.mkfifo(done)
        self.assertEqual(len(self.submit()[1]), 2)
        result.unlink()
        os.mkfifo(result)
        done.unlink()
        done.write_text(f"size 0\nsha256 {hashlib.sha256().hexdigest()}\n")
        self.assertEqual(len(self.submit()[1]), 2)
        (self.folder / "job.ini").unlink()
        os.mkfifo(self.folder / "job.ini")
        self.assert_refused(r"^submit: job.ini: cannot be read: is no regular file; give a text file$")

    def test_result_to_be_overwritten(self):
        self.write_job(model={"path": STEP0})
        self.study()
        self.assertEqual(len(self.submit("--", "--output.overwrite", "true")[1]), 2)

    # --- what is submitted ---

    def test_array_of_selected_rows(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        for select, array in (("all", "0-3"), ("3", "2"), ("row:3", "3"), ("last,0-1", "0-1,3"), ("2-3,step 0", "0,2-3")):
            for keys in (["--model.select", select], [f"--model.select={select}"]):
                command = self.submit("--", *keys, "--predict.pool=4")[1][0]
                self.assertIn(f"--array={array}%8", command)
                self.assertEqual(command[command.index("job.ini") + 1:], ["--predict.pool=4"])

    def test_task_studies_its_row(self):
        """Row 3 is not the row that is called 3."""
        self.write_job(model={"manifest": "manifest.tsv"})
        self.write("site.env", (self.folder / "site.env").read_text() + "HEADSPAN_LAUNCHER=()\n")
        for row, name in ((2, "3"), (3, "last")):
            run = self.run_here("env", f"SLURM_ARRAY_TASK_ID={row}", "SLURM_JOB_ID=7", "SLURM_CPUS_PER_TASK=1",
                                "SLURM_JOB_NODELIST=here", "bash", ROOT / "slurm" / "study.sbatch", "site.env", "job.ini")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((self.folder / "out" / "tiny-olmo2" / f"{name}.h5.done").exists(), run.stderr)
        self.assertIn("--array=0-1%8", self.submit()[1][0])

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
        self.assert_refused(r"^submit: command line: --model.dtype: is no key with a value; ", "--", "--model.dtype")
        self.assert_refused(r"^submit: command line: --run.groups: is chosen by --mode groups; ", "--mode", "groups", "--",
                            "--run.groups=2")

    def test_job(self):
        self.assert_refused(r"^submit: job.ini: cannot be read: No such file or directory; ")
        self.write("job.ini", "[output]\ndirectory = out\n")
        self.assert_refused(r"^submit: the job names no input; ")
        self.write_job(model={"manifest": "manifest.tsv"}, output={"directory": ""})
        self.assert_refused(r"^submit: job.ini: output.directory: is missing; ")
        self.write_job(model={"manifest": "manifest.tsv", "select": "eleven"})
        self.assert_refused(r"^submit: model.select = eleven: is no row of the manifest; all, names such as step 0, ")

    def test_site(self):
        self.write_job(model={"manifest": "manifest.tsv"})
        self.assert_refused(r"^submit: none.env: cannot be read; copy .*/slurm/site.env.example ", "--site", "none.env")
        whole = (self.folder / "site.env").read_text()
        for setting in ("HEADSPAN_TIME", "HEADSPAN_OPTIONS", "headspan_environment"):
            self.write("site.env", whole.replace(f"\n{setting}", "\nother"))
            self.assert_refused(rf"^submit: .*/site.env: {setting}: is missing; see .*/site.env.example$")
        self.write("site.env", whole + "HEADSPAN_AT_A_TIME=0\n")
        self.assert_refused(r"^submit: .*/site.env: HEADSPAN_AT_A_TIME = 0: is no number of checkpoints; ")
        self.write("site.env", whole + "HEADSPAN_PROGRAM=./headspan\n")
        self.assert_refused(r"^submit: .*/site.env: HEADSPAN_PROGRAM = ./headspan: is no program here; ")


if __name__ == "__main__":
    Submit.program = os.path.realpath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
