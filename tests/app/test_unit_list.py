"""`headspan study --units`: which units it lists, which of them as finished, and what it refuses. All of it where MPI cannot
start, as on a cluster's login node.

usage: test_unit_list.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TINY = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny-olmo2"
TOKENS = TINY / "tokens" / "docs.fit.bin"
MANIFEST = ("name\tstep\ttokens\tpath\trepository\n"
            f"step 0\t0\t\t{TINY / 'step0'}\torg/model\n"
            f"ten\t10\t\t{TINY / 'step10'}\t\n"
            f"3\t10\t\t{TINY / 'step10'}\t\n")
JOB = """[{section}]
{key} = {value}
[tokens]
path = tokens.bin
limit = 600
sequence_length = 60
[predict]
streams = k
references = 1
[output]
directory = out
"""


class UnitList(unittest.TestCase):
    program = ""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_units_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        shutil.copy(TOKENS, self.folder / "tokens.bin")
        shutil.copy(TOKENS.with_suffix(".json"), self.folder / "tokens.json")

    def write_job(self, section, key, value):
        (self.folder / "job.ini").write_text(JOB.format(section=section, key=key, value=value))

    def write_manifest(self, text=MANIFEST):
        (self.folder / "manifest.tsv").write_text(text, encoding="utf-8")
        self.write_job("model", "manifest", "manifest.tsv")

    def run_here(self, *command, **environment):
        return subprocess.run(list(map(str, command)), cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env=os.environ | environment, check=False)

    def study(self, *keys):
        run = self.run_here(self.program, "study", "job.ini", *keys)
        self.assertEqual(run.returncode, 0, run.stderr)

    def run_units(self, *keys):
        return self.run_here(self.program, "study", "job.ini", "--units", *keys, OMPI_MCA_pml="none")

    def units(self, *keys):
        """Returns the lines, split into fields."""
        run = self.run_units(*keys)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return [line.split("\t") for line in run.stdout.splitlines()]

    def states(self, *keys):
        return [line[3] for line in self.units(*keys) if line[0] == "unit"]

    def assert_refused(self, line, *keys):
        run = self.run_units(*keys)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertRegex(run.stderr, f"^headspan: {line}[^\\n]*\\n$")

    def test_mpi_cannot_start_here(self):
        if "MPI: Open MPI" not in self.run_here(self.program, "--version").stdout:
            self.skipTest("the variable is Open MPI's")
        self.write_manifest()
        self.assertEqual(self.run_here(self.program, "inspect", "manifest.tsv").returncode, 0)
        run = self.run_here(self.program, "inspect", "manifest.tsv", OMPI_MCA_pml="none")
        self.assertNotEqual(run.returncode, 0)

    def test_of_a_manifest(self):
        self.write_manifest()
        self.study("--model.select", "3")
        before = sorted(self.folder.rglob("*"))

        listed = self.units("--model.select", "3,step 0", "--model.init", "pretrained,random")

        self.assertEqual(listed, [["directory", "out"],
                                  ["manifest", "manifest.tsv", "some"],
                                  ["unit", "2", "3", "finished", "out/tiny-olmo2/3.h5"],
                                  ["unit", "2", "3-random", "open", "out/tiny-olmo2/3-random.h5"],
                                  ["unit", "0", "step 0", "open", "out/org--model/step 0.h5"],
                                  ["unit", "0", "step 0-random", "open", "out/org--model/step 0-random.h5"]])
        listed = self.units()
        self.assertEqual(listed[1], ["manifest", "manifest.tsv", "all"])
        self.assertEqual([line[1:4] for line in listed[2:]], [["0", "step 0", "open"], ["1", "ten", "open"], ["2", "3", "finished"]])
        self.assertEqual(self.states("--output.overwrite", "true"), ["open"] * 3)
        self.assertEqual(sorted(self.folder.rglob("*")), before)  # nothing is written

    def test_without_a_manifest(self):
        self.write_job("model", "path", TINY / "step0")
        self.assertEqual(self.units(), [["directory", "out"], ["unit", "-", "step0", "open", "out/tiny-olmo2/step0.h5"]])
        self.write_job("grams", "paths", "grams/some.gram.h5,more.h5\n[ceiling]\nenabled = false")
        self.assertEqual(self.units("--tokens.path", "")[1:], [["unit", "-", "some", "open", "out/grams/some.h5"]])

    def test_a_whole_result_is_finished(self):
        self.write_job("model", "path", TINY / "step0")
        self.study("--output.save_gram", "true")
        result, gram = (self.folder / "out" / "tiny-olmo2" / name for name in ("step0.h5", "step0.gram.h5"))
        done = Path(f"{result}.done")
        content, told = result.read_bytes(), done.read_bytes()
        self.assertEqual(self.states("--output.save_gram", "true"), ["finished"])
        gram.unlink()
        self.assertEqual((self.states(), self.states("--output.save_gram", "true")), (["finished"], ["open"]))
        result.write_bytes(content[:100])
        self.assertEqual(self.states(), ["open"])
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        result.write_bytes(flipped)
        self.assertEqual(self.states(), ["open"])
        result.write_bytes(content)
        done.unlink()
        self.assertEqual(self.states(), ["open"])
        os.mkfifo(done)
        self.assertEqual(self.states(), ["open"])
        done.unlink()
        result.unlink()
        os.mkfifo(result)
        done.write_bytes(told)
        self.assertEqual(self.states(), ["open"])

    def test_results_of_another_job_or_of_other_tokens(self):
        self.write_manifest()
        self.study("--model.select", "ten")
        self.assert_refused("out/tiny-olmo2/ten.h5: is the result of another job \\(there predict.pool = 16, here predict.pool = "
                            "8\\); ", "--predict.pool", "8")
        content = bytearray((self.folder / "tokens.bin").read_bytes())
        content[:2] = content[2:4]
        (self.folder / "tokens.bin").write_bytes(content)
        sidecar = json.loads((self.folder / "tokens.json").read_text())
        (self.folder / "tokens.json").write_text(json.dumps(sidecar | {"sha256": hashlib.sha256(content).hexdigest()}))
        self.assert_refused("out/tiny-olmo2/ten.h5: tokens_sha256 = \\w+: is not that of tokens.bin ")

    def test_rows_that_a_study_refuses(self):
        for name in ("a,b", "--x", "../x", "x\x85"):
            self.write_manifest(MANIFEST + f"{name}\t10\t\t{TINY / 'step10'}\t\n")
            self.assert_refused("manifest.tsv: line 5 name = '.*': ")
        self.assertEqual(self.run_here(self.program, "study", "job.ini").stderr, self.run_units().stderr)

    def test_paths_that_would_break_a_line(self):
        self.write_job("model", "path", TINY / "step0")
        for directory, shown in (("a\tb", "a\\\\x09b"), ("a\x1b[2J", "a\\\\x1B\\[2J"), (os.fsdecode(b"caf\xe9"), "caf\\\\xE9")):
            self.assert_refused(f"output.directory = {shown}: cannot be listed; ", "--output.directory", directory)

    def test_faulty_command_lines(self):
        self.write_job("model", "path", TINY / "step0")
        self.assert_refused("command line: predict.road = 1: is not a key; ", "--predict.road", "1")
        (self.folder / "job.ini").unlink()
        os.mkfifo(self.folder / "job.ini")
        self.assert_refused("job.ini: is not a regular file; give the path of a file")


if __name__ == "__main__":
    UnitList.program = os.path.realpath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
