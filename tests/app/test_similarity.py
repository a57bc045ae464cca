"""Measures of similarity of a study (predict.similarity) from the raw activations: CKA from the kernels of the tokens, CCA from
orthonormal bases, the Procrustes distance from scipy.

usage: test_similarity.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import sys
from pathlib import Path

import h5py
import numpy as np
import scipy.spatial

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from check_result import token_parts
from program import GOLDEN, StudyTest, main

LAYERS, HEADS, D, M = 3, 4, 5, 40
MEASURES = ("cka", "cca", "procrustes")


def cka(x, y):
    """Returns tr(K L) / sqrt(tr(K K) tr(L L)) of the centred kernels K, L: [tokens, tokens]."""
    k, m = (z @ z.T for z in (x - x.mean(0), y - y.mean(0)))
    return (k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum())


def cca(x, y):
    """Returns the mean squared canonical correlation."""
    bases = [np.linalg.svd(z - z.mean(0), full_matrices=False) for z in (x, y)]
    u, v = (left[:, values > 1e-10 * values[0]] for left, values, _ in bases)
    return (np.linalg.svd(u.T @ v, compute_uv=False) ** 2).mean()


def procrustes(x, y):
    return 1 - np.sqrt(1 - scipy.spatial.procrustes(x, y)[2])


def random_subspaces(d, m, draws, rng):
    """Returns the mean over pairs of random subspaces of the measures of their orthonormal bases."""
    cosines = [np.linalg.svd(np.linalg.qr(rng.standard_normal((m, d)))[0][:d], compute_uv=False) for _ in range(draws)]
    return {"cka": np.mean(np.square(cosines)), "cca": np.mean(np.square(cosines)), "procrustes": 1 - np.mean(cosines)}


class Similarity(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(3)
        z = rng.standard_normal((400, M)) @ rng.standard_normal((M, LAYERS * HEADS * D)) + rng.uniform(-9, 9, LAYERS * HEADS * D)
        z = z.reshape(400, LAYERS * HEADS, D)
        z[:, 5] = 3 * z[:, 2] @ np.linalg.qr(rng.standard_normal((D, D)))[0] + 7  # rotated, scaled, moved
        z[:, 6] = z[:, 1] @ rng.standard_normal((D, D))  # the same space, other axes
        z[:, 7] = rng.standard_normal((400, D))  # noise
        z[:, 9, 3] = z[:, 9, 1]  # dependent columns
        cls.z, cls.layer = z, np.repeat(np.arange(LAYERS), HEADS)
        cls.path = cls.write_activations("z.h5", z, cls.layer, np.tile(np.arange(HEADS), LAYERS), hidden_size=M)
        cls.keys = {"activations.path": cls.path, "tokens.heldout": 0.25, "predict.similarity": ",".join(MEASURES)}

    def read(self, ranks, output, **more):
        result, = self.study(ranks, output, {**self.keys, **more})
        with h5py.File(result) as file:
            found = {name: file["k"][name][:] for name in (*MEASURES, "cka_layer")}
            return found, {name: dict(file["k"][name].attrs) for name in MEASURES}, token_parts(file, 0)[0]

    def test_on_every_number_of_ranks(self):
        expected = None
        for ranks, more in ((1, {}), (2, {"run.grid": "1x2"}), (3, {}), (4, {"run.grid": "2x2"}), (6, {"run.grid": "2x3"})):
            found, _, fit = self.read(ranks, f"ranks{ranks}", **more)
            z = self.z[fit]
            if expected is None:
                expected = {measure.__name__: [[measure(z[:, t], z[:, s]) if s != t else np.nan for s in range(z.shape[1])]
                                               for t in range(z.shape[1])] for measure in (cka, cca, procrustes)}
                layers = [z[:, self.layer == layer].reshape(len(z), -1) for layer in range(LAYERS)]
                expected["cka_layer"] = [[cka(x, y) for y in layers] for x in layers]
            for name, values in found.items():
                np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-9, err_msg=f"{ranks} {name}")

    def test_of_planted_heads(self):
        found, attributes, fit = self.read(2, "planted")
        self.assertAlmostEqual(found["cka"][5, 2], 1, delta=1e-12)
        self.assertAlmostEqual(found["cca"][2, 5], 1, delta=1e-12)
        self.assertAlmostEqual(found["procrustes"][5, 2], 0, delta=1e-12)
        self.assertAlmostEqual(found["cca"][6, 1], 1, delta=1e-9)
        self.assertLess(found["cka"][6, 1], 0.99)
        n = len(fit)
        for name in MEASURES:
            floor = attributes[name]["noise_floor"]
            measured = np.nanmean(found[name][7])  # of noise with other heads, of which some are dependent
            self.assertLess(abs((1 - measured if name == "procrustes" else measured)
                                / (1 - floor if name == "procrustes" else floor) - 1), 0.35, name)
        self.assertAlmostEqual(attributes["cca"]["noise_floor"], D / (n - 1), delta=1e-15)

    def test_nulls_are_those_of_random_subspaces(self):
        rng = np.random.default_rng(4)
        for d, m in ((5, 40), (64, 160), (96, 160)):
            z = rng.standard_normal((300, 2, d))
            path = self.write_activations(f"null{d}.h5", z, [0, 0], [0, 1], hidden_size=m)
            result, = self.study(1, f"null{d}", {"activations.path": path, "predict.similarity": ",".join(MEASURES)})
            drawn = random_subspaces(d, m, 40 if d > 5 else 2000, rng)
            with h5py.File(result) as file:
                for name in MEASURES:
                    self.assertLess(abs(file["k"][name].attrs["null"] - drawn[name]), 0.01, (name, d))

    def test_one_measure_of_a_model_with_shared_keys(self):
        tokens = self.write_tokens("ids.bin", np.random.default_rng(6).integers(0, 64, 900))
        for ranks in (1, 4):
            result, = self.study(ranks, f"gqa{ranks}", {"model.path": GOLDEN / "llama_gqa", "tokens.path": tokens,
                                                        "predict.similarity": "procrustes", "predict.streams": "q,k"})
            with h5py.File(result) as file:
                for stream in "qk":
                    values = file[stream]["procrustes"][:]
                    self.assertTrue(((values >= 0) & (values <= 1))[~np.eye(len(values), dtype=bool)].all())
                    np.testing.assert_array_equal(values, values.T)
                    self.assertEqual({"cka", "cca", "cka_layer"} & set(file[stream]), set())

    def test_too_few_tokens_have_none(self):
        path = self.write_activations("few.h5", self.z[:6], self.layer, np.tile(np.arange(HEADS), LAYERS))
        result, = self.study(2, "few", {**self.keys, "activations.path": path, "tokens.heldout": 0})
        with h5py.File(result) as file:
            for name in (*MEASURES, "cka_layer"):
                self.assertTrue(np.isnan(file["k"][name][:]).all(), name)


if __name__ == "__main__":
    main()
