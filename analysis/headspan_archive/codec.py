"""A codec of keys and values, as `headspan archive calibrate` writes it: what symbols mean, and how coefficients become keys
and values."""
import hashlib
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

SLOTS, CLASSES, PER_OCTAVE = 4096, 8, 16


@dataclass
class Group:
    """The heads of some neighbouring layers, D columns together."""
    stream: str
    first_layer: int
    layers: int
    mean: np.ndarray  # [D]
    unwhitening: np.ndarray  # [layers, kv_heads, d, d]
    basis: np.ndarray  # [n, D]
    deviations: np.ndarray  # [CLASSES, n]


class Tables:
    """The tables of all models, of what is not stored (one symbol), and of classes (the last two)."""

    def __init__(self, slots, shift, offsets):
        models, symbols = slots.shape
        counts = np.zeros((models + 2, symbols), np.int64)
        counts[:models] = slots
        counts[models, 0] = SLOTS
        counts[models + 1, :CLASSES] = SLOTS // CLASSES
        self.nothing, self.classes = models, models + 1
        self.slots, self.first = counts, np.cumsum(counts, 1) - counts
        self.symbol_at = np.array([np.repeat(np.arange(symbols), row) for row in counts])  # [table, slot]
        self.most = np.append((slots > 0).sum(1) // 2 - 1, [0, 0])  # levels of either sign that have a symbol
        self.shift = np.append(shift, [0, 0])
        levels = np.arange(symbols)[None] - self.most[:, None]
        sizes = np.abs(levels)
        less = np.zeros(counts.shape)
        less[:models] = np.where(sizes[:models] == 1, offsets[:, :1], offsets[:, 1:])
        self.values = np.where(levels == 0, 0, np.sign(levels) * (sizes - less)).astype(np.float32)  # [table, symbol]


class Codec:
    def __init__(self, path):
        self.sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        with h5py.File(path) as file:
            schema = np.bytes_(file.attrs.get("headspan_codec", "")).decode()
            if not schema.startswith("1."):
                raise ValueError(f"{path}: headspan_codec = {schema}: is not known")
            if "models" not in file:
                raise ValueError(f"{path}: is a codec of kvtc, which this reader does not know")
            self.layers, self.kv_heads, self.head_size = (int(file.attrs[name]) for name in ("layers", "kv_heads", "head_size"))
            self.lowest_deviation = int(file.attrs["lowest_deviation"])
            self.rotary_of_layer = [int(rule) for rule in file.attrs["rotary_of_layer"]]
            self.rotary = [(file[f"rotary/{rule}/frequencies"][:], float(file[f"rotary/{rule}"].attrs["length"]))
                           for rule in range(len(file["rotary"]))]
            self.tables = Tables(file["models/slots"][:].astype(np.int64), file["models/shift"][:], file["models/offsets"][:])
            self.groups = [self.read_group(stream, file[stream][str(number)])
                           for stream in "kv" for number in range(len(file[stream]))]

    @staticmethod
    def read_group(stream, group):
        basis = group["basis"][:].astype(np.float32) * group["scale"][:][:, None]
        return Group(stream, int(group.attrs["first_layer"]), int(group.attrs["layers"]), group["mean"][:], group["unwhitening"][:],
                     basis, group["deviations"][:].astype(int))

    def models_of(self, group, step):
        """Returns the table of each coefficient in each class: [CLASSES, n]."""
        models = group.deviations - step - self.lowest_deviation
        return np.where(models < 0, self.tables.nothing, np.minimum(models, self.tables.nothing - 1))

    def values_of(self, group, coefficients, positions):
        """Returns keys or values, [layers, heads, tokens, d], of coefficients: [tokens, n]."""
        rows = (coefficients @ group.basis).reshape(len(positions), group.layers, self.kv_heads, self.head_size)
        rows = np.einsum("tlhi,lhij->lhtj", rows, group.unwhitening, dtype=np.float32)
        values = rows + group.mean.reshape(group.layers, self.kv_heads, 1, self.head_size)
        if group.stream == "k":
            for number, layer in enumerate(values):
                rule = self.rotary_of_layer[group.first_layer + number]
                if rule >= 0:
                    rotate(layer, positions, *self.rotary[rule])
        return values


def rotate(heads, positions, frequencies, length):
    """Rotates heads, [heads, tokens, d], in place."""
    half = len(frequencies)
    angles = np.asarray(positions, np.float32)[:, None] * frequencies
    cos, sin = np.cos(angles) * length, np.sin(angles) * length
    low, high = heads[..., :half].copy(), heads[..., half:2 * half].copy()
    heads[..., :half], heads[..., half:2 * half] = low * cos - high * sin, high * cos + low * sin
