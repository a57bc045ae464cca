"""Moments, latents and quantisers in numpy against closed forms, brute force, and the output of transformers for small
models."""
import json
import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import latents
from forward import TYPES
from moments import moments
from samples import GOLDEN, golden, structured

MODELS = sorted(file.parent.name for file in GOLDEN.glob("*/config.json")
                if json.loads(file.read_text())["model_type"] in TYPES)
FIRST = 2


class MomentsTest(unittest.TestCase):
    def test_logits_are_those_of_transformers(self):
        for name in MODELS:
            model, sequences, expected = golden(name)

            ours = np.concatenate([model.logits(tokens) for tokens in sequences])

            self.assertLess(np.abs(ours - expected["logits"]).max(), 1e-12 * np.abs(ours).max(), name)

    def test_metrics_are_relative_squared_changes_of_the_output(self):
        for name in ("olmo2_gqa", "llama_gqa", "falcon3"):
            model, sequences, expected = golden(name)
            at = np.concatenate([np.arange(len(tokens)) for tokens in sequences])

            found = moments(model, sequences, FIRST)

            q, k, v = (expected[point][at >= FIRST] for point in ("q.roped.0", "k.roped.0", "v.proj.0"))
            np.testing.assert_allclose(found.output[0], self.first_weight(model, sequences, expected, at), rtol=1e-12)
            self.check_layer(model, found, *(x - shift for x, shift in ((q, 0), (k, k.mean(0)), (v, v.mean(0)))))

    def first_weight(self, model, sequences, expected, at):
        """Returns w of layer 0 from the activations of transformers and the embedding."""
        ends = np.cumsum([len(tokens) for tokens in sequences])[:-1]
        parts = zip(*(np.split(expected[point], ends) for point in ("q.roped.0", "k.roped.0", "v.proj.0")))
        measure = model.linear(np.concatenate([model.attend(*qkv) for qkv in parts]), "model.layers.0.self_attn.o_proj")
        if model.config["model_type"] != "olmo2":
            measure = measure + model.weights["model.embed_tokens.weight"][np.concatenate(sequences)]
        return np.mean(1 / ((measure**2).mean(1) + model.config["rms_norm_eps"])[at >= FIRST])

    def check_layer(self, model, found, q, k, v):
        """q, centred k and v of layer 0. The change by each query head alone; for keys, of all queries and keys."""
        weight = model.weights["model.layers.0.self_attn.o_proj.weight"].reshape(-1, model.heads, model.d)
        gain = model.weights["model.layers.0.post_attention_layernorm.weight"] if model.norm_after else 1
        change = {"k": np.zeros(model.kv_heads), "v": np.zeros(model.kv_heads)}
        for h in range(model.heads):
            t = h // (model.heads // model.kv_heads)
            own = found.output[0] * np.mean((gain * (v[:, t] @ weight[:, h].T)) ** 2)
            change["v"][t] += own
            change["k"][t] += own * np.mean((q[:, h] @ k[:, t].T) ** 2) / model.d
        for s in "kv":
            d = model.d
            ours = [np.trace(found.metric[s][0, t] @ found.covariance[s][t * d:(t + 1) * d, t * d:(t + 1) * d])
                    for t in range(model.kv_heads)]
            np.testing.assert_allclose(ours, change[s], rtol=1e-10)


