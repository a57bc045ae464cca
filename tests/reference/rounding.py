"""The algorithms that round all columns of keys and values to few bits, in numpy and float64: what is read back of rows."""
import math
from functools import lru_cache

import numpy as np

from latents import half, quantise, quantise_groups

BLOCK = 32  # columns of llama.cpp's types, columns or tokens of kivi's groups


def group_of(algorithm, heads, d, bits, s="k"):
    """Returns the group of a layer of a plan. s: the stream, which matters to kivi."""
    columns = quantise_groups(heads, d)
    if algorithm in ("hadamard", "oscar"):
        columns = [d] * heads
    elif algorithm == "kivi" and s == "k":
        columns = [heads * d]
    elif algorithm == "kivi" or algorithm.startswith("rotated"):
        columns = ([BLOCK] * (d // BLOCK) + [d % BLOCK] * (d % BLOCK > 0)) * heads
    if algorithm.startswith("rotated"):
        bits = algorithm[-1]
    return {"band_columns": columns, "band_bits": [int(bits)] * len(columns)}


def stored_bytes(algorithm, group, s="k"):
    """Returns the bytes per token of a layer: codes, padded to whole bytes, and 2 for each scale and each offset. Those of
    kivi's keys are for 32 tokens, each of which holds a part of them, in whole pairs."""
    if algorithm == "kivi" and s == "k":
        of_token = 4 * -(-sum(group["band_columns"]) // BLOCK)
    else:
        of_token = (4 if algorithm in ("quantise", "kivi", "oscar") else 2) * len(group["band_columns"])
    return of_token + sum(-(-columns * bits // 8) for columns, bits in zip(group["band_columns"], group["band_bits"]))


def share_of(algorithm, group, s="k"):
    """Returns the stored bytes over those of 16-bit numbers."""
    return stored_bytes(algorithm, group, s) / (2 * sum(group["band_columns"]))


def read_back(algorithm, group, x):
    """Returns x^ for x: [tokens, heads, d]."""
    bits, = set(map(int, group["band_bits"]))
    if algorithm == "quantise":
        return quantise(x.reshape(len(x), -1), group["band_columns"], bits).reshape(x.shape)
    if algorithm == "oscar":
        rotation, clip = np.asarray(group["rotation"], float), float(group["band_clip"])
        y = by_range(np.einsum("thi,hij->thj", x, rotation), bits, 2, clip)
        return np.einsum("thj,hij->thi", y, rotation)
    h = hadamard(x.shape[2])
    y = x @ h
    if algorithm == "hadamard":
        return normal(y, bits) @ h
    parts = [gguf(y[..., begin:begin + BLOCK], bits) for begin in range(0, x.shape[2], BLOCK)]
    return np.concatenate(parts, axis=2) @ h


def kivi(s, x, bits, first, starts=()):
    """Returns x^ for x: [tokens, heads, d]. Behind the first tokens, keys are rounded by column in groups of 32 tokens and
    values by token in groups of 32 columns of a head. Tokens of the last group, if it is not complete, are as they are.
    Those of `starts` count as 0 in their group."""
    tokens, _, d = x.shape
    rounded, grouped = x.copy(), x.copy()
    grouped[list(starts)] = 0
    for begin in range(first, tokens - BLOCK + 1, BLOCK):
        part = grouped[begin:begin + BLOCK]
        if s == "k":
            rounded[begin:begin + BLOCK] = by_range(part, bits, 0)
        else:
            for column in range(0, d, BLOCK):
                rounded[begin:begin + BLOCK, :, column:column + BLOCK] = by_range(part[..., column:column + BLOCK], bits, 2)
    return rounded


def by_range(x, bits, axis, clip=1):
    """Rounds to steps from the smallest number along the axis to the largest, both times `clip`. The smallest and the step
    are float16."""
    low, high = clip * x.min(axis, keepdims=True), clip * x.max(axis, keepdims=True)
    low, step = half(low), half((high - low) / (2.0**bits - 1))
    codes = np.rint(np.divide(x - low, step, out=np.zeros_like(x), where=step > 0))
    return low + np.clip(codes, 0, 2**bits - 1) * step


def hadamard(d):
    """H_ij = (-1)^(number of ones that i and j share), in blocks of the largest power of two that divides d."""
    size = math.gcd(d, 1 << 20)
    i = np.arange(size)
    ones = np.vectorize(lambda n: int(n).bit_count())(i[:, None] & i)
    return np.kron(np.eye(d // size), (-1.0) ** ones / np.sqrt(size))


def gguf(y, bits):
    """q4_0 and q8_0 of llama.cpp (ggml-quants.c), the last axis being a block."""
    extreme = np.take_along_axis(y, np.abs(y).argmax(-1)[..., None], -1)
    step = np.abs(extreme) / 127 if bits == 8 else extreme / -2.0 ** (bits - 1)
    step = half(step)
    codes = np.rint(np.divide(y, step, out=np.zeros_like(y), where=step != 0))
    return np.clip(codes, -2.0 ** (bits - 1), 2.0 ** (bits - 1) - 1) * step


def normal(y, bits):
    """The levels of Lloyd and Max for a normal distribution, times one gain that keeps the length."""
    levels = normal_levels(bits)
    length = np.linalg.norm(y, axis=-1, keepdims=True)
    unit = y * np.sqrt(y.shape[-1]) / np.where(length > 0, length, 1)
    read = levels[np.abs(unit[..., None] - levels).argmin(-1)]
    return read * half(length / np.linalg.norm(read, axis=-1, keepdims=True))


@lru_cache
def normal_levels(bits):
    """Each level is the mean of the normal numbers between the midpoints to its neighbours, held as a float32."""
    levels = np.linspace(-2.5, 2.5, 2**bits)
    for _ in range(20000):
        ends = np.concatenate(([-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]))
        below = np.array([math.erf(x / math.sqrt(2)) / 2 for x in ends])
        density = np.exp(-ends**2 / 2) / math.sqrt(2 * math.pi)
        levels, before = -np.diff(density) / np.diff(below), levels
        if np.abs(levels - before).max() < 1e-13:
            break
    return levels.astype(np.float32).astype(float)
