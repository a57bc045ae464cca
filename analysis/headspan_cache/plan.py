"""Reads a plan of `headspan calibrate`: what each layer of a stream stores, and how it reads every head from that."""
import math
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import h5py
import numpy as np
import torch

from headspan.error import InputError
from headspan.opening import check_complete

HADAMARD = ("hadamard", "rotated-q4", "rotated-q8")
ROUNDING = ("quantise", *HADAMARD, "oscar")
HEADS = ("headspan", "paper-text", "paper-code")
READABLE = ("latent", *HEADS, *ROUNDING)


@dataclass
class Block:
    """One layer of a stream."""
    bands: list  # (columns, bits)
    coding: str = "symmetric"
    clip: float = 1.0
    arrays: dict = field(default_factory=dict)  # name -> tensor in float64, as src/io/README.md names them
    whole: bool = False  # a stream that the plan leaves as it is


@dataclass
class Plan:
    path: Path
    algorithm: str
    layers: int
    kv_heads: int
    head_size: int
    exact_first: int
    streams: dict  # "k", "v" -> [Block of each layer]; one that is missing is kept whole

    def block(self, stream, layer):
        columns = self.kv_heads * self.head_size
        return self.streams[stream][layer] if stream in self.streams else Block([(columns, 16)], whole=True)

    def rotation(self, block):
        """Returns the matrix of each head, [kv_heads, d, d], by which its columns are multiplied; None: they are not."""
        if self.algorithm == "oscar" and not block.whole:
            return block.arrays["rotation"]
        if self.algorithm in HADAMARD and not block.whole:
            return hadamard(self.head_size).expand(self.kv_heads, -1, -1)
        return None


def read_plan(path):
    path = Path(path)
    try:
        check_complete(path, "calibrate it again")
    except InputError as error:
        raise ValueError(str(error)) from error
    with h5py.File(path) as file:
        algorithm = text(file.attrs["algorithm"])
        if not text(file.attrs["headspan_schema"]).startswith("1."):
            raise ValueError(f"{path} has schema {text(file.attrs['headspan_schema'])}, and this reads 1.x")
        if algorithm not in READABLE:
            raise ValueError(f"{path} is a plan of {algorithm}, which quantises tokens in groups or is not known; "
                             f"take one of {', '.join(READABLE)}")
        layers = int(file.attrs["layers"])
        streams = {s: [read_block(file[s][str(layer)], algorithm) for layer in range(layers)] for s in "kv" if s in file}
        kv_heads, head_size, exact_first = (int(file.attrs[name]) for name in ("kv_heads", "head_size", "exact_first"))
        return Plan(path, algorithm, layers, kv_heads, head_size, exact_first, streams)


def read_block(group, algorithm):
    bands = [(int(c), int(b)) for c, b in zip(group.attrs["band_columns"], group.attrs["band_bits"]) if c > 0]
    coding = text(group.attrs.get("band_coding", "range" if algorithm == "quantise" else "symmetric"))
    arrays = {name: torch.from_numpy(np.asarray(group[name]).astype(np.int64 if name in ("kept", "targets", "references")
                                                                    else np.float64)) for name in group}
    return Block(bands, coding, float(group.attrs.get("band_clip", 1)), arrays)


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def hadamard(d):
    """The normalised Hadamard matrix of the largest power of two that divides d, along the diagonal."""
    size, block = math.gcd(d, 1 << 30), torch.ones(1, 1, dtype=torch.float64)
    while len(block) < size:
        block = torch.cat([torch.cat([block, block], 1), torch.cat([block, -block], 1)])
    return torch.kron(torch.eye(d // size, dtype=torch.float64), block / math.sqrt(size))


@lru_cache
def normal_levels(bits):
    """The levels at which a normal number loses least (Lloyd, Max): each is the mean of the numbers nearest to it."""
    levels = np.linspace(-2.5, 2.5, 2**bits)
    for _ in range(20000):
        ends = np.concatenate(([-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]))
        below = np.array([math.erf(x / math.sqrt(2)) / 2 for x in ends])
        density = np.exp(-ends**2 / 2) / math.sqrt(2 * math.pi)
        levels, before = -np.diff(density) / np.diff(below), levels
        if np.abs(levels - before).max() < 1e-13:
            break
    return torch.from_numpy(levels).float()
