"""Arrays over checkpoints as text that a page carries: differences from row to row, deflate, base64.

The page undoes it (templates/report.js, unpack): inflate, then add each row to the one before, modulo the type's size.
R² is stored as a whole number: 0 .. top for low .. 1, and top + 1 for no value. Types are uint8 and uint16,
little-endian.
"""
import base64
import zlib

import numpy as np

NONE8, NONE16 = 255, 65535


def pack(values):
    """values: [checkpoint, ...], uint8 or uint16."""
    flat = np.ascontiguousarray(values).reshape(len(values), -1)
    steps = np.diff(flat, axis=0, prepend=np.zeros_like(flat[:1]))
    return base64.b64encode(zlib.compress(steps.astype(steps.dtype.newbyteorder("<")).tobytes(), 9)).decode()


def unpack(text, dtype, row):
    """What pack was given, as [checkpoint, row]."""
    steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.dtype(dtype).newbyteorder("<"))
    return np.cumsum(steps.reshape(-1, row), axis=0, dtype=dtype)


def share8(r2):
    """R² in [0, 1] to 1/254; what is outside becomes 0 or 1."""
    return np.where(np.isnan(r2), NONE8, np.rint(254 * np.clip(r2, 0, 1))).astype(np.uint8)


def signed16(r2):
    """R² in [-1, 1] to 2/65534; what is below becomes -1."""
    return np.where(np.isnan(r2), NONE16, np.rint(32767 * (1 + np.clip(r2, -1, 1)))).astype(np.uint16)


def scaled16(values, largest):
    """Values in [0, largest]."""
    return np.where(np.isnan(values), NONE16, np.rint(65534 * np.clip(values / largest, 0, 1))).astype(np.uint16)


def index16(heads):
    """Head numbers; -1 becomes no value."""
    if heads.max(initial=0) >= NONE16:
        raise ValueError("more heads than 16 bits count")
    return np.where(heads < 0, NONE16, heads).astype(np.uint16)
