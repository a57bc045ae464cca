"""HDF5 files that name other files, lack what they declare, or are damaged: activations, Grams, plans and results."""
import h5py
import numpy as np

from evaluate_cases import ARGUMENTS, plan, prepared
from harness import Case
from samples import ACTIVATIONS

GRAMS = {"grams.paths": "a.gram.h5", "output.directory": "out", "predict.streams": "k"}
DAMAGED = "; the file is damaged"


def write_gram(sample, layer=(0, 0), hidden_size=16, indefinite=False, **spoiled):
    """Writes Grams of two heads of three coordinates; `spoiled`: values of the three tiles by name."""
    chance = np.random.default_rng(4)
    z = chance.standard_normal((40, 6))
    gram = (z - z.mean(0)).T @ (z - z.mean(0))
    tiles = np.array([gram[:3, :3], gram[3:, :3], gram[3:, 3:]])
    if indefinite:  # each coordinate against both others
        lengths = np.sqrt(tiles[2].diagonal())
        tiles[2] = np.outer(lengths, lengths) * (1.9 * np.eye(3) - 0.9)
    for name, value in spoiled.items():
        tiles[tuple(map(int, name.lstrip("t")))] = value
    with h5py.File(sample.path("a.gram.h5"), "w") as file:
        file["k/fit/mean"], file["k/fit/tiles"] = z.mean(0), tiles
        file["k/fit"].attrs["tokens"] = len(z)
        file["k"].attrs.update({"layer": layer, "head": [0, 1], "head_size": 3, "hidden_size": hidden_size, "skip_first": 0,
                                "capture": "roped", "forward_dtype": "float64", "precision": "float64"})


def grams(name, line, **changes):
    return Case(name, r"a\.gram\.h5: " + line, lambda sample: write_gram(sample, **changes), base=GRAMS)


def linked_grams(sample):
    write_gram(sample)
    sample.path("a.gram.h5").rename(sample.path("b.h5"))
    with h5py.File(sample.path("a.gram.h5"), "w") as file:
        file["k"] = h5py.ExternalLink("b.h5", "/k")


def linked_activations(sample):
    sample.write_activations(np.random.default_rng(1).standard_normal((40, 3, 2)))
    sample.path("y.h5").write_bytes(sample.path("z.h5").read_bytes())
    with h5py.File(sample.path("z.h5"), "a") as file:
        del file["activations"]
        file["activations"] = h5py.ExternalLink("y.h5", "/activations")


def never_written(sample):
    sample.write_activations(np.zeros((8, 2, 2)))
    with h5py.File(sample.path("z.h5"), "a") as file:
        del file["activations"], file["sequence"]
        file.create_dataset("activations", (1 << 38, 2, 2), "f4", chunks=(1024, 2, 2))


def damaged_string(sample):
    """Gives the first object of the heap a size that no file could have."""
    prepared(sample)
    data = bytearray(sample.path("plan.h5").read_bytes())
    begin = data.index(b"GCOL") + 16 + 8
    data[begin:begin + 8] = b"\xff" * 8
    sample.path("plan.h5").write_bytes(data)


def root(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


def replaced(name, value):
    def change(file):
        del file[name]
        if value is None:
            file.create_group(name)
        else:
            file[name] = value
    return change


CASES = [
    Case("activations in another file", "z.h5: activations: is a link to another file; .+", linked_activations, base=ACTIVATIONS),
    Case("activations that were never written", "z.h5: activations: has values that the file does not hold; .+", never_written,
         base=ACTIVATIONS),
    Case("Grams in another file", r"a\.gram\.h5: k: is a link to another file; .+", linked_grams, base=GRAMS),
    grams("Gram with infinity", r"k/fit/tiles\[1, 0, 1\] = inf: is not a finite number" + DAMAGED, t101=np.inf),
    grams("Gram with a negative square", r"k/fit/tiles\[2, 1, 1\] = -5: is a negative sum of squares" + DAMAGED, t211=-5),
    grams("Gram that is not symmetric", r"k/fit/tiles\[2, 1, 0\] = .+: differs from its mirror image" + DAMAGED, t210=20),
    grams("Gram that is not positive semidefinite",
          r"k, layer 0, head 1: its Gram is not positive semidefinite" + DAMAGED, indefinite=True),
    grams("Gram of a negative hidden size", "k: hidden_size = -3: is negative" + DAMAGED, hidden_size=-3),
    grams("Gram whose layers descend", "k: layer, head = 0, 1: does not follow the head before it" + DAMAGED, layer=(1, 0)),
    Case("plan with a damaged string", r"plan\.h5: \S+: is a string that is not where the file says" + DAMAGED, damaged_string,
         arguments=ARGUMENTS),
    plan("plan whose layers are text", "layers: is not a whole number; .+", root("layers", "two")),
    plan("plan whose algorithm is a number", "algorithm: is not a string; .+", root("algorithm", 3)),
    plan("plan of 2^62 layers", "layers = 4611686018427387904: is no size; .+", root("layers", np.int64(2**62))),
    plan("plan with more than 63 bits", r"references: is above 2\^63 - 2; .+", root("references", np.uint64(2**63 + 5))),
    plan("plan with a group for a table", "k/1/lift: is not a dataset; .+", replaced("k/1/lift", None)),
    plan("plan with a table for a group", "k/1: .+; .+", replaced("k/1", [1.0])),
    plan("plan with text for numbers", "v/0/mean: does not hold numbers; .+", replaced("v/0/mean", ["a"] * 8)),
    plan("plan with a number for a table", "v/0/mean: has another shape .+; .+", replaced("v/0/mean", 1.0)),
    plan("plan that forges a line", r"algorithm = magic\\x0Aheadspan: all is well: is not known .+; .+",
         root("algorithm", "magic\nheadspan: all is well")),
]
