"""How far R² can be trusted where arithmetic is at its limits: ill-conditioned sources, extreme scales, hardly more tokens than
regressors, models that overflow. R² is compared with exact integer arithmetic.

usage: test_numerics.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import shutil
import sys
from fractions import Fraction
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

D = 8
DEFICIENT, TOO_FEW = 1, 4


def determinant(a):
    """Returns the determinant of a symmetric positive definite matrix of integers (Bareiss's elimination)."""
    a, before = [list(row) for row in a], 1
    for k in range(len(a) - 1):
        for i in range(k + 1, len(a)):
            for j in range(k + 1, len(a)):
                a[i][j] = (a[i][j] * a[k][k] - a[i][k] * a[k][j]) // before
        before = a[k][k]
    return a[-1][-1]


def scatter(z):
    """Returns n times the centred cross-products of integers z: [n, columns], exactly."""
    high = z >> 20
    low = z - (high << 20)
    def product(a, b):
        return (a.T @ b).astype(object)
    gram = (product(high, high) << 40) + ((product(high, low) + product(low, high)) << 20) + product(low, low)
    total = z.sum(0).astype(object)
    return len(z) * gram - np.outer(total, total)


def exact_r2(sources, target):
    """Returns R² of the coordinates of `target`: [n, d], averaged, from `sources`: [n, p], integers."""
    c = scatter(np.hstack([sources, target]))
    p = sources.shape[1]
    inner = determinant(c[:p, :p])
    shares = []
    for t in range(p, c.shape[0]):
        columns = [*range(p), t]
        shares.append(1 - Fraction(determinant(c[np.ix_(columns, columns)]), inner * c[t, t]))
    return sum(shares) / len(shares)


def pair(rng, n, exponent, shift):
    """Returns a source whose covariance has the condition 10^exponent, and a target that loads on its weakest direction: [n, D]
    integers each."""
    turned, _ = np.linalg.qr(rng.normal(size=(D, D)))
    x = rng.normal(size=(n, D))
    widths = np.append(np.ones(D - 1), 10 ** (-exponent / 2))
    source = np.rint(((x * widths) @ turned.T + shift) * 2.0**30).astype(np.int64)
    noise = rng.normal(size=(n, D)) * np.geomspace(0.01, 3, D)
    return source, np.rint((x[:, -1:] + noise) * 2.0**20).astype(np.int64)


class Numerics(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rng = np.random.default_rng(12)

    def regress(self, name, z, **more):
        """Runs a study of z: [n, heads, D]. Returns the variables of the stream."""
        activations = self.write_activations(f"{name}.h5", z, np.zeros(z.shape[1], int), np.arange(z.shape[1]))
        keys = {"activations.path": activations, "tokens.heldout": 0, "predict.references": 2, **more}
        with h5py.File(self.study(1, name, keys)[0]) as file:
            return {variable: values[...] for variable, values in file["k"].items()}

    def planted(self, n, exponents):
        """Returns a source and a target of each condition, [n, heads, D]."""
        return np.stack([head for exponent in exponents for head in pair(self.rng, n, exponent, self.rng.choice([0, 1]))], 1)

    def errors(self, z, found):
        """Returns the error of R² of each planted pair over its bound, for the sources that are kept whole."""
        ratios = []
        for source in range(0, z.shape[1], 2):
            if found["rank"][source] < D:
                self.assertEqual(found["status"][source + 1, source], DEFICIENT)
                continue
            error = abs(exact_r2(z[:, source], z[:, source + 1]) - Fraction(found["r2"][source + 1, source]))
            ratios.append(float(error) / found["r2_error"][source])
        return np.array(ratios)

    def test_the_bound_holds_and_is_not_far_off(self):
        ratios = []
        for n in (D + 3, 60, 500, 20000):
            z = self.planted(n, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
            ratios.append(self.errors(z, self.regress(f"bound{n}", z.astype(float))))
        ratios = np.concatenate(ratios)
        self.assertEqual(len(ratios), 48)
        self.assertLess(ratios.max(), 1)
        self.assertGreater(np.median(ratios), 0.01)
        self.assertGreater(ratios.max(), 0.1)

    def test_what_cannot_be_resolved_is_said(self):
        """Conditions up to 10^18: no R² is wrong by more than its bound, unless its source is flagged."""
        deficient = 0
        for exponent in range(12, 19):
            z = self.planted(300, [exponent] * 3)
            found = self.regress(f"condition{exponent}", z.astype(float))
            self.assertTrue((self.errors(z, found) < 1).all(), exponent)
            deficient += np.count_nonzero(found["rank"][::2] < D)
            if exponent == 18:
                self.assertTrue(((found["rank"][::2] < D) | (found["r2_error"][::2] > 0.1)).all())
        self.assertGreater(deficient, 0)
        self.assertTrue((self.regress("kept", self.planted(300, [13] * 3).astype(float))["r2_error"][::2] > 1e-4).all())

    def test_joint_fits_have_bounds(self):
        z = self.planted(200, [0, 6, 8])
        found = self.regress("joint", z.astype(float))
        for target in range(z.shape[1]):
            sources = np.concatenate([z[:, s] for s in found["references_pairwise"][target]], 1)
            error = abs(exact_r2(sources, z[:, target]) - Fraction(found["r2_pairwise"][target, 1]))
            self.assertEqual(found["rank_pairwise"][target, 1], 2 * D)
            self.assertLess(float(error), found["r2_error_pairwise"][target, 1])
            self.assertLess(found["r2_error_pairwise"][target, 1], 1e-5)

    def test_products_of_less_precision_have_larger_bounds(self):
        z = self.planted(2000, [0, 2, 4, 6, 8])
        for precision in ("split", "float32"):
            found = self.regress(precision, z.astype(float), **{"predict.precision": precision})
            self.assertTrue((self.errors(z, found) < 1).all(), precision)

    def test_half_precision(self):
        """R² of bfloat16 products of a model differs from that of FP64 products by less than its bound."""
        self.write_tokens("tokens.bin", self.rng.integers(0, 64, 30000))
        found = {}
        for precision in ("float64", "bfloat16"):
            keys = {"model.path": GOLDEN / "llama_gqa", "model.dtype": "bfloat16", "tokens.path": self.folder / "tokens.bin",
                    "tokens.sequence_length": 100, "tokens.heldout": 0, "predict.references": 2, "predict.precision": precision}
            with h5py.File(self.study(1, precision, keys)[0]) as file:
                found[precision] = {s: {v: file[s][v][...] for v in ("r2", "r2_error")} for s in "kqv"}
        for stream, half in found["bfloat16"].items():
            apart = np.nanmax(np.abs(half["r2"] - found["float64"][stream]["r2"]), axis=0)
            self.assertTrue((apart < half["r2_error"]).all(), (stream, apart, half["r2_error"]))
            self.assertGreater(apart.max(), 1e-6)  # they are other products

    def test_scale(self):
        """Activations of 1e-30 or 1e30 times the size have the same R², to the bit if the factor is a power of two."""
        z = self.planted(300, [0, 3]).astype(float) / 2.0**30
        expected = self.regress("scale", z)
        for power in (-100, 100):
            found = self.regress(f"scale{power}", z * 2.0**power)
            np.testing.assert_array_equal(found["r2"], expected["r2"])
            np.testing.assert_array_equal(found["r2_error"], expected["r2_error"])
        for factor in (1e-30, 1e30):
            np.testing.assert_allclose(self.regress(f"scale{factor}", z * factor)["r2"], expected["r2"], rtol=0, atol=1e-11)

    def test_hardly_more_tokens_than_regressors(self):
        for n in (D + 1, D + 2, D + 3):
            z = self.planted(n, [1])
            found = self.regress(f"tokens{n}", z.astype(float))
            if n <= D + 1:
                self.assertTrue(np.isnan(found["r2"][1, 0]))
                self.assertEqual(found["status"][1, 0] & TOO_FEW, TOO_FEW)
            else:
                self.assertLess(abs(float(exact_r2(z[:, 0], z[:, 1])) - found["r2"][1, 0]), found["r2_error"][0])

    def test_a_model_that_overflows(self):
        """The unit fails by name; the others are computed."""
        broken = self.folder / "broken"
        shutil.copytree(GOLDEN / "llama_gqa", broken)
        weights = broken / "model.safetensors"
        content = bytearray(weights.read_bytes())
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + size])
        entry = header["model.layers.0.mlp.down_proj.weight"]
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        content[begin:end] = np.full((end - begin) // 4, 3e38, "<f4").tobytes()
        self.assertEqual(entry["dtype"], "F32")
        weights.write_bytes(content)
        rows = [f"{name}\t{step}\t{step}\t{path}" for step, (name, path) in enumerate(
            [("before", GOLDEN / "llama_gqa"), ("breaks", broken), ("after", GOLDEN / "llama_gqa")])]
        (self.folder / "manifest.tsv").write_text("\n".join(["name\tstep\ttokens\tpath", *rows]) + "\n")
        self.write_tokens("few.bin", self.rng.integers(0, 64, 3000))
        run = self.run_program(2, "study", f"--model.manifest={self.folder / 'manifest.tsv'}", "--model.dtype=float32",
                               f"--tokens.path={self.folder / 'few.bin'}", "--tokens.sequence_length=100",
                               "--predict.references=1", f"--output.directory={self.folder / 'sweep'}")
        told = [line for line in run.stderr.splitlines() if line.startswith("headspan: ") and "notice" not in line]
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(len(told), 1, told)
        self.assertIn(str(broken), told[0])
        self.assertEqual(sorted(p.stem for p in (self.folder / "sweep").rglob("*.h5")), ["after", "before"])


if __name__ == "__main__":
    main()
