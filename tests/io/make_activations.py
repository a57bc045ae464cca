"""Writes the activation files of test_activations.cpp with h5py: good.h5, plain.h5, and one file for each fault.

usage: make_activations.py FOLDER
The value at (token, layer, head, coordinate) is token + 100 layer + 10 head + coordinate / 8.
"""
import os
import sys

import h5py
import numpy as np

TOKENS, SIZE = 6, 4
LAYER, HEAD = np.array([1, 0, 1, 0]), np.array([2, 1, 0, 0])
SEQUENCE = [5, 5, 9, 5, 5, 5]
VALUES = (np.arange(TOKENS)[:, None, None] + (100 * LAYER + 10 * HEAD)[:, None] + np.arange(SIZE) / 8)


def write(name, dtype="float32", values=VALUES, attributes=None, **datasets):
    parts = {"activations": np.asarray(values, dtype), "layer": LAYER, "head": HEAD, **datasets}
    with h5py.File(os.path.join(sys.argv[1], name + ".h5"), "w") as file:
        for key, value in parts.items():
            if value is not None:
                file[key] = value
        for key, value in (attributes or {}).items():
            file.attrs[key] = value


def with_value(value):
    values = VALUES.copy()
    values[4, 2, 3] = value
    return values


def main():
    write("good", attributes={"stream": "q", "hidden_size": 64}, sequence=SEQUENCE)
    write("plain", dtype="float64")
    write("bytes", attributes={"stream": np.bytes_("v"), "hidden_size": np.int32(8)}, head=HEAD.astype(np.uint8))
    write("nan", values=with_value(np.nan))
    write("infinite", values=with_value(-np.inf), dtype="float64")
    write("no_values", activations=None)
    write("group", activations=None, **{"activations/x": [1]})
    write("no_layer", layer=None)
    write("rank", values=VALUES[0])
    write("empty", values=VALUES[:0])
    write("half", dtype="float16")
    write("integers", dtype="int32")
    write("layer_length", layer=[0, 1, 2])
    write("head_type", head=HEAD.astype(float))
    write("head_negative", head=[2, 1, -1, 0])
    write("twice", head=[2, 1, 2, 0])
    write("sequence_length", sequence=SEQUENCE[:-1])
    write("stream", attributes={"stream": "x"})
    write("stream_type", attributes={"stream": 3})
    write("hidden_zero", attributes={"hidden_size": 0})
    write("hidden_type", attributes={"hidden_size": 1.5})
    with open(os.path.join(sys.argv[1], "text.h5"), "w", encoding="utf-8") as file:
        file.write("no HDF5")


main()
