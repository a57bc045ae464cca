"""HeadspanCache in transformers against `headspan evaluate`: loss of a text in one chunk, probabilities of tokens at each
position, greedy continuations token by token; and the bytes that are held. Exit code 77 if a package is missing.

usage: test_cache_models.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import importlib.util
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
from cached_forward import logits as reference_logits
from cached_forward import read_plan
from forward import Model
from program import GOLDEN, TINY_OLMO2, StudyTest, main
from samples import predictable_ids

missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing; bash tests/analysis/harness.sh runs this test in an environment of its own")
    sys.exit(77)
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from headspan_cache import HeadspanCache  # noqa: E402
from headspan_capture.model import KeepDouble  # noqa: E402

SMOLLM2 = TINY_OLMO2.parent / "smollm2"
LENGTH, PROMPT, TOKENS, EOS = 40, 15, 2000, 63
PLANS = (("olmo2_gqa", "latent", {"stored": 0.2}), ("llama_gqa", "latent", {"stored": 0.5, "bits": 16}),
         ("qwen3", "latent", {"stored": 0.3, "streams": "v"}),
         ("gpt_neox", "headspan", {"stored": 0.5, "references": 2, "scope": "causal"}), ("gemma3", "latent", {"stored": 0.3}),
         ("olmo2_gqa", "quantise", {"bits": 4}), ("llama_gqa", "hadamard", {"bits": 3}), ("qwen3", "rotated-q4", {}),
         ("gpt_neox", "rotated-q8", {}), ("gemma3", "oscar", {}), ("llama_gqa", "oscar", {"streams": "k"}),
         ("olmo2_mha", "paper-text", {"stored": 0.6, "references": 2}), ("olmo2_mha", "paper-code", {"stored": 0.6}))


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


def text_without(ends, path, length):
    """Returns the first `length` ids of a token file of which none ends a document."""
    ids = np.fromfile(path, "<u2").astype(int)
    begin = next(i for i in range(len(ids)) if not ends & set(ids[i:i + length]))
    return ids[begin:begin + length]


class CacheModels(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(4)
        cls.tokens = cls.write_tokens("fit.bin", predictable_ids(rng, TOKENS, EOS))
        cls.ids = rng.integers(3, EOS, LENGTH)  # none ends a document
        cls.plans = {}

    def command(self, command, model, eos, **more):
        keys = {"model.path": model, "model.dtype": "float64", "tokens.eos": eos, "tokens.sequence_length": LENGTH,
                "tokens.limit": TOKENS, **{key.replace("__", "."): value for key, value in more.items()}}
        run = self.run_program(1, command, *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def calibrate(self, model, algorithm, rule, tokens=None, eos=EOS):
        """Returns the plan, which is made once."""
        key = f"{model} {algorithm} {rule}"
        if key not in self.plans:
            plan = self.folder / f"{Path(model).name}-{algorithm}-{len(self.plans)}.h5"
            self.command("calibrate", model, eos, tokens__path=tokens or self.tokens, tokens__heldout=0, compress__plan=plan,
                         compress__exact_first=3, compress__algorithm=algorithm,
                         **{f"compress__{name}": value for name, value in rule.items()})
            self.plans[key] = plan
        return self.plans[key]

    def evaluate(self, model, plan, ids, choices, eos):
        """Returns what the program computes with the cache simulated: the loss of the ids as a text, the logarithm of the
        probability of each of choices[i] behind ids[:i + 1], and the greedy continuation of the first PROMPT ids."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        text = self.write_tokens(folder / "text.bin", ids)
        requests = [{"id": i, "context": ids[:i + 1].tolist(), "continuation": [int(token)]}
                    for i, row in enumerate(choices) for token in row]
        (folder / "scored.jsonl").write_text("\n".join(map(json.dumps, requests)))
        (folder / "greedy.jsonl").write_text(json.dumps({"id": 1, "context": ids[:PROMPT].tolist(), "max_new_tokens": 12}))
        self.command("evaluate", model, eos, evaluate__plan=plan, evaluate__cache="simulated", evaluate__texts=text,
                     evaluate__requests=folder / "scored.jsonl", evaluate__generate=folder / "greedy.jsonl",
                     evaluate__answers=folder / "answers.jsonl", evaluate__summary=folder / "summary.json")
        *scored, continued = map(json.loads, (folder / "answers.jsonl").read_text().splitlines())
        rows = np.reshape([answer["loglikelihood"] for answer in scored], np.shape(choices))
        return json.loads((folder / "summary.json").read_text())["texts"]["text"]["loss"], rows, continued["tokens"]

    def compare(self, folder, plan, ids, choices, eos=EOS):
        """Returns the logits behind each of the ids."""
        loss, scored, continued = self.evaluate(folder, plan, ids, choices, eos)
        batch, positions = torch.tensor(ids[None]), np.arange(len(ids) - 1)
        with torch.no_grad(), KeepDouble():
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
            cache = PlainCache.from_plan(plan)
            logits = model(batch, past_key_values=cache, use_cache=True).logits[0]
            ours, full = (torch.log_softmax(x[:-1], -1).numpy() for x in (logits, model(batch).logits[0]))
            found = model.generate(batch[:, :PROMPT], past_key_values=PlainCache.from_plan(plan), max_new_tokens=12, do_sample=False,
                                   eos_token_id=None, pad_token_id=0)[0, PROMPT:].tolist()
        self.assertGreater(np.abs(full - ours).max(), 1e-4, "the plan does nothing")
        self.assertAlmostEqual(-ours[positions, ids[1:]].mean() / loss, 1, 9)
        np.testing.assert_allclose(ours[positions[:, None], choices], scored, atol=1e-9, rtol=0)
        self.assertEqual(found, continued)
        self.assertEqual(cache.get_seq_length(), len(ids))
        return logits

    def test_all_probabilities_and_continuations_are_those_of_evaluate(self):
        widths = set()
        every = np.tile(np.arange(64), (LENGTH - 1, 1))
        for name, algorithm, rule in PLANS:
            with self.subTest(model=name, algorithm=algorithm, **rule):
                plan = self.calibrate(GOLDEN / name, algorithm, rule)
                self.compare(GOLDEN / name, plan, self.ids, every)
                widths |= widths_with_gain(plan)
        self.assertLessEqual({1, 7, 8}, widths)

    def compare_trained(self, folder, tokens, vocabulary, length, count, plans):
        """Compares the logits of all tokens with the reference, and with the program the probabilities of `count` at each
        position: of the text's next token and of random ones."""
        ends = {0, json.loads((folder / "config.json").read_text())["eos_token_id"]}
        ids = text_without(ends, tokens / "docs.heldout.bin", length)
        drawn = np.random.default_rng(5).integers(0, vocabulary, (length - 1, count - 1))
        choices = np.column_stack([ids[1:], drawn])
        for algorithm, rule in plans:
            with self.subTest(algorithm=algorithm, **rule):
                plan = self.calibrate(folder, algorithm, {"effort": "quick", **rule}, tokens / "docs.fit.bin", eos=0)
                logits = self.compare(folder, plan, ids, choices, eos=0)
                np.testing.assert_allclose(logits, reference_logits(Model(folder), ids, read_plan(plan)), atol=1e-9, rtol=0)

    def test_logits_of_tiny_olmo2(self):
        self.compare_trained(TINY_OLMO2 / "step3000", TINY_OLMO2 / "tokens", 2048, LENGTH, 8,
                             (("latent", {"stored": 0.25}), ("headspan", {"stored": 0.5, "scope": "causal"}), ("oscar", {})))

    @unittest.skipUnless((SMOLLM2 / "model/model.safetensors").exists(), "checkpoints/smollm2/fetch.sh fetches the model")
    def test_logits_of_smollm2(self):
        self.compare_trained(SMOLLM2 / "model", SMOLLM2 / "tokens", 49152, 17, 2, (("latent", {"stored": 0.25}),))

    def test_the_example_of_the_page(self):
        page = (Path(__file__).resolve().parents[2] / "analysis/README.md").read_text()
        code = re.search(r"<!-- run by: tests/analysis/test_cache_models.py -->\n```python\n(.*?)```\n", page, re.S).group(1)
        plan, told = self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25}), io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(code, {"path": GOLDEN / "llama_gqa", "plan": plan, "prompt": torch.tensor(self.ids[None, :8])})
        self.assertRegex(told.getvalue(), r"^\[\d+(, \d+){8,27}\] \d+\n$")

    def test_a_pipeline_writes_what_generate_does(self):
        folder, plan = GOLDEN / "llama_gqa", self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25})
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        rule = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        own, passed = HeadspanCache.from_plan(plan), HeadspanCache.from_plan(plan)
        tokens = model.generate(torch.tensor(self.ids[None, :PROMPT]), past_key_values=own, **rule)[0].tolist()
        write = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
        text = " ".join(f"w{i}" for i in self.ids[:PROMPT])
        written = write(text, past_key_values=passed, **rule)[0]["generated_text"]
        self.assertEqual(written.replace(" ", ""), "".join(f"w{i}" for i in tokens))  # no space behind the prompt
        self.assertEqual((passed.get_seq_length(), passed.nbytes), (PROMPT + 11, own.nbytes))

    def test_bytes_are_those_of_the_plan(self):
        for name, algorithm, rule in PLANS:
            with self.subTest(model=name, algorithm=algorithm, **rule):
                self.check_bytes(self.calibrate(GOLDEN / name, algorithm, rule))

    def check_bytes(self, plan):
        cache = HeadspanCache.from_plan(plan)
        with h5py.File(plan) as file:
            stored, full = float(file.attrs["bytes_stored"]), float(file.attrs["bytes_full"])
            heads, d, layers = (int(file.attrs[name]) for name in ("kv_heads", "head_size", "layers"))
        self.assertLess(stored, full)
        self.assertEqual(full, 2 * layers * heads * d * 2)
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
        with self.assertRaisesRegex(ValueError, "kivi, which quantises tokens in groups") as caught:
            HeadspanCache.from_plan(plan)
        for _, algorithm, _ in PLANS:
            self.assertRegex(str(caught.exception), rf"\b{algorithm}\b")
        cache = HeadspanCache.from_plan(self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25}))
        with self.assertRaisesRegex(ValueError, "heads of"):
            cache.update(torch.zeros(1, 7, 2, 4), torch.zeros(1, 7, 2, 4), 0)

    def test_a_plan_that_is_unfinished_or_damaged_is_refused(self):
        plan = self.calibrate(GOLDEN / "llama_gqa", "latent", {"stored": 0.25})
        copy, done = self.folder / "copy.h5", self.folder / "copy.h5.done"
        with h5py.File(plan) as file:
            part = file["v/1/lift"][...].tobytes()
        whole = plan.read_bytes()
        flipped = bytearray(whole)
        flipped[whole.index(part) + 3] ^= 1
        copy.write_bytes(whole)
        with self.assertRaisesRegex(ValueError, r"^\S*copy.h5: has no .done beside it: it was not finished; calibrate it again$"):
            HeadspanCache.from_plan(copy)
        done.write_text(Path(f"{plan}.done").read_text())
        HeadspanCache.from_plan(copy)
        for damaged, told in ((bytes(flipped), r"sha256 = \w{64}: its .done says \w{64}"), (whole[:-8], r"size = \d+: its .done says \d+")):
            copy.write_bytes(damaged)
            with self.assertRaisesRegex(ValueError, rf"^\S*copy.h5: {told}; calibrate it again$"):
                HeadspanCache.from_plan(copy)


if __name__ == "__main__":
    main()
