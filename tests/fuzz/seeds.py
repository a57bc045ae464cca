"""Writes the inputs that fuzzing begins with: sound files, TARGET/NAME in a folder.

usage: seeds.py FOLDER
"""
import hashlib
import json
import struct
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"


MODEL = "[model]\npath = m\n[tokens]\npath = t.bin\n"
STUDY = MODEL + "[output]\ndirectory = d\n"
ACTIVATIONS = "[activations]\npath = a.h5\n[output]\ndirectory = d\n"
PLAN = MODEL + "[compress]\nplan = p.h5\n"
GRAMS = "[grams]\npaths = a.h5\n[compress]\nplan = p.h5\n"
JOBS = (
    MODEL + "[compress]\nplan = p.h5\nalgorithm = latent\nbits = 16x8,32x6\nstored = auto\nband_clip = auto\n",
    MODEL + "[compress]\nplan = p.h5\nalgorithm = quantise\nbits = 4\n[run]\ndevice = cpu\ngrid = 2x3\nmemory_gib = 2.5\n",
    MODEL + "[evaluate]\nplan = p.h5\ntexts = a.bin,b.bin\ncache = compressed\nprefill = exact\nsummary = s.json\n",
    MODEL + "[evaluate]\nplan = p.h5\nrequests = r.jsonl\nanswers = a.jsonl\n[archive]\ncodec = c\nbits = 2\n",
    MODEL + "[archive]\ncodec = c\ngroup = 3\ninput = i\noutput = o\nkl = 0.1\ntokens = 5:9\nlayers = 0:2\ndocuments = 0,7\n",
    "[grams]\npaths = a.h5,b.h5\n[output]\ndirectory = d\n[compress]\nplan = p.h5\n",
    "[activations]\npath = a.h5\n[output]\ndirectory = d\n[predict]\ntargets = k\n",
    # keys that contradict each other
    MODEL + "[attention]\nscores = true\n[cross]\nstreams = q:k\nmodel = o\ngrams = g.h5\n[model]\nselect = 1\n",
    ACTIVATIONS + "[attention]\nscores = true\n",
    ACTIVATIONS + "[cross]\nstreams = q:k\n",
    ACTIVATIONS + "[cross]\nmodel = o\n",
    STUDY + "[cross]\ngrams = g.h5\n",
    STUDY + "[predict]\nmode = paper\nselection = forward\n",
    STUDY + "[predict]\nmode = paper\n[tokens]\nheldout = 0.5\n",
    STUDY + "[predict]\npool = 2\nreferences = 3\n",
    STUDY + "[predict]\nprecision = bfloat16\n[model]\ndtype = float32\n",
    PLAN + "algorithm = hadamard\nbits = 8\n",
    PLAN + "algorithm = kivi\nbits = 3\n",
    PLAN + "algorithm = oscar\nbits = 5\n",
    PLAN + "algorithm = headspan\nbits = 5\nunits = measured\n",
    PLAN + "algorithm = kivi\nunits = measured\n",
    PLAN + "bits = 16x8\nstored = 0.5\n",
    GRAMS + "algorithm = oscar\n",
    GRAMS + "units = measured\n",
    GRAMS + "effort = full\n",
    GRAMS + "own_text = 64\n",
    MODEL + "[evaluate]\nplan = p.h5\nprefill = exact\ncache = simulated\n",
    MODEL + "[archive]\ncodec = c\n[evaluate]\ncache = simulated\n",
    MODEL + "[archive]\ncodec = c\n[evaluate]\nexact_recent = 4\n",
    MODEL + "[archive]\ncodec = c\nbits = 2\nkl = 0.1\n[run]\ndevice = cuda\n",
    "[theory]\nhidden_size = 64\nhead_size = 32\nreferences = 2\n",
    "[theory]\nhidden_size = 64\nhead_size = 8\nreferences = 3\ntrials = 5\n")


def safetensors(tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(offset)


def npy(ids):
    path = Path(sys.argv[1]) / "seed.npy"
    np.save(path, ids)
    data = path.read_bytes()
    path.unlink()
    return data


def megatron(lengths, documents):
    pointers = np.cumsum([0, *lengths[:-1]], dtype="<i8") * 2
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(documents)) + np.asarray(lengths, "<i4").tobytes()
            + pointers.tobytes() + np.asarray(documents, "<i8").tobytes())


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def seeds():
    yield "folder", b"\0"
    for name in range(10):
        yield "folder", bytes([name, 0])
        for state in range(6):
            yield "folder", bytes([10, 0, name, state])
    yield "folder", bytes([10, 0, 12, 0, 13, 0, 14, 0])
    yield "folder", bytes([10, 0, 12, 0, 13, 0, 14, 5])
    yield "safetensors", safetensors({"a": ("F32", [2, 3], 24), "b": ("BF16", [4], 8), "empty": ("F16", [0, 3], 0)})
    yield "index", json.dumps({"metadata": {"total_size": 16}, "weight_map": {
        "w1": "model-00001-of-00002.safetensors", "w2": "model-00002-of-00002.safetensors"}}).encode()
    for config in sorted(GOLDEN.glob("*/config.json")):
        yield "config", config.read_bytes()
    yield "sidecar", json.dumps({"dtype": "uint16", "count": 32, "vocab_size": 1000, "eos": [2, 3], "tokenizer": "t",
                                 "text_bytes": 100, "sha256": hashlib.sha256(bytes([1] * 64)).hexdigest()}).encode()
    for dtype in ("<u2", "<i4", "<u8", "|u1", ">u2", "<f4"):
        yield "npy", npy(np.arange(7).astype(dtype))
    yield "megatron", megatron([20, 12], [0, 1, 2])
    for path in sorted((ROOT / "checkpoints").glob("*/manifest.tsv")):
        yield "manifest", b"".join(path.read_bytes().splitlines(keepends=True)[:4])
    for path in sorted((ROOT / "jobs").glob("*.ini")):
        yield "job", path.read_bytes()
    for job in JOBS:
        yield "job", job.encode()
    yield "requests", jsonl({"id": 1, "context": [1, 2], "continuation": [3]}, {"id": "b", "context": [4], "continuation": []})
    yield "requests", jsonl({"id": None, "context": [1, 2], "max_new_tokens": 3, "stop": [[5, 6], [7]]})
    for target in ("activations", "gram", "plan", "codec", "result", "state"):
        yield target, b""
        for base in range(8):
            yield target, bytes(range(base, base + 16))
        for name in range(12):
            for way in range(2):  # a link to another file, values in another file
                yield target, bytes([0, 0, name, 15, way])


def main():
    for number, (target, data) in enumerate(seeds()):
        folder = Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed{number}").write_bytes(data)


if __name__ == "__main__":
    main()
