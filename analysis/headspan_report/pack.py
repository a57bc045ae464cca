"""Packs arrays over checkpoints as text in a page: differences between rows, deflate, base64.

The page reverses it (unpack in templates/report.js): inflate, then add the previous row to each row, modulo the size of
the type. R² is stored as an integer: 0 .. top for low .. 1, and top + 1 for a missing value. Types are uint8 and
uint16, little-endian.
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
    """Returns the values that pack was given, as [checkpoint, row]."""
    steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.dtype(dtype).newbyteorder("<"))
    return np.cumsum(steps.reshape(-1, row), axis=0, dtype=dtype)


def share8(r2):
    """Encodes R² in [0, 1] in steps of 1/254; values outside become 0 or 1."""
    return np.where(np.isnan(r2), NONE8, np.rint(254 * np.clip(r2, 0, 1))).astype(np.uint8)


def signed16(r2):
    """Encodes R² in [-1, 1] in steps of 2/65534; values below become -1."""
    return np.where(np.isnan(r2), NONE16, np.rint(32767 * (1 + np.clip(r2, -1, 1)))).astype(np.uint16)


def scaled16(values, largest):
    """Encodes values in [0, largest]."""
    return np.where(np.isnan(values), NONE16, np.rint(65534 * np.clip(values / largest, 0, 1))).astype(np.uint16)


def index16(heads):
    """Encodes head numbers; -1 becomes the missing value."""
    if heads.max(initial=0) >= NONE16:
        raise ValueError("more heads than 16 bits count")
    return np.where(heads < 0, NONE16, heads).astype(np.uint16)
