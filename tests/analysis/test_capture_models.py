"""headspan-capture with transformers: its Grams against those of headspan for small models of every type that both run,
against hooks of plain transformers for types that headspan does not run, and what is refused. Exit code 77 if a package is
missing.

usage: test_capture_models.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import importlib.util
import io
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
from program import GOLDEN, StudyTest, main

missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing; bash tests/analysis/harness.sh runs this test in an environment of its own")
    sys.exit(77)
import torch  # noqa: E402
import transformers  # noqa: E402

from headspan_capture.__main__ import main as capture_main  # noqa: E402

LENGTH = 30
# Types of which the capture is also compared before the rotation and the norms.
MODELS = ("olmo2_gqa", "llama_gqa", "llama3_scaled", "falcon3", "gpt_neox", "gpt_neox_serial", "qwen2_window", "qwen3", "olmo",
          "olmo_clipped", "olmo3", "smollm3", "seed_oss", "mistral_window", "phi3", "phi3_long", "apertus", "gemma2", "gemma3")
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
OTHERS = {"gpt2": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2),
          "stablelm": SMALL, "starcoder2": SMALL}


def run(*words):
    """Returns (exit code, standard error) of the command."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        code = capture_main([str(word) for word in words])
    return code, told.getvalue()


class CaptureTest(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ids = np.random.default_rng(5).integers(3, 64, 700)
        ids[::37] = 2
        cls.ids, cls.tokens = ids, cls.write_tokens("ids.bin", ids)

    def capture(self, model, name, *words):
        path = self.folder / f"{name}.gram.h5"
        code, told = run(model, self.tokens, "--output", path, "--dtype", "float64", "--tokens.sequence_length", LENGTH,
                         "--streams", "k,q,v,z", *words)
        self.assertEqual(code, 0, told)
        return path


class KnownTypes(CaptureTest):
    def test_grams_are_those_of_headspan(self):
        for name in MODELS:
            for point in ("roped", "normed", "proj"):
                with self.subTest(model=name, capture=point):
                    path = self.capture(GOLDEN / name, f"{name}_{point}", "--capture", point, "--tokens.skip_first", 1)
                    result, = self.study(1, f"study_{name}_{point}", {
                        "model.path": GOLDEN / name, "tokens.path": self.tokens, "model.dtype": "float64",
                        "tokens.sequence_length": LENGTH, "tokens.skip_first": 1, "predict.streams": "k,q,v,z",
                        "predict.capture": point, "output.save_gram": "true", "overlap.enabled": "false"})
                    self.assert_same_file(result.with_suffix(".gram.h5"), path)

    def assert_same_file(self, expected, found):
        with h5py.File(expected) as a, h5py.File(found) as b:
            def visit(name, thing):
                for key, value in thing.attrs.items():
                    np.testing.assert_array_equal(as_text(b[name].attrs[key]), as_text(value), f"{name} {key}")
                if isinstance(thing, h5py.Dataset):
                    values = thing[...]
                    np.testing.assert_allclose(b[name][...], values, rtol=0, atol=1e-12 * np.abs(values).max(), err_msg=name)
            a.visititems(visit)
            self.assertEqual(set(a), set(b))
            for key in ("model_name", "model_type", "checkpoint", "step", "config_sha256", "weights_digest", "tokens_sha256",
                        "tokens_cut_digest"):
                self.assertEqual(as_text(a.attrs[key]), as_text(b.attrs[key]), key)

    def test_studies_and_plans_are_the_same(self):
        model = GOLDEN / "llama_gqa"
        keys = {"model.path": model, "tokens.path": self.tokens, "model.dtype": "float64", "tokens.sequence_length": LENGTH,
                "tokens.skip_first": 4}
        theirs, = self.study(2, "direct", {**keys, "predict.streams": "k,q,v,z"})
        gram = self.capture(model, "llama", "--tokens.skip_first", 4)
        ours, = self.study(3, "captured", {"grams.paths": gram, "predict.streams": "k,q,v,z"})
        with h5py.File(ours) as a, h5py.File(theirs) as b:
            for stream in "kqvz":
                for table in ("r2", "r2_heldout", "r2_forward", "r2_forward_heldout"):
                    np.testing.assert_allclose(a[stream][table][:], b[stream][table][:], rtol=0, atol=1e-9)
        plans = []
        for name, words in (("captured", {"grams.paths": gram}), ("direct", keys)):
            plans.append(self.folder / f"{name}.plan.h5")
            done = self.run_program(1, "calibrate", *(f"--{key}={value}" for key, value in {
                **words, "compress.plan": plans[-1], "compress.stored": 0.5, "compress.effort": "quick"}.items()))
            self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(plans[0]) as a, h5py.File(plans[1]) as b:
            for stream in "kv":
                for layer in a[stream]:
                    self.assertEqual(set(a[stream][layer]), set(b[stream][layer]))

    def test_activations_are_those_of_the_grams(self):
        path = self.folder / "z.h5"
        code, told = run(GOLDEN / "gpt_neox", self.tokens, "--output", self.folder / "z.gram.h5", "--streams", "z", "--dtype",
                         "float64", "--tokens.sequence_length", LENGTH, "--activations", path)
        self.assertEqual(code, 0, told)
        with h5py.File(path) as file, h5py.File(self.folder / "z.gram.h5") as gram:
            self.assertEqual(file["activations"].shape[0], gram["z/fit"].attrs["tokens"] + gram["z/heldout"].attrs["tokens"])
        a, = self.study(1, "z_activations", {"activations.path": path, "predict.streams": "z"})
        b, = self.study(1, "z_gram", {"grams.paths": self.folder / "z.gram.h5", "predict.streams": "z"})
        with h5py.File(a) as a, h5py.File(b) as b:
            np.testing.assert_allclose(a["z/r2_heldout"][:], b["z/r2_heldout"][:], rtol=0, atol=1e-9)


class OtherTypes(CaptureTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.manual_seed(1)
        for name, sizes in OTHERS.items():
            config = transformers.AutoConfig.for_model(name, **sizes)
            model = transformers.AutoModelForCausalLM.from_config(config).to(torch.float64)
            for parameter in model.parameters():
                parameter.data = 0.3 * torch.randn(parameter.shape, dtype=torch.float64)
            model.save_pretrained(cls.folder / name)

    def hooked(self, name):
        """Returns values and outputs of the heads in plain transformers: {"v": [tokens, columns], "z": ...}."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / name, dtype=torch.float64,
                                                                  attn_implementation="eager").eval()
        found, width = {"v": [], "z": []}, 32
        for layer in model.base_model.h if name == "gpt2" else model.base_model.layers:
            attention = layer.attn if name == "gpt2" else layer.self_attn
            out = attention.c_proj if name == "gpt2" else attention.o_proj
            value = attention.c_attn if name == "gpt2" else attention.v_proj
            v, z = [], []
            value.register_forward_hook(lambda module, inputs, output, v=v: v.append(output[0][:, 2 * width:] if name == "gpt2"
                                                                                      else output[0]))
            out.register_forward_pre_hook(lambda module, inputs, z=z: z.append(inputs[0][0]))
            found["v"].append(v)
            found["z"].append(z)
        with torch.no_grad():
            start = 0
            while start < len(self.ids):
                ends = [i for i in range(start, min(start + LENGTH, len(self.ids))) if self.ids[i] == 2]
                stop = ends[0] + 1 if ends else min(start + LENGTH, len(self.ids))
                model(torch.tensor(self.ids[start:stop][None]), use_cache=False)
                start = stop
        return {stream: torch.cat([torch.cat(rows) for rows in layers], 1).numpy() for stream, layers in found.items()}

    def test_grams_are_those_of_hooks(self):
        for name in OTHERS:
            with self.subTest(model=name):
                path = self.folder / f"{name}.gram.h5"
                code, told = run(self.folder / name, self.tokens, "--output", path, "--dtype", "float64", "--streams", "k,v,z",
                                 "--tokens.sequence_length", LENGTH, "--tokens.heldout", 0)
                self.assertEqual(code, 0, told)
                self.assertIn("are not known, so the file is for headspan study alone", told)
                for stream, rows in self.hooked(name).items():
                    covariance = np.cov(rows.T, bias=True) * len(rows)
                    with h5py.File(path) as file:
                        d, tiles = file[stream].attrs["head_size"], file[stream]["fit/tiles"][:]
                        heads = rows.shape[1] // d
                        for a in range(heads):
                            for b in range(a + 1):
                                np.testing.assert_allclose(
                                    tiles[a * (a + 1) // 2 + b], covariance[a * d:(a + 1) * d, b * d:(b + 1) * d], rtol=0,
                                    atol=1e-6 * np.abs(covariance).max(), err_msg=stream)  # plain softmax is in float32
                self.study(2, f"study_{name}", {"grams.paths": path, "predict.streams": "k,v,z"})

    def test_what_cannot_be_captured_is_refused(self):
        out = self.folder / "no.gram.h5"
        empty = self.folder / "empty"
        empty.mkdir()
        far = self.write_tokens("far.bin", np.array([1, 2, 99]))
        for message, words in (
                ("holds no config.json", (empty, self.tokens)),
                ("capture = proj: is not known where in GPT2Attention; capture roped",
                 (self.folder / "gpt2", self.tokens, "--capture", "proj")),
                ("position 2 = 99: is not in the vocabulary of 64 ids", (self.folder / "gpt2", far)),
                ("--streams = k,x: is not allowed", (self.folder / "gpt2", self.tokens, "--streams", "k,x")),
                ("--activations = a.h5: holds one stream", (self.folder / "gpt2", self.tokens, "--activations", "a.h5")),
                ("--tokens.heldout = 1.0: is no share", (self.folder / "gpt2", self.tokens, "--tokens.heldout", 1))):
            with self.subTest(message):
                code, told = run(*words, "--output", out)
                self.assertEqual((code, len(told.splitlines())), (2, 1), told)
                self.assertIn(message, told)
        self.assertFalse(out.exists())


def as_text(value):
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
