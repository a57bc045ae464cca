"""calibrate with compress.algorithm = oscar, through the program, against numpy: the rotations of a plan diagonalise the second
moments that they are defined by, behind a Hadamard matrix.

usage: test_rotations.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import Model
from moments import moments
from program import GOLDEN, StudyTest, main
from rounding import hadamard
from samples import predictable_ids
from splitmix64 import splitmix64

LENGTH, TOKENS, EOS, FIRST, HELDOUT = 40, 2000, 63, 3, 0.25


class Rotations(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ids = predictable_ids(np.random.default_rng(4), TOKENS, EOS)
        cls.tokens = cls.write_tokens("fit.bin", ids)
        sequences = np.split(ids, range(LENGTH, TOKENS, LENGTH))
        order = sorted(range(len(sequences)), key=lambda i: splitmix64(0, i))
        held_out = order[:int(HELDOUT * len(sequences) + 0.5)]
        cls.fit = [tokens for i, tokens in enumerate(sequences) if i not in held_out]

    def calibrate(self, ranks, model, **more):
        plan = self.folder / f"{model}{ranks}.h5"
        keys = {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.path": self.tokens, "tokens.eos": EOS,
                "tokens.sequence_length": LENGTH, "tokens.limit": TOKENS, "tokens.heldout": HELDOUT, "compress.plan": plan,
                "compress.exact_first": FIRST, "compress.algorithm": "oscar", "run.batch_tokens": 7 * LENGTH, **more}
        run = self.run_program(ranks, "calibrate", *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return plan

    def second_moments(self, name):
        """Returns {stream: [layers, heads, d, d]}: sums, and {stream: [layers, heads]}: of their weights."""
        model = Model(GOLDEN / name)
        z = moments(model, self.fit, FIRST).z
        n, _, d = z["k"].shape
        q = z["q"].reshape(n, model.layers, model.kv_heads, -1, d)
        k, v = (z[s].reshape(n, model.layers, model.kv_heads, d) for s in "kv")
        of_keys = np.einsum("nlhgi,nlhgj->lhij", q, q)
        weight = np.einsum("nlhi,lhij,nlhj->nlh", k, of_keys, k)
        queries = np.full(of_keys.shape[:2], n * q.shape[3])
        return {"k": of_keys, "v": np.einsum("nlh,nlhi,nlhj->lhij", weight, v, v)}, {"k": queries, "v": weight.sum(0)}

    def test_rotations_are_eigenvectors_behind_a_hadamard_matrix(self):
        for ranks, name, more in ((1, "olmo2_gqa", {}), (3, "olmo2_mha", {}), (2, "llama_gqa", {"run.tensor_parallel": 2})):
            expected, weights = self.second_moments(name)
            with h5py.File(self.calibrate(ranks, name, **more)) as plan:
                for s in "kv":
                    for layer, of_layer in enumerate(expected[s]):
                        group = plan[s][str(layer)]
                        d = of_layer.shape[-1]
                        self.assertEqual(group.attrs["band_clip"], {"k": 0.96, "v": 0.92}[s])
                        self.assertEqual(list(group.attrs["band_columns"]), [d] * len(of_layer))
                        self.assertEqual(set(group.attrs["band_bits"]), {2})
                        for head, moment in enumerate(of_layer):
                            with self.subTest(model=name, stream=s, layer=layer, head=head):
                                vectors = np.asarray(group["rotation"][head], float) @ hadamard(d)
                                values = np.linalg.eigvalsh(moment)[::-1]
                                stored = group["eigenvalues"][head * d:head * d + d] * weights[s][layer, head]
                                np.testing.assert_allclose(stored, values, rtol=1e-9, atol=1e-12 * values[0])
                                np.testing.assert_allclose(vectors.T @ vectors, np.eye(d), atol=1e-6)
                                np.testing.assert_allclose(vectors.T @ moment @ vectors, np.diag(values), atol=2e-6 * values[0])

    def test_keys_alone(self):
        with h5py.File(self.calibrate(1, "qwen3", **{"compress.streams": "k", "compress.bits": 3})) as plan:
            self.assertNotIn("v", plan)
            self.assertEqual(set(plan["k/0"].attrs["band_bits"]), {3})

    def test_too_few_tokens_and_saved_grams_are_refused(self):
        for more, message in (({"tokens.limit": 12}, "columns of a head"),
                              ({"tokens.path": "", "model.path": "", "grams.paths": self.tokens}, "Grams are given")):
            keys = {"model.path": GOLDEN / "qwen3", "tokens.path": self.tokens, "compress.plan": self.folder / "none.h5",
                    "compress.algorithm": "oscar", **more}
            run = self.run_program(1, "calibrate", *(f"--{key}={value}" for key, value in keys.items() if value != ""))
            self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
            self.assertIn(message, run.stderr)


if __name__ == "__main__":
    main()
