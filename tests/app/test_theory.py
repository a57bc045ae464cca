"""headspan theory against numpy's least squares on numpy's random draws, and with a measured result.

usage: test_theory.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

M, K, TRIALS = 96, 6, 300


class Theory(StudyTest):
    def answer(self, ranks, *arguments):
        run = self.run_program(ranks, "theory", *arguments)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def number(self, printed, name):
        return float(re.search(rf"^{name}=(\S+)", printed, re.MULTILINE)[1])

    def least_squares(self, references):
        """Returns errors and R2 from random draws of numpy."""
        rng = np.random.default_rng(1)
        errors, r2 = [], []
        for _ in range(TRIALS):
            a, b = rng.standard_normal((M, references * K)), rng.standard_normal((M, K))
            c = np.linalg.lstsq(a, b, rcond=None)[0]
            errors.append(((a @ c - b) ** 2).sum())
            r2.append(1 - errors[-1] / (b**2).sum())
        return np.array(errors), np.array(r2)

    def test_draws_have_the_moments_of_numpys(self):
        for references in (1, 4):
            for ranks in (1, 4):
                with self.subTest(references=references, ranks=ranks):
                    printed = self.answer(ranks, f"--theory.hidden_size={M}", f"--theory.head_size={K}",
                                          f"--theory.references={references}", f"--theory.trials={TRIALS}")
                    errors, r2 = self.least_squares(references)
                    spread = 5 * errors.std() / np.sqrt(TRIALS)
                    self.assertAlmostEqual(self.number(printed, "mean"), errors.mean(), delta=spread)
                    self.assertAlmostEqual(self.number(printed, "expected"), errors.mean(), delta=spread)
                    self.assertAlmostEqual(self.number(printed, "r2_mean"), r2.mean(), delta=5 * r2.std() / np.sqrt(TRIALS))
                    self.assertAlmostEqual(self.number(printed, "minimum"), errors.min(), delta=6 * errors.std())
                    self.assertLess(self.number(printed, r"p\?gels_against_local_qr"), 1e-12)
                    self.assertRegex(printed.splitlines()[-1], "^status=done units=300 ")
                    below = (errors < self.number(printed, "bound")).mean()
                    self.assertAlmostEqual(self.number(printed, "share_below_bound"), below, delta=0.1)

    def test_measured_stands_beside(self):
        tokens = self.write_tokens("ids.bin", np.random.default_rng(6).integers(0, 64, 900))
        result, = self.study(1, "random", {"model.path": GOLDEN / "olmo2_mha", "tokens.path": tokens,
                                           "model.init": "random", "predict.streams": "k,v"})

        printed = self.answer(2, "--theory.trials=2", "--theory.results", result)

        with h5py.File(result) as file:
            for stream in "kv":
                measured = re.search(rf"^measured=\S+ stream={stream} r2_heldout=(\S+) geometric_null=(\S+)$", printed,
                                     re.MULTILINE)
                self.assertAlmostEqual(float(measured[1]), np.nanmean(file[stream]["r2_heldout"]), delta=1e-5)
                self.assertAlmostEqual(float(measured[2]), file[stream].attrs["geometric_null"][0], delta=1e-6)

    def test_refusals(self):
        for arguments, line in (
                (["--theory.hidden_size=8", "--theory.head_size=4", "--theory.references=2"],
                 "command line: theory.references = 2: heads of 4 coordinates fill the hidden size of 8; "),
                (["--theory.trials=0"], "command line: theory.trials = 0: is too small; "),
                (["--tokens.limit=5"], "command line: tokens.limit = 5: is not for theory; "),
                (["--theory.results=none.h5"], "none.h5: ")):
            with self.subTest(arguments=arguments):
                run = self.run_program(2, "theory", *arguments)
                self.assertEqual(run.returncode, 2)
                self.assertEqual([x for x in run.stderr.splitlines() if x.startswith("headspan: ")],
                                 [x for x in run.stderr.splitlines() if x.startswith("headspan: " + line)])
                self.assertIn("headspan: " + line, run.stderr)


if __name__ == "__main__":
    main()
