"""`headspan-report tokenize`: ids, ends and sidecar, against the tokenizer's vocabulary applied by hand.

The package tokenizers is optional: without it only the message that says so is tested.
"""
import gzip
import hashlib
import importlib.util
import json
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
from samples import check_nothing_is_replaced, run

HAS_TOKENIZERS = importlib.util.find_spec("tokenizers") is not None
VOCABULARY = {"[UNK]": 0, "</s>": 1, "one": 2, "two": 3, "three": 4}


def write_tokenizer(path, vocabulary):
    """Writes a tokenizer that splits at white space, by hand, in the file format of tokenizers."""
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}}))


class TokenizeTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_tokenize_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.tokenizer = self.folder / "tokenizer.json"
        write_tokenizer(self.tokenizer, VOCABULARY)
        self.output = self.folder / "out.bin"

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    def tokenize(self, *words):
        done = run("tokenize", *words, "--tokenizer", self.tokenizer, "--output", self.output)
        sidecar = json.loads(self.output.with_suffix(".json").read_text()) if done.returncode == 0 else None
        return done, sidecar

    def refused(self, message, *words, code=2):
        done, _ = self.tokenize(*words)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(message, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(list(self.folder.glob("out.*")), [])


class NothingIsReplaced(TokenizeTest):
    """Reported before anything is read, with or without the package."""

    def check(self, target, told, *texts):
        check_nothing_is_replaced(self, self.folder, f"{target}: {told}", "tokenize", *texts, "--tokenizer",
                                  self.tokenizer, "--output", self.output)

    def test_text_and_sidecar(self):
        text, corpus = self.write("t.jsonl", '{"text": "one"}\n'), self.write("corpus.json", '{"text": "two"}\n')
        self.output = text
        self.check(text, f"would replace {text}, which is read", corpus, text)
        self.output = self.folder / "corpus.bin"
        self.check(corpus, f"would replace {corpus}, which is read", text, corpus)

    def test_tokenizer(self):
        text, beside = self.write("a.txt", "one"), self.write("tokenizer_config.json", "{}")
        for read in (self.tokenizer, beside):
            self.output = read.with_suffix(".bin")
            self.check(read, f"would replace {read}, which is read", text)

    def test_through_links(self):
        text = self.write("a.txt", "one")
        self.output.symlink_to(text)
        self.check(self.output, f"would replace {text}, which is read", text)
        self.output.unlink()
        os.link(text, self.output.with_suffix(".json"))
        self.check(self.output.with_suffix(".json"), f"would replace {text}, which is read", text)

    def test_no_regular_file(self):
        text = self.write("a.txt", "one")
        os.mkfifo(self.output)
        self.check(self.output, "would replace what is no regular file", text)
        self.output = Path(".")
        self.check(".", "would replace what is no regular file", text)
        self.output = self.folder / "other.bin"
        (self.folder / "other.json").mkdir()
        self.check(self.folder / "other.json", "would replace what is no regular file", text)


@unittest.skipIf(HAS_TOKENIZERS, "tokenizers is there")
class WithoutTokenizers(TokenizeTest):
    def test_it_is_asked_for(self):
        self.refused("the package tokenizers is missing; pip install", self.write("a.txt", "one"), code=1)


@unittest.skipUnless(HAS_TOKENIZERS, "tokenizers is not there")
class WithTokenizers(TokenizeTest):
    def test_text_and_lines(self):
        text = self.write("a.txt", "one two\nthree")
        lines = self.write("b.jsonl", '{"text": "two"}\n\n{"text": ""}\n{"text": "three four é"}\n')

        done, sidecar = self.tokenize(text, lines)

        self.assertEqual(done.returncode, 0, done.stderr)
        ids = [2, 3, 4, 1, 3, 1, 4, 0, 0, 1]
        self.assertEqual(np.fromfile(self.output, "<u2").tolist(), ids)
        self.assertEqual(sidecar, {
            "dtype": "uint16", "count": 10, "vocab_size": 5, "eos": 1, "tokenizer": self.folder.name,
            "text_bytes": 13 + 3 + 13, "sha256": hashlib.sha256(np.array(ids, "<u2").tobytes()).hexdigest()})

    def test_packed_lines_of_another_field(self):
        done, _ = self.tokenize(self.write("c.json.gz", '{"body": "one"}\n{"body": "two"}\n'), "--field", "body",
                                "--eos", "three")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(np.fromfile(self.output, "<u2").tolist(), [2, 4, 3, 4])

    def test_limit_keeps_whole_documents(self):
        _, sidecar = self.tokenize(self.write("d.jsonl", '{"text": "one two three"}\n' * 5), "--limit", "5")
        self.assertEqual(sidecar["count"], 8)

    def test_many_batches_and_wide_ids(self):
        write_tokenizer(self.tokenizer, VOCABULARY | {f"w{i}": i for i in range(5, 70000)})
        _, sidecar = self.tokenize(self.write("e.jsonl", "".join(f'{{"text": "w{i}"}}\n' for i in range(65000, 67500))))
        self.assertEqual(sidecar["dtype"], "uint32")
        self.assertEqual(np.fromfile(self.output, "<u4")[::2].tolist(), list(range(65000, 67500)))

    def test_bad_input(self):
        good = self.write("good.txt", "one")
        self.refused("b.jsonl: line = 2: is no JSON object with a field 'text'",
                     self.write("b.jsonl", '{"text": "one"}\n{"body": "x"}\n'))
        self.refused("c.jsonl: line = 1: has a field 'text' that is no text", self.write("c.jsonl", '{"text": 3}\n'))
        self.refused("none.txt: cannot be read", self.folder / "none.txt")
        self.refused("hold no text", self.write("empty.txt", ""))
        self.refused("--eos = nine: is no token of it", good, "--eos", "nine")
        self.write("latin.txt", "")
        (self.folder / "latin.txt").write_bytes(b"caf\xe9 au lait")
        self.refused("latin.txt: byte = 3: is not UTF-8", self.folder / "latin.txt")
        self.tokenizer.write_text("{}")
        self.refused("tokenizer.json: is no tokenizer", good)


if __name__ == "__main__":
    unittest.main()
