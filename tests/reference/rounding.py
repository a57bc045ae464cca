"""The algorithms that round all columns of keys and values to few bits, in numpy and float64: what is read back of rows."""
import math
from functools import lru_cache

import numpy as np

from latents import quantise, quantise_groups

BLOCK = 32  # columns of llama.cpp's types


def group_of(algorithm, heads, d, bits):
    """Returns the group of a layer of a plan."""
    columns = quantise_groups(heads, d)
    if algorithm == "hadamard":
        columns = [d] * heads
    elif algorithm.startswith("rotated"):
        columns, bits = [BLOCK] * (d // BLOCK) + [d % BLOCK] * (d % BLOCK > 0), int(algorithm[-1])
        columns *= heads
    return {"band_columns": columns, "band_bits": [int(bits)] * len(columns)}


def share_of(algorithm, group):
    """Returns the stored bytes over those of 16-bit numbers."""
    scales = 2 if algorithm == "quantise" else 1
    stored = sum(-(-columns * bits // 8) + 2 * scales for columns, bits in zip(group["band_columns"], group["band_bits"]))
    return stored / (2 * sum(group["band_columns"]))


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
    """Returns what each query sees of x: [query, tokens, heads, d]. Behind the first tokens, keys are rounded by column in
    groups of 32 tokens and values by token in groups of 32 columns of a head; a query sees a token as it is until the
    token's group is complete, and those of `starts` always, which count as 0 in their group."""
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
    query, token = np.arange(tokens)[:, None], np.arange(tokens)
    exact = (token >= first + np.maximum(0, query + 1 - first) // BLOCK * BLOCK) | np.isin(token, starts)
    return np.where(exact[..., None, None], x, rounded)


def by_range(x, bits, axis, clip=1):
    """Rounds to steps from the smallest number along the axis to the largest, both times `clip`. The smallest and the step
    are float16."""
    low, high = clip * x.min(axis, keepdims=True), clip * x.max(axis, keepdims=True)
    low, step = half(low), half((high - low) / (2.0**bits - 1))
    codes = np.rint(np.divide(x - low, step, out=np.zeros_like(x), where=step > 0))
    return low + np.clip(codes, 0, 2**bits - 1) * step


def half(x):
    """Rounds to float16, through float32 as the program does: 1 of 8192 numbers would otherwise be rounded elsewhere."""
    return x.astype(np.float32).astype(np.float16).astype(float)


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
    """Each level is the mean of the normal numbers between the midpoints to its neighbours."""
    levels = np.linspace(-2.5, 2.5, 2**bits)
    for _ in range(20000):
        ends = np.concatenate(([-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]))
        below = np.array([math.erf(x / math.sqrt(2)) / 2 for x in ends])
        density = np.exp(-ends**2 / 2) / math.sqrt(2 * math.pi)
        levels, before = -np.diff(density) / np.diff(below), levels
        if np.abs(levels - before).max() < 1e-13:
            break
    return levels
