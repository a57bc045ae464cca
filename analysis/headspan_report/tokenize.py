"""Turns texts into a token file of headspan: raw little-endian uint16 or uint32 and a sidecar NAME.json.

A document is a line of a JSONL file (one of its fields), or any other file as a whole; .gz is unpacked. Each document
ends with the end-of-text token. Needs Hugging Face tokenizers, which is not installed with this package by default.
"""
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np

from headspan.error import EnvironmentFailed, InputError

from .aggregate import replace

BATCH = 1000  # documents
USUAL_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")


def documents(path, field):
    """Yields the texts of a file."""
    path = Path(path)
    plain = path.name.removesuffix(".gz")
    unpack = gzip.open if path.name.endswith(".gz") else open
    try:
        with unpack(path, "rt", encoding="utf-8", newline="") as file:
            if not plain.endswith((".jsonl", ".json", ".ndjson")):
                yield file.read()
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield text_of(path, number, line, field)
    except UnicodeDecodeError as error:
        raise InputError(path, "byte", error.start, "is not UTF-8", "convert the text") from error
    except (OSError, EOFError) as error:
        raise InputError(path, "", "", f"cannot be read ({error})", "give text or JSONL, plain or .gz") from error


def text_of(path, number, line, field):
    try:
        text = json.loads(line)[field]
    except (ValueError, KeyError, TypeError):
        raise InputError(path, "line", number, f"is no JSON object with a field {field!r}",
                         "one object a line; --field names the text") from None
    if not isinstance(text, str):
        raise InputError(path, "line", number, f"has a field {field!r} that is no text", "give strings") from None
    return text


def load_tokenizer(path):
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EnvironmentFailed("the package tokenizers is missing; pip install './analysis[tokenize]'") from error
    if not Path(path).is_file():
        raise InputError(path, "", "", "is no file", "give a tokenizer.json")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise InputError(path, "", "", f"is no tokenizer ({' '.join(str(error).split())})",
                         "give the tokenizer.json of the model") from error


def configuration_of(path):
    """Returns the file next to a tokenizer that may say which token ends a text."""
    return Path(path).with_name("tokenizer_config.json")


def end_of_text(tokenizer, path, wanted):
    """Returns the id that ends a document: `wanted`, an id or a token; otherwise the one in tokenizer_config.json;
    otherwise the only one of the usual tokens."""
    size = tokenizer.get_vocab_size()
    if wanted is not None:
        found = int(wanted) if str(wanted).isdigit() else tokenizer.token_to_id(wanted)
        if found is None or found >= size:
            raise InputError(path, "--eos", wanted, "is no token of it", f"a token, or an id below {size}")
        return found
    config = configuration_of(path)
    if config.is_file():
        token = json.loads(config.read_text(encoding="utf-8")).get("eos_token")
        token = token.get("content") if isinstance(token, dict) else token
        if token and tokenizer.token_to_id(token) is not None:
            return tokenizer.token_to_id(token)
    found = [tokenizer.token_to_id(token) for token in USUAL_ENDS if tokenizer.token_to_id(token) is not None]
    if len(found) != 1:
        raise InputError(path, "--eos", "", "does not say which token ends a text", "give --eos, a token or an id")
    return found[0]


def batches(paths, field):
    """Yields lists of documents that are not empty."""
    batch = []
    for path in paths:
        for text in documents(path, field):
            if text:
                batch.append(text)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def tokenize(paths, tokenizer_path, output, field="text", eos=None, limit=None, name=None):
    """Writes OUTPUT and its sidecar, which it returns. Stops after the document that brings the number of tokens to
    `limit`."""
    output = Path(output)
    if output.suffix == ".json":
        raise InputError(output, "--output", "", "would be the sidecar's name", "NAME.bin")
    tokenizer = load_tokenizer(tokenizer_path)
    end = end_of_text(tokenizer, tokenizer_path, eos)
    size = tokenizer.get_vocab_size()
    largest = max(tokenizer.get_vocab().values())
    dtype = np.dtype("<u2" if largest < 1 << 16 else "<u4")
    sidecar = {"dtype": f"uint{8 * dtype.itemsize}", "count": 0, "vocab_size": max(size, largest + 1), "eos": end,
               "tokenizer": name or Path(tokenizer_path).resolve().parent.name, "text_bytes": 0}
    digest = hashlib.sha256()

    def write(temporary):
        with open(temporary, "wb") as file:
            for batch in batches(paths, field):
                for text, encoding in zip(batch, tokenizer.encode_batch(batch, add_special_tokens=False)):
                    data = np.array([*encoding.ids, end], dtype).tobytes()
                    file.write(data)
                    digest.update(data)
                    sidecar["count"] += len(data) // dtype.itemsize
                    sidecar["text_bytes"] += len(text.encode())
                    if limit and sidecar["count"] >= limit:
                        return
        if sidecar["count"] == 0:
            raise InputError(", ".join(map(str, paths)), "", "", "hold no text", "give text or JSONL")

    replace(output, write)
    sidecar["sha256"] = digest.hexdigest()
    replace(output.with_suffix(".json"), lambda path: path.write_text(json.dumps(sidecar, indent=1) + "\n"))
    return sidecar
