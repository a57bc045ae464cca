"""HeadspanCache in transformers against `headspan evaluate`: loss of a text in one chunk, greedy continuations token by token, and
the bytes that are held. Exit code 77 if a package is missing.

usage: test_cache_models.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import importlib.util
import io
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
from program import GOLDEN, StudyTest, main
from samples import predictable_ids

missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing; bash tests/analysis/harness.sh runs this test in an environment of its own")
    sys.exit(77)
import torch  # noqa: E402
import transformers  # noqa: E402

from headspan_cache import HeadspanCache  # noqa: E402
from headspan_capture.model import KeepDouble  # noqa: E402

LENGTH, TOKENS, EOS = 40, 2000, 63
PLANS = (("latent", {"stored": 0.2}), ("latent", {"stored": 0.5, "bits": 16}), ("latent", {"stored": 0.3, "streams": "v"}),
         ("headspan", {"stored": 0.5, "references": 2, "scope": "causal"}), ("latent", {"stored": 0.3}), ("quantise", {"bits": 4}),
         ("hadamard", {"bits": 3}),
         ("rotated-q4", {}), ("rotated-q8", {}), ("oscar", {}))


class PlainCache(HeadspanCache):
    """The cache without KeepDouble, which lets the model compute in float64 throughout."""

    def update(self, *args, **kwargs):
        with torch._C.DisableTorchFunction():
            return super().update(*args, **kwargs)


def widths_with_gain(path):
    """Returns the bits of the bands that share a gain."""
    with h5py.File(path) as plan:
        groups = [group for stream in "kv" if stream in plan for group in plan[stream].values()]
        return {int(bits) for group in groups if group.attrs.get("band_coding") == b"gain"
                for columns, bits in zip(group.attrs["band_columns"], group.attrs["band_bits"]) if columns > 0}


class CacheModels(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(4)
        cls.tokens = cls.write_tokens("fit.bin", predictable_ids(rng, TOKENS, EOS))
        cls.ids = rng.integers(3, EOS, LENGTH)  # none ends a document
        cls.text = cls.write_tokens("text.bin", cls.ids)

    def command(self, command, model, **more):
        keys = {"model.path": model, "model.dtype": "float64", "tokens.eos": EOS, "tokens.sequence_length": LENGTH,
                "tokens.limit": TOKENS, **{key.replace("__", "."): value for key, value in more.items()}}
        run = self.run_program(1, command, *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def calibrate(self, model, algorithm, rule):
        plan = self.folder / f"{Path(model).name}-{algorithm}-{len(list(self.folder.iterdir()))}.h5"
        self.command("calibrate", model, tokens__path=self.tokens, tokens__heldout=0, compress__plan=plan, compress__exact_first=3,
                     compress__algorithm=algorithm, **{f"compress__{key}": value for key, value in rule.items()})
        return plan

    def evaluate(self, model, plan, cache="simulated"):
        """Returns the loss of the text and the greedy continuation of its first 15 tokens."""
        (self.folder / "greedy.jsonl").write_text(json.dumps({"id": 1, "context": self.ids[:15].tolist(), "max_new_tokens": 12}))
        answers = self.folder / f"answers{len(list(self.folder.iterdir()))}.jsonl"
        self.command("evaluate", model, evaluate__plan=plan, evaluate__cache=cache, evaluate__texts=self.text,
                     evaluate__generate=self.folder / "greedy.jsonl", evaluate__answers=answers,
                     evaluate__summary=self.folder / "summary.json")
        found = json.loads((self.folder / "summary.json").read_text())["texts"]["text"]
        return found["loss"], json.loads(answers.read_text())["tokens"]

    def compare(self, name, algorithm, rule):
        folder = GOLDEN / name
        plan = self.calibrate(folder, algorithm, rule)
        loss, continued = self.evaluate(folder, plan)
        ids = torch.tensor(self.ids[None])
        with torch.no_grad(), KeepDouble():
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
            cache = PlainCache.from_plan(plan)
            logits = model(ids, past_key_values=cache, use_cache=True).logits[0]
            rows = torch.log_softmax(logits[:-1], -1)
            ours = -rows[torch.arange(LENGTH - 1), ids[0, 1:]].mean().item()
            found = model.generate(ids[:, :15], past_key_values=PlainCache.from_plan(plan), max_new_tokens=12, do_sample=False,
                                   eos_token_id=None, pad_token_id=0)[0, 15:].tolist()
            full = -torch.log_softmax(model(ids).logits[0][:-1], -1)[torch.arange(LENGTH - 1), ids[0, 1:]].mean().item()
        self.assertAlmostEqual(ours / loss, 1, 9)
        self.assertGreater(abs(full - loss), 1e-7, "the plan does nothing")
        self.assertEqual(found, continued)
        self.assertEqual(cache.get_seq_length(), LENGTH)
        return plan, cache

    def test_losses_and_continuations_are_those_of_evaluate(self):
        widths = set()
        for number, (algorithm, rule) in enumerate(PLANS):
            name = ("olmo2_gqa", "llama_gqa", "qwen3", "gpt_neox", "gemma3")[number % 5]
            with self.subTest(model=name, algorithm=algorithm, **rule):
                plan, _ = self.compare(name, algorithm, rule)
                widths |= widths_with_gain(plan)
        self.assertLessEqual({1, 7, 8}, widths)

    def test_the_example_of_the_page(self):
        page = (Path(__file__).resolve().parents[2] / "analysis/README.md").read_text()
        code = re.search(r"<!-- run by: tests/analysis/test_cache_models.py -->\n```python\n(.*?)```\n", page, re.S).group(1)
        plan, told = self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25}), io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(code, {"path": GOLDEN / "llama_gqa", "plan": plan, "prompt": torch.tensor(self.ids[None, :8])})
        self.assertRegex(told.getvalue(), r"^\[\d+(, \d+){8,27}\] \d+\n$")

    def test_bytes_are_those_of_the_plan(self):
        plan = self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25})
        cache = HeadspanCache.from_plan(plan)
        with h5py.File(plan) as file:
            stored, full = float(file.attrs["bytes_stored"]), float(file.attrs["bytes_full"])
            heads, d, layers = (int(file.attrs[name]) for name in ("kv_heads", "head_size", "layers"))
        for tokens in (5, 20):
            for layer in range(layers):
                x = torch.randn(2, heads, tokens, d, dtype=torch.bfloat16)
                k, _ = cache.update(x, x, layer)
                self.assertEqual(k.dtype, torch.bfloat16)
        self.assertEqual(cache.nbytes, 2 * (22 * stored + 3 * full))

    def test_a_text_in_single_tokens_is_that_in_one_chunk(self):
        folder, plan = GOLDEN / "llama_gqa", self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25})  # odd bytes a token
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        ids = torch.tensor(self.ids[None, :12])
        with torch.no_grad():
            whole = model(ids, past_key_values=HeadspanCache.from_plan(plan)).logits
            cache = HeadspanCache.from_plan(plan)
            single = torch.cat([model(ids[:, i:i + 1], past_key_values=cache).logits for i in range(12)], 1)
        torch.testing.assert_close(single, whole, atol=1e-10, rtol=0)

    def test_sequences_are_repeated_selected_and_cut(self):
        plan = self.calibrate(GOLDEN / "olmo2_gqa", "latent", {"stored": 0.3})
        folder = GOLDEN / "olmo2_gqa"
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        ids = torch.tensor(np.stack([self.ids[:20], self.ids[20:]]))
        with torch.no_grad():
            cache = HeadspanCache.from_plan(plan)
            model(ids, past_key_values=cache)
            cache.crop(-5)
            again = model(ids[:, 15:], past_key_values=cache).logits
            whole = model(ids, past_key_values=HeadspanCache.from_plan(plan)).logits[:, 15:]
            torch.testing.assert_close(again, whole, atol=1e-10, rtol=0)
            cache.batch_select_indices(torch.tensor([1, 0, 1]))
            swapped = model(ids[[1, 0, 1], :3], past_key_values=cache).logits
            self.assertEqual(swapped.shape[0], 3)
            torch.testing.assert_close(swapped[0], swapped[2], atol=1e-12, rtol=0)
            beams = model.generate(ids, past_key_values=HeadspanCache.from_plan(plan), num_beams=3, max_new_tokens=4,
                                   do_sample=False, eos_token_id=None, pad_token_id=0)
            self.assertEqual(beams.shape, (2, 24))

    def test_what_does_not_fit_is_refused(self):
        plan = self.calibrate(GOLDEN / "llama_gqa", "kivi", {})
        with self.assertRaisesRegex(ValueError, "kivi, which quantises tokens in groups"):
            HeadspanCache.from_plan(plan)
        with self.assertRaisesRegex(ValueError, "has no .done file"):
            HeadspanCache.from_plan(self.text)
        cache = HeadspanCache.from_plan(self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.3}))
        with self.assertRaisesRegex(ValueError, "heads of"):
            cache.update(torch.zeros(1, 7, 2, 4), torch.zeros(1, 7, 2, 4), 0)


if __name__ == "__main__":
    main()
