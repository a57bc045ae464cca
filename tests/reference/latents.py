"""Latents of a layer in the attention metric, their bits, and the quantisers, in numpy and float64.

A block is one stream of one layer. S = blockdiag(M_t^(1/2)); the eigenvectors U of S C S, with descending eigenvalues,
give the latents z = (x - mean) S U, and back x^ = z U^T S^-1 + mean. An independent reference for the tests, slow and
obvious.
"""
from dataclasses import dataclass
from itertools import groupby

import numpy as np

BITS = range(1, 9)
SCALE_BITS = 16
NORMAL_STEPS = {1: 1.5958, 2: 0.9957, 3: 0.5860, 4: 0.3352, 5: 0.1881, 6: 0.1041, 7: 0.0569, 8: 0.0308}  # Max, for a normal number
FLOOR = 1e-9  # of the layer's largest eigenvalue of a metric


@dataclass
class Block:
    mean: np.ndarray  # [D]
    eigenvalues: np.ndarray  # [D], descending
    into: np.ndarray  # [D, D] S U
    back: np.ndarray  # [D, D] U^T S^-1


def block(mean, covariance, metrics):
    """metrics: [heads, d, d] of the layer."""
    values, vectors = zip(*(np.linalg.eigh(m) for m in metrics))
    floor = FLOOR * np.max(values)
    heads, d = np.shape(values)
    root, inverse = np.zeros((2, heads * d, heads * d))
    for t in range(heads):
        own = slice(t * d, (t + 1) * d)
        scale = np.sqrt(np.maximum(values[t], floor))
        root[own, own] = vectors[t] * scale @ vectors[t].T
        inverse[own, own] = vectors[t] / scale @ vectors[t].T
    eigenvalues, u = np.linalg.eigh(root @ covariance @ root)
    eigenvalues, u = np.maximum(eigenvalues[::-1], 0), u[:, ::-1]
    return Block(mean, eigenvalues, root @ u, u.T @ inverse)


def blocks_of(moments, names):
    """Returns the blocks of moments.Moments: streams in the order of names, layer by layer."""
    return [block(*moments.of_layer(s, layer), metrics=metrics) for s in names for layer, metrics in enumerate(moments.metric[s])]


def bands_of(bits):
    """Returns [(columns, bits)] of the latents that are stored; bits never increase."""
    return [(len(list(run)), int(b)) for b, run in groupby(bits) if b > 0]


def cost(bands):
    """Returns the bits per token of one block: those of the latents, and a scale for each quantised band."""
    return sum(columns * bits + (SCALE_BITS if bits < 16 else 0) for columns, bits in bands)


def budget(stored, blocks):
    """Returns the budget in bits; rounding must not exclude a share that is meant exactly."""
    return stored * 16 * sum(len(b.eigenvalues) for b in blocks) * (1 + 1e-12)


def bits_at(eigenvalues, theta):
    """Returns the largest b with b <= log2(eigenvalue / theta) / 2 + 1, that is theta <= eigenvalue / 4^(b - 1);
    otherwise 0."""
    bits = np.zeros(len(eigenvalues), int)
    for b in BITS:
        bits[theta <= eigenvalues / 4.0 ** (b - 1)] = b
    return bits


def water_level(blocks, limit):
    """Returns the bits for the smallest theta whose cost is within the limit, and that theta.

    The bits are the same for all theta in (lower, upper], where lower and upper are neighbours among the values at
    which a latent changes its bits. Returns the first such interval's bits, and its lower end. The cost does not always
    decrease with theta, because a larger theta can start a band: first means lowest.
    """
    changes = np.concatenate([b.eigenvalues / 4.0 ** (bits - 1) for b in blocks for bits in BITS])
    lower = 0.0
    for upper in np.append(np.unique(changes[changes > 0]), np.inf):
        bits = [bits_at(b.eigenvalues, upper) for b in blocks]
        if sum(cost(bands_of(b)) for b in bits) <= limit:
            return bits, lower
        lower = upper
    raise AssertionError("no latents at all cost nothing")


