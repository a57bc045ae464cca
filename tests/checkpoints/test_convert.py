"""checkpoints/convert.py: what it writes against safetensors and transformers, and what it refuses. Exit code 77 if torch,
safetensors or transformers is missing.

    test_convert.py [unittest's arguments]
"""
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

missing = [name for name in ("torch", "safetensors", "transformers") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing; bash tests/analysis/harness.sh runs this test in an environment of its own")
    sys.exit(77)
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

CHECKPOINTS = Path(__file__).resolve().parents[2] / "checkpoints"
CONFIG = {"model_type": "gpt_neox", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 4, "tie_word_embeddings": False}


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch evil",)


class ConvertTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_convert_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "model"
        self.folder.mkdir()
        self.write_config()

    def write_config(self, **more):
        (self.folder / "config.json").write_text(json.dumps(CONFIG | more))

    def convert(self, status=0):
        run = subprocess.run([sys.executable, "-B", CHECKPOINTS / "convert.py", self.folder], capture_output=True, text=True,
                             cwd=self.folder)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        return run.stdout, run.stderr

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def test_a_model_runs_the_same(self):
        torch.manual_seed(1)
        config = transformers.AutoConfig.for_model(**CONFIG)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        torch.save(model.state_dict(), self.folder / "pytorch_model.bin")

        self.convert()

        (self.folder / "pytorch_model.bin").unlink()
        found = transformers.AutoModelForCausalLM.from_pretrained(self.folder).eval()
        tokens = torch.arange(20)[None]
        with torch.no_grad():
            self.assertTrue(torch.equal(found(tokens).logits, model(tokens).logits))
        lines = (self.folder / "SHA256SUMS").read_text().splitlines()
        self.assertEqual([line.split("  ")[1] for line in lines], ["config.json", "model.safetensors"])
        self.assertEqual(lines[1].split()[0], hashlib.sha256((self.folder / "model.safetensors").read_bytes()).hexdigest())

    def test_shards_and_their_index(self):
        tensors = {f"t{i}": torch.randn(3, i + 1) for i in range(4)}
        names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
        for k, name in enumerate(names):
            torch.save({key: tensors[key] for key in list(tensors)[2 * k:2 * k + 2]}, self.folder / name)
        index = {"weight_map": {key: names[i // 2] for i, key in enumerate(tensors)}}
        (self.folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))

        self.convert()

        found = json.loads((self.folder / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(set(found), set(tensors))
        for key, value in tensors.items():
            self.assertTrue(torch.equal(load_file(self.folder / found[key])[key], value), key)

    def test_tied_shared_and_transposed_tensors(self):
        embedding = torch.randn(64, 32)
        tensors = {"embed_in.weight": embedding, "embed_out.weight": embedding, "a": torch.randn(8, 4).T, "half": embedding[:3]}
        for tied in (False, True):
            self.write_config(tie_word_embeddings=tied)
            (self.folder / "SHA256SUMS").unlink(missing_ok=True)
            torch.save(tensors, self.folder / "pytorch_model.bin")

            self.convert()

            found = load_file(self.folder / "model.safetensors")
            self.assertEqual(set(found), set(tensors) - ({"embed_out.weight"} if tied else set()))
            for key, value in found.items():
                self.assertTrue(torch.equal(value, tensors[key]), key)

    def test_a_second_run_changes_nothing(self):
        torch.save({"a": torch.ones(3)}, self.folder / "pytorch_model.bin")
        self.convert()
        (self.folder / "pytorch_model.bin").write_bytes(b"gone")
        before = self.files()
        self.assertIn("is converted already", self.convert()[1])
        self.assertEqual(self.files(), before)

    def test_what_is_wrong_is_said_in_one_line(self):
        def no_config():
            (self.folder / "config.json").unlink()

        for message, make in (
                ("pytorch_model.bin: does not exist", lambda: None),
                ("cannot be read without running code in it", lambda: torch.save({"a": Evil()}, self.folder / "pytorch_model.bin")),
                ("cannot be read", lambda: (self.folder / "pytorch_model.bin").write_bytes(b"no zip")),
                ("holds other things than tensors", lambda: torch.save({"a": 3}, self.folder / "pytorch_model.bin")),
                ("is no index of shards", lambda: (self.folder / "pytorch_model.bin.index.json").write_text("{}")),
                ("weight_map = ../x.bin: is no shard", lambda: (self.folder / "pytorch_model.bin.index.json").write_text(
                    '{"weight_map": {"a": "../x.bin"}}')),
                ("holds no config.json", no_config)):
            with self.subTest(message):
                make()
                before = self.files()
                _, err = self.convert(status=2)
                self.assertIn(message, err)
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assertEqual(self.files(), before)


if __name__ == "__main__":
    unittest.main()