class LatentsTest(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(3)
        self.z, self.streams = zip(*(structured(rng, 300, 1, 4, 3) for _ in range(3)))
        self.x = [z.reshape(len(z), -1) for z in self.z]
        self.blocks = [latents.block(s.mean, s.covariance, s.metric) for s in self.streams]

    def weighted_error(self, i, restored):
        error = (restored - self.x[i]).reshape(self.z[i].shape)
        return np.einsum("nhi,hij,nhj", error, self.streams[i].metric, error) / len(error)

    def test_eigenvalues_are_the_weighted_error_of_what_is_dropped(self):
        groups, expected_loss, share = latents.plan(self.blocks, 0.5, "16")

        errors = [self.weighted_error(i, latents.restore(x, groups[i])) for i, x in enumerate(self.x)]

        self.assertEqual(share, 0.5)
        np.testing.assert_allclose(errors, [g["expected_loss"] for g in groups], rtol=1e-9)
        np.testing.assert_allclose(sum(errors), expected_loss, rtol=1e-9)
        everything = np.sort(np.concatenate([b.eigenvalues for b in self.blocks]))
        np.testing.assert_allclose(expected_loss, everything[:18].sum(), rtol=1e-12)

    def test_all_latents_restore_and_none_leave_the_mean(self):
        for stored in (1, 0):
            groups, expected_loss, _ = latents.plan(self.blocks, stored, "16")
            total = sum(np.trace(s.metric[h] @ np.cov(z[:, h].T, ddof=0))
                        for z, s in zip(self.z, self.streams) for h in range(4))

            for x, group in zip(self.x, groups):
                np.testing.assert_allclose(latents.restore(x, group), x if stored else 0 * x + x.mean(0), atol=1e-10)
            np.testing.assert_allclose(expected_loss, (1 - stored) * total, rtol=1e-10)

    def test_bits_of_the_least_theta_within_the_budget(self):
        for stored in (0.1, 0.2, 0.27, 0.4, 0.55):
            groups, expected_loss, share = latents.plan(self.blocks, stored)

            for theta in np.geomspace(1e-5, 1e3, 2700):
                level = [np.log2(b.eigenvalues / theta) / 2 + 1 for b in self.blocks]
                bits = [np.max([np.where(own >= b, b, 0) for b in range(1, 9)], 0) for own in level]
                cost = sum(b.sum() + 16 * np.count_nonzero(np.unique(b)) for b in bits)
                if cost <= stored * 16 * 36:
                    break
            self.assertEqual(share, cost / (16 * 36))
            for group, own in zip(groups, bits):
                self.assertEqual(list(np.repeat(group["band_bits"], group["band_columns"])), list(own[own > 0]))
            lost = sum(np.minimum(b.eigenvalues, theta).sum() for b in self.blocks)
            np.testing.assert_allclose(expected_loss, lost, rtol=0.01)

    def test_each_band_is_quantised_on_its_own(self):
        groups, _, _ = latents.plan(self.blocks, 0, "2x8,3x4,1x16")

        for x, group in zip(self.x, groups):
            z, restored = ((rows - x.mean(0)) @ group["projection"] for rows in (x, latents.restore(x, group)))
            for own, bits in ((slice(0, 2), 8), (slice(2, 5), 4)):
                np.testing.assert_allclose(restored[:, own], latents.quantise_band(z[:, own], bits), atol=1e-9)
            np.testing.assert_allclose(restored[:, 5], z[:, 5], atol=1e-9)

    def test_band_quantiser(self):
        z = np.array([[3.0, -1.0, 0.9, -2.9], [0, 0, 0, 0], [1.5, 1.0, -1.0, 0.5]])

        two_bits = latents.quantise_band(z, 2)

        np.testing.assert_array_equal(two_bits, [[3, -1, 1, -3], [0, 0, 0, 0], [1.5, 0.5, -1.5, 0.5]])
        scale = float(np.float16(1 / 3.5))
        np.testing.assert_array_equal(latents.quantise_band(np.array([[-1.0, 0.3]]), 3), [[-3.5 * scale, 1.5 * scale]])
        for bits in (3, 8):
            step = np.float16(3 / (2 ** (bits - 1) - 0.5))
            self.assertLessEqual(np.abs(latents.quantise_band(z[:1], bits) - z[:1]).max(), step / 2 * 1.001)

    def test_group_quantiser(self):
        x = np.array([[1.0, 8.0, 4.4, 4.6, -7.0, 0.0, -3.6, 7.0]])

        np.testing.assert_array_equal(latents.quantise(x, [4, 4], 3), [[1, 8, 4, 5, -7, 1, -3, 7]])
        low, step = np.float16(0.1), np.float16(2.6 / 7)
        np.testing.assert_array_equal(latents.quantise(np.array([[0.1, 2.7, 1.3]]), [3], 3),
                                      np.array([[0, 7, 3]]) * float(step) + float(low))
        self.assertEqual(latents.quantise_groups(5, 32), [64, 64, 32])
        self.assertEqual(latents.quantise_groups(2, 128), [128, 128])


if __name__ == "__main__":
    unittest.main()