def largest_columns(blocks, limit):
    """Returns whole columns of 16 bits with the largest eigenvalues of all; ties to the earlier block."""
    order = sorted((-value, i, j) for i, b in enumerate(blocks) for j, value in enumerate(b.eigenvalues))
    bits = [np.zeros(len(b.eigenvalues), int) for b in blocks]
    for _, i, j in order[:int(limit // 16)]:
        bits[i][j] = 16
    return bits


def parse_bands(text):
    """"16x8,32x6" -> [(columns, bits)]."""
    return [tuple(map(int, band.split("x"))) for band in text.split(",")]


def layer_plan(own, bands, expected_loss):
    """Returns one group of a plan file."""
    r = sum(columns for columns, _ in bands)
    return {"band_columns": [c for c, _ in bands], "band_bits": [b for _, b in bands], "expected_loss": expected_loss,
            "mean": own.mean, "projection": own.into[:, :r], "lift": own.back[:r], "bias": own.mean,
            "eigenvalues": own.eigenvalues}


def listed_loss(eigenvalues, bands):
    """Returns what is dropped, and eigenvalue / 4^(b - 1) for the rest: the theta for which auto would choose just
    these bits."""
    bits = np.concatenate([np.full(columns, b) for columns, b in bands])
    return (eigenvalues[:len(bits)] / 4.0 ** (bits - 1)).sum() + eigenvalues[len(bits):].sum()


def plan(blocks, stored, bits="auto"):
    """Returns [the plan group of each block], expected_loss, the share that is stored. bits: auto, 16 or a list of
    bands.

    Expected loss of a block: for auto, the sum of min(eigenvalue, theta); for 16, the sum of what is dropped; for a
    list, listed_loss.
    """
    if bits == "auto":
        chosen, theta = water_level(blocks, budget(stored, blocks))
        bands = [bands_of(b) for b in chosen]
        losses = [np.minimum(b.eigenvalues, theta).sum() for b in blocks]
    elif bits == "16":
        chosen = largest_columns(blocks, budget(stored, blocks))
        bands = [bands_of(b) for b in chosen]
        losses = [b.eigenvalues[own == 0].sum() for b, own in zip(blocks, chosen)]
    else:
        bands = [parse_bands(bits)] * len(blocks)
        losses = [listed_loss(b.eigenvalues, own) for b, own in zip(blocks, bands)]
    share = sum(map(cost, bands)) / (16 * sum(len(b.eigenvalues) for b in blocks))
    return [layer_plan(*each) for each in zip(blocks, bands, losses)], sum(losses), share


def half(x):
    """Rounds to float16, through float32 as the program does: 1 of 8192 numbers would otherwise be rounded elsewhere."""
    return x.astype(np.float32).astype(np.float16).astype(float)


def quantise_band(z, bits):
    """Returns [tokens, columns] as read back: mid-rise, one float16 scale per token; 16 bits: unchanged."""
    if bits == 16:
        return z
    middle = 2.0 ** (bits - 1)
    a = half(np.abs(z).max(1, keepdims=True) / (middle - 0.5))
    codes = np.clip(np.rint(np.divide(z, a, out=np.zeros_like(z), where=a > 0) - 0.5), -middle, middle - 1)
    return (codes + 0.5) * a


def quantise_gain(z, columns, bits, weights):
    """Returns [tokens, columns] as read back: mid-rise in units of each column, all times one float16 gain per token, the
    multiple of the root mean square that loses least."""
    bits = np.repeat(bits, columns)
    middle, step = 2.0 ** (bits - 1), np.array([NORMAL_STEPS[b] for b in bits])
    mean = np.sqrt(((z * step) ** 2).mean(1, keepdims=True))
    read = []
    for quarter in range(-2, 6):
        a = half(2 ** (quarter / 4) * mean)
        codes = np.clip(np.rint(np.divide(z, a, out=np.zeros_like(z), where=a > 0) - 0.5), -middle, middle - 1)
        read.append((codes + 0.5) * a)
    errors = [((z - r) ** 2 * weights).sum(1) for r in read]
    return np.stack(read)[np.argmin(errors, 0), np.arange(len(z))]


def restore(x, group):
    """Returns x^ for the rows x: [tokens, D] by a latent group of a plan."""
    z = (x - group["mean"]) @ group["projection"]
    if "weights" in group:
        return quantise_gain(z, group["band_columns"], group["band_bits"], group["weights"]) @ group["lift"] + group["bias"]
    begin = 0
    for columns, bits in zip(group["band_columns"], group["band_bits"]):
        z[:, begin:begin + columns] = quantise_band(z[:, begin:begin + columns], bits)
        begin += columns
    return z @ group["lift"] + group["bias"]


def quantise_groups(heads, d):
    """Returns the number of columns in each group of `quantise`: whole heads, 64 columns or slightly more; the last may
    have fewer."""
    each = -(-64 // d)
    return [min(each, heads - begin) * d for begin in range(0, heads, each)]


def quantise(x, columns, bits):
    """Returns x^ for the rows x: [tokens, D]; per token and group: lo, and a step of (hi - lo) / (2^bits - 1), both
    float16."""
    out, begin = np.empty_like(x), 0
    for size in columns:
        part = x[:, begin:begin + size]
        lo, hi = part.min(1, keepdims=True), part.max(1, keepdims=True)
        lo, step = half(lo), half((hi - lo) / (2.0**bits - 1))
        codes = np.rint(np.divide(part - lo, step, out=np.zeros_like(part), where=step > 0))
        out[:, begin:begin + size] = lo + np.clip(codes, 0, 2**bits - 1) * step
        begin += size
    return out
