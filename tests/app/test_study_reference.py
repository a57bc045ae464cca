"""A study's result file against numpy and scikit-learn: every number of it, from the raw activations.

usage: test_study_reference.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import sys
from pathlib import Path

import h5py
import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from check_result import compare_stream, token_parts
from forward import Model, cut
from overlap import compare_overlap
from program import GOLDEN, StudyTest, main


def structured(rng, tokens, layers, heads, d, largest_mean):
    """Returns heads that share a few directions, each with its noise and mean: [tokens, layers * heads, d]."""
    columns = layers * heads * d
    common = rng.standard_normal((tokens, 12)) @ rng.standard_normal((12, columns))
    own = 0.5 * rng.standard_normal((tokens, columns))
    return (common + own + rng.uniform(-largest_mean, largest_mean, columns)).reshape(tokens, layers * heads, d)


def runs(ids):
    """Returns (start, length) of the runs of equal ids."""
    starts = [i for i in range(len(ids)) if i == 0 or ids[i] != ids[i - 1]]
    return list(zip(starts, np.diff(starts + [len(ids)])))


def sequences_of(path):
    with h5py.File(path) as file:
        return list(zip(file["tokens/start"][:], file["tokens/length"][:]))


class ReferenceTest(StudyTest):
    def assert_agrees(self, comparison):
        self.assertEqual(comparison.failures, [])
        other = [name for name in comparison.largest if "best choice" in name]
        self.assertEqual(other, [], "other heads were chosen than by numpy")


class OwnActivations(ReferenceTest):
    def test_float64_with_sequences_and_large_means(self):
        rng = np.random.default_rng(1)
        layer, head = np.repeat([0, 1, 2], 4), np.tile(np.arange(4), 3)
        z = structured(rng, 700, 3, 4, 5, largest_mean=1e4)
        sequence = np.repeat(np.tile([5, 3, 9], 20), rng.integers(1, 25, 60))[:700]
        order = rng.permutation(12)
        path = self.write_activations("a.h5", z[:len(sequence), order], layer[order], head[order], sequence=sequence,
                                      stream="v", hidden_size=64)
        keys = {"activations.path": path, "tokens.heldout": 0.5, "tokens.seed": 7, "tokens.skip_first": 2,
                "predict.references": 4, "predict.pool": 6}

        result, = self.study(2, "float64", {**keys, "ceiling.scope": "both"})

        self.assert_agrees(compare_stream(result, "v", z[:len(sequence)], layer, seed=7, share=0.5))
        self.assertEqual(sequences_of(result), runs(sequence))
        self.compare_with_sklearn(result, "v", z)

    def compare_with_sklearn(self, path, stream, z):
        with h5py.File(path) as file:
            fit, heldout = token_parts(file, int(file[stream].attrs["skip_first"]))
            self.assertGreater(min(len(fit), len(heldout)), 200)
            for target, source in [(0, 1), (0, 11), (5, 2), (11, 0), (7, 8)]:
                model = LinearRegression().fit(z[fit, source], z[fit, target])
                inside = z[fit, target], model.predict(z[fit, source])
                outside = z[heldout, target], model.predict(z[heldout, source])
                expected = {"r2": r2_score(*inside, multioutput="uniform_average"),
                            "r2_weighted": r2_score(*inside, multioutput="variance_weighted"),
                            "r2_heldout": r2_score(*outside, multioutput="uniform_average")}
                for name, value in expected.items():
                    self.assertAlmostEqual(file[stream][name][target, source], value, delta=1e-9)

    def test_float32_without_sequences(self):
        z = structured(np.random.default_rng(2), 400, 2, 3, 4, largest_mean=100).astype(np.float32)
        layer = np.repeat([1, 4], 3)
        path = self.write_activations("b.h5", z, layer, np.tile(np.arange(3), 2), stream="q")

        result, = self.study(3, "float32", {"activations.path": path, "tokens.limit": 333})

        self.assert_agrees(compare_stream(result, "q", z[:333], layer))
        self.assertEqual(sequences_of(result), [(i, 1) for i in range(333)])

    def degenerate(self):
        """Two equal heads, a head without variance, a constant coordinate, one of a different layer size."""
        z = structured(np.random.default_rng(3), 300, 1, 7, 3, largest_mean=10)
        z[:, 2] = z[:, 0]
        z[:, 4] = [7.0, 0.1, -1e5]
        z[:, 5, 1] = 1 / 3
        layer = np.array([0, 0, 0, 0, 1, 1, 2])
        return z, layer, self.write_activations("c.h5", z, layer, np.array([0, 1, 2, 3, 0, 1, 0]))

    def test_degenerate_heads(self):
        z, layer, path = self.degenerate()

        result, = self.study(2, "degenerate", {"activations.path": path, "ceiling.scope": "both"})

        comparison = compare_stream(result, "k", z, layer)
        self.assertEqual(comparison.failures, [])
        with h5py.File(result) as file:
            k = file["k"]
            self.assertTrue(np.isnan(k["r2"][4]).all() and (k["status"][4, [0, 1, 2, 3, 5, 6]] & 2).all())
            self.assertEqual((k["rank"][4], k["r2"][0, 4], k["status"][0, 4]), (0, 0, 1))
            references = list(k["references_pairwise"][1])  # equal heads: the lower one first
            self.assertEqual((sorted(references), references.index(0) < references.index(2)), ([-1, -1, 0, 2, 3], True))
            self.assertAlmostEqual(k["r2"][0, 2], 1, delta=1e-9)
            self.assertTrue(np.isnan(k.attrs["geometric_null"]).all() and np.isnan(k.attrs["ceiling_null"]))

    def test_degenerate_heads_in_paper_mode(self):
        z, layer, path = self.degenerate()

        result, = self.study(1, "paper", {"activations.path": path, "predict.mode": "paper"})

        self.assertEqual(compare_stream(result, "k", z, layer, share=0).failures, [])
        with h5py.File(result) as file:
            self.assertEqual(file["k/r2"][4, 0], 1)
            self.assertNotIn("r2_forward", file["k"])
            self.assertEqual(file["k"].attrs["n_fit"], 300)

    def test_too_few_tokens(self):
        z = structured(np.random.default_rng(4), 40, 2, 3, 4, largest_mean=1)
        layer = np.repeat([0, 1], 3)
        for tokens, answered in ((6, 0), (7, 1), (13, 2)):
            with self.subTest(tokens=tokens):
                path = self.write_activations("d.h5", z[:tokens], layer, np.tile(np.arange(3), 2))
                keys = {"activations.path": path, "tokens.heldout": 0.1, "output.overwrite": "true",
                        "ceiling.scope": "both"}
                result, = self.study(2, "few", keys)
                self.assertEqual(compare_stream(result, "k", z[:tokens], layer, share=0.1).failures, [])
                with h5py.File(result) as file:
                    last = file["k/r2_pairwise"][5]
                    self.assertEqual(np.isfinite(last).sum(), answered, last)


# Golden folder, capture point, ranks, and what the job asks beyond the common keys below.
MODELS = [
    ("olmo2_mha", "roped", 1, {}),
    ("olmo2_gqa", "proj", 2, {"tokens.heldout": 0, "ceiling.enabled": "false", "overlap.enabled": "false"}),
    ("olmo2_gqa", "normed", 1, {"tokens.eos": "2,5,7", "tokens.seed": 11, "tokens.heldout": 0.5,
                             "ceiling.scope": "both", "overlap.projections": "v,k",
                             "predict.streams": "z,v,k,q"}),
    ("olmo2_sharded_bf16", "roped", 2, {"tokens.skip_first": 3}),
    ("llama_gqa", "proj", 3, {"predict.references": 2, "predict.pool": 3, "run.tensor_parallel": 1,
                              "ceiling.scope": "causal", "overlap.tolerances": "1e-9,paper,0.3",
                              "predict.streams": "z"}),
    ("llama3_scaled", "roped", 2, {"tokens.sequence_length": 100, "tokens.limit": 1000}),
    ("falcon3", "roped", 2, {"predict.mode": "paper"}),
    ("qwen3", "normed", 2, {"predict.references": 6, "predict.pool": 7, "predict.streams": "q",
                          "overlap.effective": "effective"}),
    ("qwen3_bias", "roped", 1, {"tokens.limit": 10000}),
]
COMMON = {"model.dtype": "float64", "tokens.limit": 517, "tokens.sequence_length": 30, "predict.references": 3}


class Models(ReferenceTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = np.random.default_rng(5).integers(0, 64, 1200)
        cls.tokens = cls.write_tokens("ids.bin", cls.ids)

    def compare_with_numpy(self, result, name, keys, eos):
        model = Model(GOLDEN / name)
        sequences = cut(list(self.ids), eos, keys["tokens.sequence_length"], keys["tokens.limit"])
        captured = [model.capture(self.ids[start:start + length], keys["predict.capture"])
                    for start, length in sequences]
        self.assertEqual(sequences_of(result), sequences)
        share = 0 if keys.get("predict.mode") == "paper" else keys.get("tokens.heldout", 0.25)
        streams = keys.get("predict.streams", "k,q,v").split(",")
        for stream in streams:
            z = np.concatenate([c[stream] for c in captured])
            heads = model.heads if stream in "qz" else model.kv_heads
            layer = np.repeat(np.arange(model.config["num_hidden_layers"]), heads)
            comparison = compare_stream(result, stream, z, layer, seed=keys.get("tokens.seed", 0), share=share)
            self.assertEqual(comparison.failures, [], stream)
        if keys.get("overlap.enabled") == "false":
            with h5py.File(result) as file:
                self.assertNotIn("overlap", file)
        else:
            self.assertEqual(compare_overlap(result, model), [])
        for stream in streams:
            with h5py.File(result) as file:
                self.assertEqual(file[stream].attrs["hidden_size"], model.config["hidden_size"])
                self.assertEqual({"k", "q", "v", "z"} & set(file), set(streams))

    def test_every_type_and_capture_point(self):
        for name, capture, ranks, more in MODELS:
            with self.subTest(model=name, capture=capture):
                keys = {**COMMON, **more, "predict.capture": capture}
                paths = {"model.path": GOLDEN / name, "tokens.path": self.tokens}
                result, = self.study(ranks, f"{name}_{capture}", {**keys, **paths})
                eos = [int(i) for i in keys.get("tokens.eos", "2").split(",")]
                self.compare_with_numpy(result, name, keys, eos)

    def test_sidecar_says_what_ends_a_document(self):
        tokens = self.write_tokens("sidecar.bin", self.ids)
        tokens.with_suffix(".json").write_text(json.dumps({"dtype": "uint16", "count": 1200, "eos": [9, 4]}))
        keys = {**COMMON, "predict.capture": "roped"}

        result, = self.study(2, "sidecar", {**keys, "model.path": GOLDEN / "llama_gqa", "tokens.path": tokens})

        self.compare_with_numpy(result, "llama_gqa", keys, [9, 4])


if __name__ == "__main__":
    main()
