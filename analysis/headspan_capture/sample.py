"""The sample of a study, by the rules of headspan (src/io/README.md): token files, sequences, and which are held out."""
from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headspan.error import InputError

MASK = (1 << 64) - 1
RAW_TYPES = ("uint16", "uint32")


@dataclass(frozen=True)
class SampleRule:
    """As the keys of [tokens] in a job, with their defaults. eos: ids, or None for what the sidecar or the model says."""
    sequence_length: int = 2048
    limit: int = 30000
    heldout: float = 0.25
    seed: int = 0
    dtype: str | None = None
    eos: tuple | None = None


@dataclass
class Sample:
    sequences: list  # arrays of ids
    heldout: list  # True for sequences that are held out
    sha256: str  # of the token file
    cut_digest: str  # of what says how it is cut


def take_sample(path, rule, vocabulary, eos):
    """Returns the Sample of a token file for a model of this vocabulary, whose texts end with one of the ids `eos`."""
    path = Path(path)
    sidecar = read_sidecar(path)
    ids, kind = read_ids(path, rule, sidecar, vocabulary)
    said = sidecar.get("eos")
    said = tuple(np.ravel(said).tolist()) if said is not None else ()
    ends = rule.eos if rule.eos is not None else said or tuple(eos)
    ids = np.asarray(ids[:rule.limit], np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= vocabulary):
        at = int(np.flatnonzero((ids < 0) | (ids >= vocabulary))[0])
        raise InputError(path, f"position {at}", int(ids[at]), f"is not in the vocabulary of {vocabulary} ids",
                         "give tokens of this model's own tokenizer, or their dtype")
    sequences = [ids[start:stop] for start, stop in cut(ids, ends, rule.sequence_length)]
    digest = hashlib.sha256()
    digest.update(path.read_bytes())
    text = (kind if sidecar else "") + ("" if rule.eos is not None else "".join(f" {id}" for id in said))
    return Sample(sequences, choose_heldout(len(sequences), rule.heldout, rule.seed), digest.hexdigest(),
                  hashlib.sha256(text.encode()).hexdigest())


def read_sidecar(path):
    file = path.with_suffix(".json")
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(file, "", "", f"is no JSON ({error})", "write it again with headspan-report tokenize") from error
    if not isinstance(found, dict):
        raise InputError(file, "", "", "is no JSON object", "write it again with headspan-report tokenize")
    return found


def read_ids(path, rule, sidecar, vocabulary):
    """Returns the ids of the file, and the name of their type."""
    if not path.is_file():
        raise InputError(path, "", "", "is no file", "give a token file")
    if path.with_suffix(".idx").exists():
        raise InputError(path, "", "", "is a Megatron file", "give raw ids or an .npy; headspan study reads Megatron's")
    with open(path, "rb") as file:
        is_npy = file.read(6) == b"\x93NUMPY"
    if is_npy:
        ids = np.load(path, mmap_mode="r")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise InputError(path, "shape", f"{ids.shape} of {ids.dtype}", "is not one row of integers", "save ids so")
        return ids, str(ids.dtype)
    kind = rule.dtype or sidecar.get("dtype") or ("uint32" if vocabulary > 1 << 16 else "uint16")
    if kind not in RAW_TYPES:
        raise InputError(path, "dtype", kind, "is not known", "one of " + ", ".join(RAW_TYPES))
    if rule.dtype and sidecar.get("dtype", rule.dtype) != rule.dtype:
        raise InputError(path.with_suffix(".json"), "dtype", sidecar["dtype"], f"contradicts {rule.dtype}", "leave it out")
    size, width = path.stat().st_size, np.dtype(kind).itemsize
    if size == 0 or size % width:
        raise InputError(path, "size", size, f"is not that of ids of {width} bytes", "give their dtype")
    ids = np.memmap(path, np.dtype(kind).newbyteorder("<"), "r")
    if sidecar.get("count", len(ids)) != len(ids):
        raise InputError(path, "size", size, f"its sidecar says {sidecar['count']} ids", "write both again")
    return ids, kind


def cut(ids, ends, longest):
    """Yields (start, stop) of each sequence: a document, up to and including its end, in parts of at most `longest`."""
    start = 0
    stops = set(ends)
    for i, token in enumerate(ids.tolist(), 1):
        if token in stops or i - start == longest or i == len(ids):
            yield start, i
            start = i


def choose_heldout(count, share, seed):
    """Returns for each sequence whether it is held out: those with the smallest outputs of SplitMix64(seed), their share
    rounded, halves up, but at least one on each side; none if the share is 0 or there is a single sequence."""
    if share == 0 or count < 2:
        return [False] * count
    chosen = min(max(int(np.floor(share * count + 0.5)), 1), count - 1)
    first = sorted(range(count), key=lambda i: (splitmix64(seed, i), i))[:chosen]
    return [i in set(first) for i in range(count)]


def splitmix64(seed, number):
    """Returns output `number`, counted from 0, of SplitMix64(seed) (Steele, Lea and Flood 2014)."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31
