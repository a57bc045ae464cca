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


def spoiled(name, spoil):
    """Writes the good file, changed by `spoil` of its path."""
    write(name, attributes={"stream": "q", "hidden_size": 64})
    spoil(os.path.join(sys.argv[1], name + ".h5"))


def in_place(change):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            values = file["activations"][...]
            del file["activations"]
            change(file, values)
    return spoil


def link(file, _):
    file["activations"] = h5py.ExternalLink("good.h5", "/activations")


def soft_link_to_link(file, _):
    file["elsewhere"] = h5py.ExternalLink("fifo", "/")
    file["activations"] = h5py.SoftLink("/elsewhere/activations")


def storage(file, values):
    file.create_dataset("activations", values.shape, "f4", external=[("/etc/passwd", 0, values.size * 4)])


def virtual(file, values):
    layout = h5py.VirtualLayout(values.shape, "f4")
    layout[...] = h5py.VirtualSource("missing.h5", "activations", values.shape)
    file.create_virtual_dataset("activations", layout)


def virtual_of_any_length(file, values):
    """Its length is in a FIFO, which does not answer."""
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple(values.shape, (h5py.h5s.UNLIMITED, *values.shape[1:]))
    part = space.copy()
    part.select_hyperslab((0, 0, 0), (1, 1, 1), (1, 1, 1), (h5py.h5s.UNLIMITED, *values.shape[1:]))
    create.set_virtual(part, os.path.join(sys.argv[1], "fifo").encode(), b"x", part)
    h5py.h5d.create(file.id, b"activations", h5py.h5t.NATIVE_FLOAT, space, create)


def chunks(tokens, written):
    def change(file, values):
        shape = (tokens, *values.shape[1:])
        dataset = file.create_dataset("activations", shape, "f4", chunks=(2, *shape[1:]), compression="gzip")
        dataset[:written] = values[:written]
    return change


def at_the_dataset(**attributes):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            file["activations"].attrs.update(attributes)
    return spoil


def in_heap(offset, data):
    """Puts bytes into the collection of the global heap, 16 bytes of which precede its first object."""
    def spoil(path):
        with open(path, "r+b") as file:
            begin = file.read().index(b"GCOL")
            file.seek(begin + offset)
            file.write(data)
    return spoil


def newest_format(name, userblock=0):
    """Superblock 3, with its object headers and chunk indices, and more attributes than an object header holds."""
    path = os.path.join(sys.argv[1], name + ".h5")
    with h5py.File(path, "w", libver="latest", userblock_size=userblock) as file:
        file.create_dataset("activations", data=VALUES.astype("f4"), chunks=(2, *VALUES.shape[1:]), compression="gzip")
        file["layer"], file["head"], file["sequence"] = LAYER, HEAD, SEQUENCE
        file.attrs.update({f"note{i}": "x" * i for i in range(20)} | {"stream": "q", "hidden_size": 64})
    with open(path, "rb") as file:
        assert file.read()[userblock + 8] == 3
    return path


def main():
    os.mkfifo(os.path.join(sys.argv[1], "fifo"))
    spoiled("link", in_place(link))
    spoiled("soft_link", in_place(soft_link_to_link))
    spoiled("storage", in_place(storage))
    spoiled("virtual", in_place(virtual))
    spoiled("virtual_length", in_place(virtual_of_any_length))
    spoiled("unwritten", in_place(lambda file, values: file.create_dataset("activations", values.shape, "f4")))
    spoiled("compressed", in_place(chunks(TOKENS, TOKENS)))
    spoiled("chunk_missing", in_place(chunks(TOKENS, TOKENS - 2)))
    spoiled("declared", in_place(chunks(1 << 38, 0)))
    spoiled("two_streams", at_the_dataset(stream="v", hidden_size=64))
    spoiled("two_sizes", at_the_dataset(stream="q", hidden_size=32))
    spoiled("heap_no_signature", in_heap(0, b"g"))
    spoiled("heap_size", in_heap(8, b"\xff" * 8))
    spoiled("heap_object", in_heap(16, b"\7\0"))
    spoiled("heap_object_size", in_heap(16 + 8, b"\xff" * 8))
    spoiled("heap_string_cut", in_heap(16 + 8, b"\0"))
    newest_format("newest")
    newest_format("newest_behind_userblock", 512)
    in_heap(16 + 8, b"\xff" * 8)(newest_format("newest_heap_object_size"))
    write("sequence_clipped", sequence=np.array([2**63, 2**63 + 1, 0, 0, 0, 0], np.uint64))
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
