"""predict.precision = auto: split where the processor multiplies 8-bit integers, float64 elsewhere and for values in float64;
what a study says about its choice, and how near it is to float64.

usage: test_automatic_precision.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import StudyTest, main

LAYERS, HEADS, D = 3, 4, 8
TABLES = ("r2", "r2_pairwise", "r2_forward", "r2_weighted", "ceiling_layer", "variance")


def has_integers():
    """Returns whether the processor has AVX-512's fused products of integers."""
    return bool(re.search(r"^flags.* avx512_vnni( |$)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE))


class AutomaticPrecision(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(5)
        heads = LAYERS * HEADS
        z = rng.standard_normal((6000, 40)) @ rng.standard_normal((40, heads * D)) + 0.5 * rng.standard_normal((6000, heads * D))
        z = (z + rng.uniform(-90, 90, heads * D)).reshape(6000, heads, D)
        z[rng.integers(0, 6000, 20)] *= 30  # tokens far from all others
        layer, head = np.repeat(np.arange(LAYERS), HEADS), np.tile(np.arange(HEADS), LAYERS)
        cls.single = cls.write_activations("single.h5", z.astype(np.float32), layer, head)
        cls.double = cls.write_activations("double.h5", z, layer, head)

    def tables(self, precision, path=None, ranks=1):
        output = f"{precision}-{ranks}-{Path(path or self.single).stem}"
        result, = self.study(ranks, output, {"activations.path": path or self.single, "predict.precision": precision})
        with h5py.File(result) as file:
            return file["k"].attrs["precision"].decode(), {name: file["k"][name][:] for name in TABLES}

    def test_is_what_it_stands_for(self):
        for path, stands_for in ((self.single, "split" if has_integers() else "float64"), (self.double, "float64")):
            for ranks in (1, 3):
                precision, chosen = self.tables("auto", path, ranks)
                self.assertEqual(precision, stands_for)
                for name, values in self.tables(stands_for, path, ranks)[1].items():
                    np.testing.assert_array_equal(chosen[name], values, err_msg=name)

    def test_is_as_good_as_float64(self):
        for ranks in (1, 3, 6):
            exact, chosen = self.tables("float64", ranks=ranks)[1], self.tables("auto", ranks=ranks)[1]
            for name in TABLES:
                scale = np.nanmax(np.abs(exact[name])) if name == "variance" else 1
                np.testing.assert_allclose(chosen[name], exact[name], rtol=0, atol=1e-7 * scale, err_msg=name)

    def test_tells_its_choice_and_stays_the_same_job(self):
        job = [f"--activations.path={self.single}", f"--output.directory={self.folder / 'told'}"]
        run = self.run_program(1, "study", *job, "--predict.precision=auto")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"predict\.precision = auto: " + ("split" if has_integers() else "float64"))
        again = self.run_program(1, "study", *job, "--predict.precision=auto")
        self.assertRegex(again.stdout, "status=done units=0 skipped=1")
        other = self.run_program(1, "study", *job)
        self.assertNotIn("skipped=1", other.stdout)


if __name__ == "__main__":
    main()
