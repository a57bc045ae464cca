#!/usr/bin/env python3
"""Makes the token files of three domains, each with a fit and a heldout part, from Debian packages.

    prose  the Jargon File (jargon-text)
    docs   Python's documentation: library, howto and tutorial (python3.11-doc)
    code   the modules of Python's standard library (libpython3.11-minimal, libpython3.11-stdlib)

Unpack the packages into ROOT first:

    apt-get download jargon-text python3.11-doc libpython3.11-minimal libpython3.11-stdlib
    for package in *.deb; do dpkg -x "$package" ROOT; done
    python3 make_tokens.py ROOT TOKENIZER.json OUT --name SmolLM2

OUT gets DOMAIN.fit.bin and DOMAIN.heldout.bin (raw little-endian uint16; every document ends with id 0), each
with a sidecar .json. No document is in both parts. Needs numpy and tokenizers.
"""
import argparse
import glob
import gzip
import hashlib
import html
import json
import random
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

END_OF_TEXT = 0  # <|endoftext|> in the tokenizers of SmolLM2, tiny-olmo2 and tiny-pythia
FIT_TOKENS = 120_000
HELDOUT_TOKENS = 30_000
SHORTEST_DOCUMENT = 500  # characters
LONGEST_DOCUMENT = 12_000  # characters; what is beyond is cut off
PARAGRAPHS_OF_A_DOCUMENT = 12
PARAGRAPHS_OF_THE_PREFACE = 40


def one_line(text):
    """The text with every run of white space turned into one blank."""
    return re.sub(r"\s+", " ", text).strip()


def prose(root):
    """Runs of paragraphs of the Jargon File."""
    with gzip.open(root / "usr/share/doc/jargon-text/jargon.txt.gz", "rt", errors="ignore") as file:
        paragraphs = [one_line(paragraph) for paragraph in re.split(r"\n\s*\n", file.read())]
    for start in range(PARAGRAPHS_OF_THE_PREFACE, len(paragraphs), PARAGRAPHS_OF_A_DOCUMENT):
        yield "\n\n".join(paragraphs[start:start + PARAGRAPHS_OF_A_DOCUMENT])


def docs(root):
    """The text of the pages of Python's documentation."""
    folder = root / "usr/share/doc/python3.11/html"
    parts = ("library", "howto", "tutorial")
    for page in sorted(page for part in parts for page in glob.glob(str(folder / part / "*.html"))):
        body = Path(page).read_text(errors="ignore")
        body = re.sub(r"(?s)^.*?<body>|<(script|style|head|nav).*?</\1>", " ", body)
        yield one_line(html.unescape(re.sub(r"<[^>]+>", " ", body)))


def code(root):
    """The modules of Python's standard library, as they are."""
    for module in sorted(glob.glob(str(root / "usr/lib/python3.11/*.py"))):
        yield Path(module).read_text(errors="ignore")


def tokens_of(domain, root, tokenizer):
    """Token ids of shuffled documents of a domain, somewhat more than both parts need."""
    texts = [text for text in domain(root) if len(text) > SHORTEST_DOCUMENT]
    random.Random(0).shuffle(texts)
    ids = []
    for text in texts:
        ids += tokenizer.encode(text[:LONGEST_DOCUMENT], add_special_tokens=False).ids + [END_OF_TEXT]
        if len(ids) > FIT_TOKENS + HELDOUT_TOKENS:
            break
    return ids


def write_tokens(path, ids, tokenizer, name):
    """Writes the ids and their sidecar (the same name with .json)."""
    array = np.array(ids, "<u2")
    array.tofile(path)
    sidecar = {
        "dtype": "uint16", "count": len(array), "vocab_size": tokenizer.get_vocab_size(), "eos": END_OF_TEXT,
        "tokenizer": name, "text_bytes": len(tokenizer.decode(ids, skip_special_tokens=True).encode()),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
    path.with_suffix(".json").write_text(json.dumps(sidecar, indent=1))
    print(path, len(array))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="folder into which the packages were unpacked")
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--name", default="SmolLM2", help="the tokenizer's name in the sidecars")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    for domain in (prose, docs, code):
        ids = tokens_of(domain, arguments.root, tokenizer)
        cut = ids.index(END_OF_TEXT, FIT_TOKENS) + 1
        for part, piece in (("fit", ids[:cut]), ("heldout", ids[cut:cut + HELDOUT_TOKENS])):
            write_tokens(arguments.out / f"{domain.__name__}.{part}.bin", piece, tokenizer, arguments.name)


if __name__ == "__main__":
    main()
