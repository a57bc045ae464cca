"""The forward pass with a compressed cache in numpy, its summary, and whole plans: closed forms and changed weights."""
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cached_forward
import latents
from cached_forward import Plan
from calibration import calibrate
from forward import Model
from moments import moments
from samples import GOLDEN, golden

FIRST = 2


def plain(heads, d, **more):
    """Returns a layer's group of a head plan that keeps all heads."""
    return {"kept": np.arange(heads), "targets": np.empty(0, int), "references": np.empty((0, 2), int),
            "map": np.empty((0, 2 * d, d)), "bias": np.empty((0, d)), **more}


def constant(value):
    """Returns a latent group without latents: every row is `value`."""
    return {"mean": value, "projection": np.empty((len(value), 0)), "lift": np.empty((0, len(value))), "bias": value,
            "band_columns": np.empty(0, int), "band_bits": np.empty(0, int)}


class CachedForwardTest(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(4)
        self.sequences = [self.rng.integers(0, 64, length) for length in (12, 1, 7, 30)]

    def test_what_loses_nothing_changes_nothing(self):
        for name in ("olmo2_mha", "llama_gqa", "qwen3"):
            model, tokens = Model(GOLDEN / name), self.sequences[0]
            found = moments(model, [self.rng.integers(0, 64, 40) for _ in range(4)], FIRST)
            groups, _, share = latents.plan(latents.blocks_of(found, "kv"), 1, "16")

            ours = cached_forward.logits(model, tokens, Plan("latent", 0, {"k": groups[:2], "v": groups[2:]}))

            self.assertEqual(share, 1)
            np.testing.assert_allclose(ours, model.logits(tokens), atol=1e-7)
            self.assertTrue((np.concatenate([g["band_columns"] for g in groups]) == model.kv_heads * model.d).all())

    def test_constant_rows_are_a_model_without_the_projection(self):
        for name in ("olmo2_gqa", "llama_gqa", "qwen3_bias"):
            model, changed, tokens = Model(GOLDEN / name), Model(GOLDEN / name), self.sequences[0]
            values = self.rng.standard_normal((2, model.kv_heads * model.d))
            for layer, value in enumerate(values):
                block = f"model.layers.{layer}.self_attn."
                changed.weights[block + "v_proj.weight"] *= 0
                changed.weights[block + "v_proj.bias"] = value
                for part in ("weight", "bias"):
                    changed.weights[block + "q_proj." + part] *= 0  # equivalent to equal keys
            groups = [constant(value) for value in values]
            plans = [Plan("latent", first, {"k": groups, "v": groups}) for first in (0, 5, 12)]

            ours = [cached_forward.logits(model, tokens, plan) for plan in plans]

            np.testing.assert_allclose(ours[0], changed.logits(tokens), atol=1e-11)
            same = np.abs(ours[1] - model.logits(tokens)).max(1) == 0
            self.assertEqual(list(same), [True] * 5 + [False] * 7)
            np.testing.assert_array_equal(ours[2], model.logits(tokens))

    def test_a_target_that_is_a_combination_changes_nothing(self):
        model, tokens = Model(GOLDEN / "olmo2_mha"), self.sequences[0]
        maps, bias = self.rng.standard_normal((2, 8, 8)), self.rng.standard_normal(8)
        v_proj = "model.layers.1.self_attn.v_proj."
        weight = model.weights[v_proj + "weight"]
        weight[8:16] = maps[0].T @ weight[24:] + maps[1].T @ weight[:8]
        model.weights[v_proj + "bias"] = np.r_[np.zeros(8), bias, np.zeros(16)]
        group = plain(4, 8, kept=[0, 2, 3], targets=[1], references=[[7, 4]], map=[maps.reshape(16, 8)], bias=[bias])
        shifted = {**group, "bias": [bias + 1]}

        right, wrong = (cached_forward.logits(model, tokens, Plan("headspan", 0, {"v": [plain(4, 8), own]}))
                        for own in (group, shifted))

        np.testing.assert_allclose(right, model.logits(tokens), atol=1e-11)
        self.assertGreater(np.abs(wrong - right).max(), 1e-3)

    def test_references_to_an_earlier_layer_are_its_stored_rows(self):
        earlier, later = self.rng.standard_normal((2, 6, 3, 2))
        maps = self.rng.standard_normal((2, 2, 2))
        first = plain(3, 2, kept=[0, 2], targets=[1], references=[[0, -1]], map=[np.r_[maps[0], 0 * maps[0]]], bias=[[1, 1]])
        second = plain(3, 2, kept=[1, 2], targets=[0], references=[[2, 5]], map=[maps.reshape(4, 2)], bias=[[0, 3]])
        cache = cached_forward.Cache(Plan("headspan", 2, {"k": [first, second]}))

        one, two = cache.replace(0, earlier, later)[0], cache.replace(1, later, earlier)[0]

        expected = later.copy()
        expected[2:, 0] = earlier[2:, 2] @ maps[0] + later[2:, 2] @ maps[1] + [0, 3]
        np.testing.assert_allclose(two, expected, atol=1e-14)
        np.testing.assert_allclose(one[2:, 1], earlier[2:, 0] @ maps[0] + 1, atol=1e-14)
        with self.assertRaisesRegex(ValueError, "head 1 of layer 0 is a reference and not stored"):
            lost = Plan("headspan", 2, {"k": [first, {**second, "references": [[1, 5]]}]})
            cache = cached_forward.Cache(lost)
            cache.replace(0, earlier, later)
            cache.replace(1, later, earlier)

    def test_recent_tokens_by_counting(self):
        """Keys of 100 tokens, of which 2 are first ones: kivi's groups of 32 begin at 2, 34 and 66."""
        x, groups = self.rng.standard_normal((100, 1, 4)), [{"band_bits": [2]}]
        for algorithm, group in (("latent", [constant(np.full(4, 9.0))]), ("kivi", groups)):
            for recent in (0, 1, 5, 100):
                seen = cached_forward.Cache(Plan(algorithm, FIRST, {"k": group}), recent=recent).replace(0, x, x)[0]
                seen = np.broadcast_to(seen, (100, *x.shape))
                for query in range(100):
                    last = FIRST  # behind the last token that is read as it is stored
                    while last + (32 if algorithm == "kivi" else 1) <= query + 1 - recent:
                        last += 32 if algorithm == "kivi" else 1
                    lost = [token for token in range(query + 1) if np.abs(seen[query, token] - x[token]).max() > 0]
                    self.assertEqual(lost, list(range(FIRST, last)), (algorithm, recent, query))

    def test_plan_files(self):
        model, tokens = Model(GOLDEN / "olmo2_mha"), self.sequences[3]
        found = moments(model, self.sequences, FIRST)
        blocks = latents.plan(latents.blocks_of(found, "k"), 0.4, "auto")[0]
        bands = {"band_columns": np.array([32]), "band_bits": np.array([3])}
        target = plain(4, 8, kept=np.array([0, 2, 3]), targets=np.array([1]), references=np.array([[0, -1]]),
                       map=self.rng.standard_normal((1, 16, 8)), bias=self.rng.standard_normal((1, 8)))
        plans = [Plan("latent", 4, {"k": blocks}), Plan("quantise", 3, {"k": [bands] * 2, "v": [bands] * 2}),
                 Plan("paper-code", 1, {"v": [target, plain(4, 8)]})]
        for plan in plans:
            with tempfile.TemporaryDirectory() as folder:
                self.write(Path(folder) / "plan.h5", plan)

                again = cached_forward.read_plan(Path(folder) / "plan.h5")

            ours, direct = (cached_forward.logits(model, tokens, p) for p in (again, plan))
            np.testing.assert_array_equal(ours, direct)
            self.assertGreater(np.abs(ours - model.logits(tokens)).max(), 1e-3)

    def write(self, path, plan):
        with h5py.File(path, "w") as file:
            file.attrs.update(algorithm=plan.algorithm, exact_first=plan.exact_first)
            for s, groups in plan.streams.items():
                for layer, group in enumerate(groups):
                    into = file.create_group(f"{s}/{layer}")
                    for name, value in group.items():
                        keep = into.attrs if name in ("band_columns", "band_bits", "expected_loss") else into
                        keep[name] = value

    def test_summary(self):
        model, sequences, expected = golden("olmo2_gqa")
        changed = Model(GOLDEN / "olmo2_gqa")
        value = self.rng.standard_normal(16)
        for layer in range(2):
            changed.weights[f"model.layers.{layer}.self_attn.v_proj.weight"] *= 0
            changed.weights[f"model.layers.{layer}.self_attn.v_proj.bias"] = value

        found = cached_forward.summary(model, sequences, Plan("latent", 0, {"v": [constant(value)] * 2}))

        begin, loss, full_loss, kl = 0, [], [], []
        for tokens in sequences:
            full, ours = (np.exp(x) / np.exp(x).sum(1, keepdims=True)
                          for x in (expected["logits"][begin:begin + len(tokens)], changed.logits(tokens)))
            for i, token in enumerate(tokens[1:]):
                loss.append(-np.log(ours[i, token]))
                full_loss.append(-np.log(full[i, token]))
                kl.append((full[i] * np.log(full[i] / ours[i])).sum())
            begin += len(tokens)
        self.assertEqual(found["tokens"], 8 + 0 + 4 + 29)
        for name, values in (("loss", loss), ("full_loss", full_loss), ("kl", kl)):
            np.testing.assert_allclose(found[name], np.mean(values), rtol=1e-10)
        np.testing.assert_allclose(found["perplexity"], np.exp(np.mean(loss)), rtol=1e-10)

    def test_plans_of_each_algorithm(self):
        model = Model(GOLDEN / "olmo2_mha")
        fit, heldout = ([self.rng.integers(0, 64, 20) for _ in range(count)] for count in (12, 4))
        head_plans = [("headspan", "layer", 5), ("headspan", "causal", 3), ("paper-text", "", 2), ("paper-code", "", 6)]

        lossy = [calibrate(model, fit, heldout, stored=stored) for stored in (0.2, 0.3, 0.4)]
        heads = [calibrate(model, fit, heldout, algorithm, scope, stored=0.5, references=min(most, 5))
                 for algorithm, scope, most in head_plans]  # 6 are the limit of paper-code

        kl = [cached_forward.summary(model, heldout, plan)["kl"] for plan, _, _ in lossy]
        self.assertEqual(kl, sorted(kl, reverse=True))
        for stored, (plan, _, share) in zip((0.2, 0.3, 0.4), lossy):
            bits = sum(np.dot(g["band_columns"], g["band_bits"]) + 16 * len(g["band_bits"])
                       for groups in plan.streams.values() for g in groups)
            self.assertEqual(bits / (16 * 4 * 32), share)
            self.assertTrue(stored - 0.02 < share <= stored)
        for (algorithm, scope, most), (plan, expected_loss, share) in zip(head_plans, heads):
            groups = [group for layers in plan.streams.values() for group in layers]
            self.assertEqual(sum(len(g["kept"]) for g in groups) / 16, share)
            self.assertTrue(share == 0.5 if algorithm == "headspan" else abs(share - 0.5) <= 1 / 8)
            self.assertAlmostEqual(sum(sum(g["loss"]) for g in groups), expected_loss, places=12)
            self.assertTrue(all(len(own) == most for g in groups for own in g["references"]))
            behind = [layer - r // 4 for layers in plan.streams.values() for layer, g in enumerate(layers)
                      for r in g["references"][g["references"] >= 0]]
            self.assertTrue(set(behind) == {0} if scope == "layer" else set(behind) <= {0, 1})
            self.assertGreater(cached_forward.summary(model, heldout, plan)["kl"], kl[-1])

    def test_standard_error_of_equal_sequences_is_that_of_their_means(self):
        totals = self.rng.standard_normal(9)

        mean, error = cached_forward.ratio(totals, np.full(9, 4.0))

        np.testing.assert_allclose([mean, error], [totals.mean() / 4, totals.std(ddof=1) / 3 / 4], rtol=1e-12)


if __name__ == "__main__":
    unittest.main()
