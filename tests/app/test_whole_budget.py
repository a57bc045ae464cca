"""What compress.stored leaves a plan: everything changes nothing, from the tokens to the summary, on any number of ranks; a
decimal share stores all the columns that it is of them, also where its double is below the decimal.

usage: test_whole_budget.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import sys
from pathlib import Path

import h5py
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

    def test_a_decimal_share_stores_every_column_of_it(self):
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({
            "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 50, "intermediate_size": 64,
            "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 10, "vocab_size": 64,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "initializer_range": 0.2,
            "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": EOS}))
        tokens = self.write_tokens("ids.bin", np.random.default_rng(7).integers(0, EOS, TOKENS))
        self.study(1, "grams", {"model.path": model, "model.init": "random", "tokens.path": tokens,
                                "tokens.sequence_length": LENGTH, "predict.streams": "k,v", "overlap.enabled": "false",
                                "output.save_gram": "true"})
        gram, = (self.folder / "grams").rglob("*.gram.h5")
        plan = self.folder / "decimal.plan.h5"
        for share, columns in (("0.29", 29), ("0.295", 29)):  # of 2 streams of 50 columns
            with self.subTest(share=share):
                run = self.run_program(1, "calibrate", f"--grams.paths={gram}", "--compress.exact_first=0",
                                       "--compress.algorithm=latent", "--compress.bits=16", f"--compress.stored={share}",
                                       f"--compress.plan={plan}")
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                with h5py.File(plan) as file:
                    stored = sum(file[stream]["0"].attrs["band_columns"].sum() for stream in "kv")
                self.assertEqual(stored, columns)
                plan.unlink()


if __name__ == "__main__":
    main()
