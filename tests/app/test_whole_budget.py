"""A plan that may store everything changes nothing, from the tokens to the summary, on any number of ranks.

usage: test_whole_budget.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

LENGTH, TOKENS, EOS = 40, 1200, 63


class WholeBudget(StudyTest):
    def command(self, ranks, command, model, **keys):
        shared = {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.eos": EOS,
                  "tokens.sequence_length": LENGTH, "tokens.limit": TOKENS}
        run = self.run_program(ranks, command, *(f"--{key}={value}" for key, value in {**shared, **keys}.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_stored_1_is_the_full_cache(self):
        ids = np.random.default_rng(6).integers(0, EOS, TOKENS)
        fit, text = self.write_tokens("fit.bin", ids), self.write_tokens("text.bin", ids[:5 * LENGTH])
        cases = (("olmo2_gqa", 1, {"algorithm": "latent", "bits": 16}), ("qwen3", 3, {"algorithm": "latent", "bits": 16}),
                 ("llama_gqa", 2, {"algorithm": "headspan", "scope": "layer"}),
                 ("olmo2_mha", 2, {"algorithm": "headspan", "scope": "causal"}),
                 ("olmo2_mha", 1, {"algorithm": "paper-text"}))
        for number, (model, ranks, rule) in enumerate(cases):
            for cache in ("compressed", "simulated"):
                with self.subTest(model=model, cache=cache, **rule):
                    plan, summary = (self.folder / f"{number}.{cache}.{end}" for end in ("plan.h5", "json"))
                    self.command(ranks, "calibrate", model, **{"tokens.path": fit, "compress.plan": plan,
                                 "compress.stored": 1, **{f"compress.{key}": value for key, value in rule.items()}})
                    self.command(ranks, "evaluate", model, **{"evaluate.plan": plan, "evaluate.texts": text,
                                 "evaluate.cache": cache, "evaluate.summary": summary})
                    found = json.loads(summary.read_text())["texts"]["text"]
                    self.assertLess(abs(found["kl"]), 1e-9)  # maps are float32: latents are reconstructed to 1e-7
                    self.assertLess(abs(found["dloss"]), 1e-6)


if __name__ == "__main__":
    main()
