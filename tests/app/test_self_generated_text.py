"""calibrate with compress.own_text, through the program, against numpy: text that is sampled from the model with numbers of
SplitMix64 is added to the tokens that the plan is made from.

usage: test_self_generated_text.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import cached_forward
import latents
from forward import Model, cut
from moments import moments
from program import GOLDEN, StudyTest, main
from samples import predictable_ids
from splitmix64 import splitmix64

LENGTH, TOKENS, EOS, SEED, BATCH = 24, 600, 63, 5, 16


def generate(model, first, count, seed):
    """Sequences of `count` tokens in total."""
    sequences, left = [], count
    while left > 0:
        batch = min(BATCH, left)
        length = min(LENGTH, -(-left // batch))
        for s in range(len(sequences), len(sequences) + batch):
            tokens = []
            while len(tokens) < length and tokens[-1:] != [EOS]:
                logits = model.logits([first, *tokens])[-1]
                weights = np.exp(logits - logits.max())
                uniform = (splitmix64(seed, (s << 32) + len(tokens)) >> 11) / 2**53
                tokens.append(int((np.cumsum(weights / weights.sum()) <= uniform).sum()))
            if tokens[:left]:
                sequences.append(np.array(tokens[:left]))
                left -= len(sequences[-1])
    return sequences


class OwnText(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = predictable_ids(np.random.default_rng(4), TOKENS, EOS)
        cls.tokens = cls.write_tokens("fit.bin", cls.ids)

    def calibrate(self, ranks, model, own_text, **more):
        plan = self.folder / f"{model}-{ranks}-{own_text}.h5"
        keys = {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.path": self.tokens, "tokens.eos": EOS,
                "tokens.sequence_length": LENGTH, "tokens.heldout": 0, "tokens.seed": SEED, "compress.plan": plan,
                "compress.bits": 16, "compress.stored": 0.5, "compress.own_text": own_text, "compress.effort": "quick",
                **{key.replace("__", "."): value for key, value in more.items()}}
        run = self.run_program(ranks, "calibrate", *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return cached_forward.read_plan(plan)

    def assert_calibrated_on(self, plan, model, sequences):
        blocks = latents.blocks_of(moments(model, sequences, 4), "kv")
        for number, block in enumerate(blocks):
            found = plan.streams["kv"[number // model.layers]][number % model.layers]["eigenvalues"]
            np.testing.assert_allclose(found, block.eigenvalues, rtol=1e-7, atol=1e-12 * block.eigenvalues[0])

    def test_text_of_the_model_joins_the_users(self):
        text = [self.ids[start:start + count] for start, count in cut(self.ids, [EOS], LENGTH, TOKENS)]
        for name, ranks, own_text, more in (("llama_gqa", 3, 500, {}), ("olmo2_mha", 2, 37, {"run__tensor_parallel": 2})):
            with self.subTest(model=name, ranks=ranks):
                model = Model(GOLDEN / name)
                first = json.loads((GOLDEN / name / "config.json").read_text()).get("bos_token_id")
                generated = generate(model, EOS if first is None else first, own_text, SEED)
                self.assertEqual(sum(map(len, generated)), own_text)
                self.assertGreater(len({len(tokens) for tokens in generated}), 1, "an end of text was drawn")
                self.assert_calibrated_on(self.calibrate(ranks, name, own_text, **more), model, text + generated)

    def assert_refused(self, message, **keys):
        keys = {"compress.plan": self.folder / "none.h5", "compress.own_text": 9,
                **{key.replace("__", "."): value for key, value in keys.items()}}
        run = self.run_program(2, "calibrate", *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        lines = [line for line in run.stderr.splitlines() if line.startswith("headspan: ")]
        self.assertEqual(len(lines), 1, run.stderr)
        self.assertIn(message, lines[0])

    def test_nothing_to_begin_with(self):
        folder = shutil.copytree(GOLDEN / "llama_gqa", self.folder / "endless")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": None, "eos_token_id": None}))
        self.assert_refused("config.json: bos_token_id, eos_token_id: are missing", model__path=folder,
                            tokens__path=self.tokens)
        self.assert_refused("bos_token_id, eos_token_id = 70000: is not an id of a vocabulary of 64", model__path=folder,
                            tokens__path=self.tokens, tokens__eos=70000)

    def test_nothing_to_calibrate_on_it(self):
        prefix = "compress.own_text = 9: "
        self.assert_refused(prefix + "runs the model", grams__paths=self.tokens)
        self.assert_refused(prefix + "calibrates", model__path=GOLDEN / "llama_gqa", tokens__path=self.tokens,
                            compress__algorithm="quantise", compress__bits=4)


if __name__ == "__main__":
    main()
