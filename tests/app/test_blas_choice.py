"""The kernels of OpenBLAS that the program chooses: measured once, kept, and told. Skipped with another BLAS.

    test_blas_choice.py PROGRAM
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
TINY_OLMO2 = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny-olmo2"


class BlasCore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=100, check=True).stdout
        if re.search(r"^OpenBLAS ", told, re.MULTILINE) is None:
            raise unittest.SkipTest("the BLAS is not OpenBLAS")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name)

    def run_program(self, *words, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
        environment |= {"XDG_CACHE_HOME": str(self.cache)} | variables
        done = subprocess.run([PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def chosen(self, **variables):
        return re.search(r"^OpenBLAS \S+, (\w+) kernels$", self.run_program("--version", **variables)[0], re.MULTILINE)[1]

    def speed(self, core):
        name, speed = self.run_program("--blas-speed", OPENBLAS_CORETYPE=core)[0].split()
        return name, float(speed)

    def kept(self):
        """Returns the file that keeps the choice."""
        self.chosen()
        if not self.files():
            self.skipTest("there is nothing to choose from on this processor")
        file, = self.files()
        return file

    def files(self):
        return sorted(path for path in self.cache.rglob("*") if path.is_file())

    def test_measured_once_and_kept(self):
        file = self.kept()
        core = file.read_text().strip()
        before = file.stat().st_mtime_ns
        self.assertEqual(self.chosen(), core)
        self.assertEqual((self.files(), file.stat().st_mtime_ns), ([file], before))

    def test_is_not_slow(self):
        """Nehalem's kernels have vectors of two numbers, those of a processor with AVX2 four or more."""
        name, slow = self.speed("Nehalem")
        if name != "Nehalem" or " avx2 " not in Path("/proc/cpuinfo").read_text():
            self.skipTest(f"OpenBLAS runs {name}")
        self.assertGreater(self.speed(self.chosen())[1], 1.5 * slow)

    def test_kept_choice_is_used_by_a_study(self):
        file = self.kept()
        if [self.speed(core)[0] for core in ("Haswell", "Zen")] != ["Haswell", "Zen"]:
            self.skipTest("OpenBLAS has no kernels to choose from")
        keys = {"model.path": TINY_OLMO2 / "step3000", "tokens.path": TINY_OLMO2 / "tokens" / "docs.fit.bin",
                "tokens.limit": 600, "predict.streams": "k", "overlap.enabled": "false"}
        for core in "Haswell", "Zen":
            file.write_text(core + "\n")
            log = self.run_program("study", *(f"--{key}={value}" for key, value in keys.items()),
                                   f"--output.directory={self.cache / core}")[1]
            self.assertRegex(log, f' blas="OpenBLAS [^ ]+, {core} kernels" ')

    def test_file_that_says_nothing_is_measured_again(self):
        file = self.kept()
        for text in "", "Pentium\n", "\0" * 1000:
            file.write_text(text)
            self.assertEqual(self.chosen() + "\n", file.read_text())

    def test_nowhere_to_write(self):
        self.cache.joinpath("file").write_text("")
        for place in str(self.cache / "file"), "/proc/nothing", "relative":
            self.chosen(XDG_CACHE_HOME=place, HOME="/proc/nothing")
        self.assertEqual([path.name for path in self.files()], ["file"])

    def test_what_takes_too_long_is_not_kept(self):
        """HEADSPAN_PROGRAM starts the program again, here to be measured."""
        program = self.cache / "slow"
        program.write_text("#!/bin/sh\nexec sleep 60\n")
        program.chmod(0o755)
        self.chosen(HEADSPAN_PROGRAM=str(program))
        self.assertEqual(self.files(), [program])

    def test_what_the_user_asks_for_stays(self):
        if self.speed("Nehalem")[0] != "Nehalem":
            self.skipTest("OpenBLAS has no kernels to choose from")
        self.assertEqual(self.chosen(OPENBLAS_CORETYPE="Nehalem"), "Nehalem")
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main()
