"""What query heads attend to (attention.scores), against the attention weights of a forward pass in numpy.

usage: test_attention_scores.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import Model, cut
from program import GOLDEN, TINY_OLMO2, StudyTest, main
from splitmix64 import splitmix64

NAMES = ("induction", "duplicate_token", "previous_token", "first_token", "entropy")
TEXTS, PERIOD, SAMPLE, LONGEST = 16, 50, 2048, 512


def repeated_texts(config, seed):
    """Returns texts of random tokens that come twice, by the rule of analysis/README.md, and how many come twice."""
    special = {config.get("bos_token_id"), config.get("pad_token_id"), config["eos_token_id"]}
    vocabulary = config["vocab_size"]
    period = min(PERIOD, (config["max_position_embeddings"] - 1) // 2, (vocabulary - 3) // 2)
    texts, number = [], 0
    for _ in range(TEXTS):
        drawn = []
        while len(drawn) < period:
            token = splitmix64(seed, number) % vocabulary
            number += 1
            if token not in special and token not in drawn:
                drawn.append(token)
        begin = [] if config.get("bos_token_id") is None else [config["bos_token_id"]]
        texts.append(begin + drawn + drawn)
    return texts, period


def sample_texts(ids, sequences):
    texts = []
    for start, length in sequences:
        if sum(map(len, texts)) < SAMPLE and length > 1:
            texts.append(ids[start:start + min(length, LONGEST)])
    return texts


def weights_of(model, text):
    """Returns the attention weights: [layers * query heads, query, key]."""
    captured = model.capture(text)
    layers = [x.reshape(len(text), model.layers, -1, model.d) for x in (captured["q"], captured["k"])]
    return np.concatenate([model.attention_weights(*(x[:, i] for x in layers)) for i in range(model.layers)])


def scores_of(model, ids, sequences, seed):
    """Returns {name: [layers * query heads]}, and the same of uniform weights: {name: number}."""
    means, uniform = {name: [] for name in NAMES}, {name: [] for name in NAMES}
    repeated, period = repeated_texts(model.config, seed)
    for text in repeated:
        weights, query = weights_of(model, text), np.arange(len(text) - period, len(text))
        for name, back in (("induction", period - 1), ("duplicate_token", period)):
            means[name].append(weights[:, query, query - back])
            uniform[name] += list(1 / (query + 1))
    for text in sample_texts(ids, sequences):
        weights, query = weights_of(model, text), np.arange(1, len(text))
        means["previous_token"].append(weights[:, query, query - 1])
        means["first_token"].append(weights[:, query, 0])
        means["entropy"].append(-(weights * np.log(np.maximum(weights, 1e-300))).sum(2)[:, 1:])
        uniform["previous_token"] += list(1 / (query + 1))
        uniform["entropy"] += list(np.log(query + 1))
    uniform["first_token"] = uniform["previous_token"]
    return ({name: np.concatenate(values, 1).mean(1) for name, values in means.items()},
            {name: np.mean(values) for name, values in uniform.items()})


class AttentionScores(StudyTest):
    def assert_scores(self, path, model, ids, sequences, seed, tolerance):
        expected, uniform = scores_of(model, ids, sequences, seed)
        with h5py.File(path) as file:
            group = file["attention"]
            self.assertEqual({"query_head", "layer", "head", *NAMES}, set(group))
            np.testing.assert_array_equal(group["layer"][:], np.repeat(np.arange(model.layers), model.heads))
            np.testing.assert_array_equal(group["head"][:], np.tile(np.arange(model.heads), model.layers))
            for name in NAMES:
                np.testing.assert_allclose(group[name][:], expected[name], rtol=0, atol=tolerance, err_msg=name)
                self.assertAlmostEqual(group[name].attrs["uniform"], uniform[name], delta=1e-12)

    def test_are_those_of_numpy_on_every_layout(self):
        ids = np.random.default_rng(8).integers(0, 64, 3000)
        tokens = self.write_tokens("ids.bin", ids)
        for name, ranks, more in (("olmo2_gqa", 1, {"tokens.seed": 5}), ("llama_gqa", 2, {"run.tensor_parallel": 2}),
                                  ("qwen3", 3, {"run.batch_tokens": 1}), ("falcon3", 4, {"run.tensor_parallel": 2})):
            with self.subTest(model=name, ranks=ranks):
                keys = {"model.path": GOLDEN / name, "model.dtype": "float64", "tokens.path": tokens,
                        "tokens.sequence_length": 70, "predict.streams": "v", "attention.scores": "true", **more}

                result, = self.study(ranks, name, keys)

                model = Model(GOLDEN / name)
                self.assert_scores(result, model, ids, cut(list(ids), [2], 70, len(ids)), more.get("tokens.seed", 0), 1e-10)

    def test_of_long_sequences_the_beginning_counts(self):
        ids = np.random.default_rng(9).integers(3, 64, 1300)
        model = Model(GOLDEN / "olmo2_mha")
        keys = {"model.path": GOLDEN / "olmo2_mha", "model.dtype": "float32", "tokens.path": self.write_tokens("long.bin", ids),
                "tokens.sequence_length": 600, "predict.streams": "v", "attention.scores": "true"}

        result, = self.study(1, "long", keys)

        self.assert_scores(result, model, ids, [(0, 600), (600, 600), (1200, 100)], 0, 1e-5)

    def test_rise_in_training(self):
        """Heads of random weights attend uniformly on average, some trained heads do not."""
        keys = {"model.path": TINY_OLMO2 / "step3000", "model.init": "pretrained,random", "predict.streams": "v",
                "tokens.path": TINY_OLMO2 / "tokens" / "prose.fit.bin", "tokens.limit": 3000, "attention.scores": "true"}

        random, trained = self.study(1, "init", keys)

        with h5py.File(random) as file:
            group = file["attention"]
            uniform = {name: group[name].attrs["uniform"] for name in NAMES}
            for name in NAMES:
                self.assertLess(abs(group[name][:].mean() / uniform[name] - 1), 0.2, name)
        with h5py.File(trained) as file:
            self.assertGreater(file["attention/previous_token"][:].max(), 10 * uniform["previous_token"])


if __name__ == "__main__":
    main()
