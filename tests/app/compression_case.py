"""What tests of calibrate and evaluate share: tokens to fit on, a text, and the two commands."""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import Model
from program import GOLDEN, StudyTest
from samples import predictable_ids

LENGTH, TOKENS, EOS = 40, 2000, 63


class CompressionTest(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(4)
        ids = predictable_ids(rng, TOKENS, EOS)
        cls.fit = np.split(ids, range(LENGTH, TOKENS, LENGTH))
        cls.tokens = cls.write_tokens("fit.bin", ids)
        cls.text = cls.write_tokens("text.bin", text := rng.integers(0, EOS, 7 * LENGTH - 12))
        (cls.folder / "text.json").write_text(json.dumps({"text_bytes": 1000}))
        cls.sequences = np.split(text, range(LENGTH, len(text), LENGTH))

    def run_command(self, ranks, command, keys, code=0):
        run = self.run_program(ranks, command, *(f"--{key}={value}" for key, value in keys.items() if value != ""))
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def calibrate(self, ranks, model, name, **more):
        plan = self.folder / f"{name}.plan.h5"
        keys = {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.path": self.tokens, "tokens.eos": EOS,
                "tokens.sequence_length": LENGTH, "tokens.limit": TOKENS, "tokens.heldout": 0, "compress.plan": plan,
                "compress.effort": "quick",
                **{f"{'' if '.' in key else 'compress.'}{key}": value for key, value in more.items()}}
        self.run_command(ranks, "calibrate", keys)
        return plan

    def evaluate(self, ranks, model, name, **more):
        summary = self.folder / f"{name}.summary.json"
        keys = {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.eos": EOS,
                "tokens.sequence_length": LENGTH, "tokens.limit": TOKENS, "evaluate.summary": summary,
                **{f"{'' if '.' in key else 'evaluate.'}{key}": value for key, value in more.items()}}
        self.run_command(ranks, "evaluate", keys)
        return json.loads(summary.read_text())

    @staticmethod
    def ends(model):
        """Returns the ids behind which a document begins in a golden model's cache."""
        return {EOS, Model(GOLDEN / model).config.get("eos_token_id", EOS)}
