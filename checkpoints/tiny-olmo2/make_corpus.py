#!/usr/bin/env python3
"""Makes the training text of tiny-olmo2 and tiny-pythia: a tokenizer and two token files, from Debian packages.

The documents are the entries of the GCIDE dictionary and the HTML pages of Python's documentation and of the
Debian Administrator's Handbook. Unpack the packages into ROOT first:

    apt-get download dict-gcide python3.11-doc debian-handbook
    for package in *.deb; do dpkg -x "$package" ROOT; done
    python3 make_corpus.py ROOT OUT                     # tiny-olmo2
    python3 make_corpus.py ROOT OUT --vocabulary 512    # tiny-pythia

OUT gets tokenizer.json (byte pair encoding), train.bin and valid.bin (raw little-endian uint16;
every document ends with id 0). Needs numpy and tokenizers. Other versions of the packages give other files.
"""
import argparse
import glob
import gzip
import html
import itertools
import random
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = 0  # the id of the first special token
VALIDATION_TOKENS = 200_000
SHORTEST_DOCUMENT = 200  # characters


def one_line(text):
    """The text with every run of white space turned into one blank."""
    return re.sub(r"\s+", " ", text).strip()


def dictionary_entries(root):
    """The entries of GCIDE without its source marks."""
    with gzip.open(root / "usr/share/dictd/gcide.dict.dz", "rt", errors="ignore") as file:
        text = re.sub(r'\[1913 Webster\]|\[PJC\]|\\|"', " ", file.read())
    return [one_line(entry) for entry in text.split("\n\n")]


def documentation_pages(root):
    """The text of the HTML pages, without those (translations) that begin with much beyond ASCII."""
    for page in sorted(glob.glob(str(root / "**/*.html"), recursive=True)):
        if "/python" not in page and not ("handbook/" in page and "/html/" in page):
            continue
        body = Path(page).read_text(errors="ignore")
        body = re.sub(r"(?s)<(script|style).*?</\1>", " ", body)
        body = html.unescape(re.sub(r"<[^>]+>", " ", body))
        if sum(ord(character) > 127 for character in body[:2000]) <= 100:
            yield one_line(body)


def train_tokenizer(documents, vocabulary):
    """A byte-level byte pair encoding of so many pieces, trained on the given documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder into which the packages were unpacked")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--vocabulary", type=int, default=2048, help="pieces of the tokenizer (2048)")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    documents = [*dictionary_entries(arguments.root), *documentation_pages(arguments.root)]
    documents = [document for document in documents if len(document) > SHORTEST_DOCUMENT]
    random.Random(0).shuffle(documents)
    tokenizer = train_tokenizer(documents[:len(documents) // 3], arguments.vocabulary)
    tokenizer.save(str(arguments.out / "tokenizer.json"))

    encoded = (tokenizer.encode(document).ids + [END_OF_TEXT] for document in documents)
    ids = np.fromiter(itertools.chain.from_iterable(encoded), "<u2")
    ids[:-VALIDATION_TOKENS].tofile(arguments.out / "train.bin")
    ids[-VALIDATION_TOKENS:].tofile(arguments.out / "valid.bin")
    print(f"{len(documents)} documents, {len(ids) / 1e6:.1f} M tokens")


if __name__ == "__main__":
    main()
