"""What the heads of one stream of a model say of those of another (cross.streams): numpy on the activations of a plain forward,
and a study of a file that holds both streams side by side.

usage: test_cross.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from check_result import token_parts
from forward import Model, cut, read_weights, write_safetensors
from program import GOLDEN, StudyTest, main
from regression import all_pairs, forward, joint, kept_regressors

PAIRS = ["q:k", "k:v", "z:v", "v:z"]
COMMON = {"model.dtype": "float64", "tokens.limit": 517, "tokens.sequence_length": 30, "predict.references": 3, "predict.pool": 4}


def linear_cka(x, y):
    x, y = x - x.mean(0), y - y.mean(0)
    return np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


class Captured:
    """Two streams of a golden model side by side: z: [tokens, sources then targets, d]."""

    def __init__(self, captured, pair, layers, sequences):
        self.source, self.target = pair.split(":")
        own = [np.concatenate([c[stream] for c in captured]) for stream in (self.source, self.target)]
        self.count = own[0].shape[1]
        self.z = np.concatenate(own, 1)
        self.layer = np.concatenate([np.repeat(np.arange(layers), part.shape[1] // layers) for part in own])
        self.sequence = np.repeat(np.arange(len(sequences)), [length for _, length in sequences])

    def sources(self, target, causal):
        """What a layer gathers says nothing of what that layer computed before it."""
        delay = 1 if self.source == "z" else 0
        return [s for s in range(self.count) if not causal or self.layer[s] + delay <= self.layer[target]]


class Cross(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = np.random.default_rng(5).integers(0, 64, 1200)
        cls.tokens = cls.write_tokens("ids.bin", cls.ids)

    def capture(self, folder, point):
        model = Model(folder)
        sequences = cut(list(self.ids), [2], COMMON["tokens.sequence_length"], COMMON["tokens.limit"])
        captured = [model.capture(self.ids[start:start + length], point) for start, length in sequences]
        return {pair: Captured(captured, pair, model.layers, sequences) for pair in PAIRS}

    def cross(self, ranks, output, model=GOLDEN / "olmo2_gqa", **more):
        result, = self.study(ranks, output, {**COMMON, "model.path": model, "tokens.path": self.tokens, "predict.capture": "normed",
                                             "cross.streams": ",".join(PAIRS), **more})
        return result

    def compare(self, file, pair, data):
        group, s = file["cross/" + pair.replace(":", "-")], data.count
        fit, heldout = token_parts(file, 0)
        z, zh = data.z[fit], data.z[heldout]
        r2 = all_pairs(z, zh)
        for name, expected in zip(("r2", "r2_weighted", "r2_heldout"), r2):
            np.testing.assert_allclose(group[name][:], expected[s:, :s], rtol=0, atol=1e-9, err_msg=name)
        self.assertFalse(group["status"][:].any())
        np.testing.assert_array_equal(group["rank"][:], [kept_regressors(z[:, h], np.finfo(float).eps)[0] for h in range(s)])
        cka = [[linear_cka(z[:, t], z[:, h]) for h in range(s)] for t in range(s, z.shape[1])]
        np.testing.assert_allclose(group["cka"][:], cka, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(group["source_layer"][:], data.layer[:s])
        np.testing.assert_array_equal(group["target_layer"][:], data.layer[s:])
        self.assertEqual((group.attrs["source_stream"].decode(), group.attrs["target_stream"].decode()), (data.source, data.target))
        for scope in ("", "_all"):
            for rule in ("pairwise", "forward"):
                for target in range(s, z.shape[1]):
                    self.compare_selection(group, rule + scope, target - s, r2[0, target],
                                           data.sources(target, causal=not scope), z, zh, target)

    def compare_selection(self, group, name, row, r2, sources, z, zh, target):
        expected = sorted(sources, key=lambda h: -r2[h])
        if name.startswith("forward"):
            expected = forward(z, target, expected[:4], 3)
        expected = expected[:3]
        np.testing.assert_array_equal(group["references_" + name][row], expected + [-1] * (3 - len(expected)), err_msg=name)
        for count in range(1, 4):
            fits = joint(z, zh, target, expected[:count]) if count <= len(expected) else (np.nan,) * 3
            self.assertEqual(group["status_" + name][row, count - 1], 0 if count <= len(expected) else 16, name)
            np.testing.assert_allclose(group["r2_" + name][row, count - 1], fits[0], rtol=0, atol=1e-9)
            np.testing.assert_allclose(group[f"r2_{name}_heldout"][row, count - 1], fits[2], rtol=0, atol=1e-9)

    def test_on_every_number_of_ranks(self):
        expected = self.capture(GOLDEN / "olmo2_gqa", "normed")
        for ranks, more in ((1, {}), (2, {"run.grid": "1x2", "run.tensor_parallel": 2}), (3, {}), (4, {"run.grid": "2x2"}),
                            (6, {"run.grid": "2x3"})):
            result = self.cross(ranks, f"ranks{ranks}", **{"predict.similarity": "cka", **more})
            with h5py.File(result) as file:
                self.assertEqual(set(file["cross"]), {pair.replace(":", "-") for pair in PAIRS})
                for pair, data in expected.items():
                    with self.subTest(ranks=ranks, pair=pair):
                        self.compare(file, pair, data)

    def test_a_study_of_both_streams_in_one_file_says_the_same(self):
        result = self.cross(2, "model", **{"predict.similarity": "cca,procrustes", "predict.streams": "k"})
        for pair, data in self.capture(GOLDEN / "olmo2_gqa", "normed").items():
            order = np.argsort(data.layer, kind="stable")  # layer by layer, as a file has them
            head = np.concatenate([np.arange((data.layer == number).sum()) for number in np.unique(data.layer)])
            path = self.write_activations("both.h5", data.z[:, order], data.layer[order], head, sequence=data.sequence)
            both, = self.study(3, pair.replace(":", "-"), {"activations.path": path, "predict.similarity": "cca,procrustes"})
            place = np.argsort(order)
            with h5py.File(result) as file, h5py.File(both) as whole:
                for name in ("r2", "r2_weighted", "r2_heldout", "cca", "procrustes"):
                    values = whole["k"][name][:][place[data.count:]][:, place[:data.count]]
                    np.testing.assert_allclose(file["cross"][pair.replace(":", "-")][name][:], values, rtol=0, atol=1e-10)

    def test_planted_heads(self):
        folder = self.folder / "planted"
        shutil.copytree(GOLDEN / "llama_gqa", folder)
        weights, d = read_weights(folder), Model(folder).d
        for path in folder.glob("model*"):
            path.unlink()
        name = "model.layers.1.self_attn.{}_proj.weight"
        rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0]
        weights[name.format("k")][:d] = weights[name.format("q")][d:2 * d]  # a copy
        weights[name.format("v")][d:2 * d] = rotation @ weights[name.format("k")][d:2 * d]
        write_safetensors(folder / "model.safetensors", weights)
        result = self.cross(2, "of_planted", folder, **{"predict.capture": "proj", "model.dtype": "float32"})
        heads = {stream: getattr(Model(folder), count) for stream, count in (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads"))}
        with h5py.File(result) as file:
            for pair, target, source in (("q-k", 0, 1), ("k-v", 1, 1)):
                own = {stream: heads[stream] for stream in pair.split("-")}
                target, source = target + own[pair[2]], source + own[pair[0]]  # of layer 1
                found = file["cross"][pair]["r2"][target]
                self.assertAlmostEqual(found[source], 1, delta=1e-6)
                self.assertLess(np.delete(found, source).max(), 0.999)
                self.assertEqual(file["cross"][pair]["references_pairwise"][target, 0], source)

    def test_saved_grams_hold_the_streams_alone(self):
        result = self.cross(1, "saved", **{"output.save_gram": "true", "predict.streams": "k"})
        with h5py.File(result.with_suffix(".gram.h5")) as file:
            self.assertEqual({"k", "q", "v", "z"} & set(file), {"k"})
            self.assertNotIn("q-k", file)

    def test_refused(self):
        model = {"model.path": GOLDEN / "olmo2_gqa", "tokens.path": self.tokens}
        path = self.write_activations("z.h5", np.zeros((9, 1, 2)), [0], [0])
        for keys, wrong in (({**model, "cross.streams": "q:x"}, "cross.streams"), ({**model, "cross.streams": "q"}, "SOURCE:TARGET"),
                            ({**model, "cross.streams": "k:k"}, "names one stream twice"),
                            ({**model, "cross.streams": "q:k,q:k"}, "holds q:k twice"),
                            ({"activations.path": path, "cross.streams": "q:k"}, "takes two streams of a model")):
            run = self.run_program(2, "study", *(f"--{key}={value}" for key, value in keys.items()),
                                   f"--output.directory={self.folder / 'refused'}")
            told = [line for line in run.stderr.splitlines() if line.startswith("headspan: ")]  # the others are mpiexec's
            self.assertEqual((run.returncode, len(told)), (2, 1), run.stderr)
            self.assertIn(wrong, told[0])
        self.assertFalse((self.folder / "refused").exists())

    def test_without_pairs_nothing_is_written(self):
        result = self.cross(1, "none", **{"cross.streams": "none"})
        with h5py.File(result) as file:
            self.assertNotIn("cross", file)
            self.assertLess({"k", "q", "v"}, set(file))


if __name__ == "__main__":
    main()
