"""Gram files of keys and values with the moments of attention, for calibrate and inspect: numbers that no data gives."""
import h5py
import numpy as np

from harness import Case

LAYERS, HEADS, D, TOKENS = 2, 2, 3, 40
CALIBRATE = ["calibrate", "--grams.paths=a.gram.h5", "--compress.plan=plan.h5", "--compress.exact_first=0",
             "--compress.stored=0.5"]
STUDY = ["study", "--grams.paths=a.gram.h5", "--output.directory=out"]
INSPECT = ["inspect", "a.gram.h5"]
DAMAGED = "; the file is damaged"


def draw(layers=LAYERS, heads=HEADS, d=D, tokens=TOKENS, seed=4):
    """Keys and values, and moments of attention in which two query heads read each KV head."""
    chance = np.random.default_rng(seed)
    squares = [x.swapaxes(-1, -2) @ x for x in chance.standard_normal((2, layers, 2 * heads, 2 * d, d))]
    return {"k": chance.standard_normal((tokens, layers, heads, d)), "v": chance.standard_normal((tokens, layers, heads, d)),
            "scale": chance.uniform(1, 2, layers), "query": squares[0], "output": squares[1]}


def write_grams(path, drawn, heldout=None, precision="float64"):
    """drawn, heldout: as `draw` returns them."""
    with h5py.File(path, "w") as file:
        for stream in "kv":
            tokens, layers, heads, d = drawn[stream].shape
            for part, values in (("fit", drawn), ("heldout", heldout)) if heldout else (("fit", drawn),):
                z = values[stream].reshape(tokens, -1)
                gram = (z - z.mean(0)).T @ (z - z.mean(0))
                file[f"{stream}/{part}/mean"] = z.mean(0)
                file[f"{stream}/{part}/tiles"] = [gram[a * d:(a + 1) * d, b * d:(b + 1) * d]
                                                  for a in range(layers * heads) for b in range(a + 1)]
                file[f"{stream}/{part}"].attrs["tokens"] = tokens
            file[stream].attrs.update({"layer": np.repeat(np.arange(layers), heads), "head": np.tile(np.arange(heads), layers),
                                       "head_size": d, "hidden_size": 16, "skip_first": 0, "capture": "roped",
                                       "forward_dtype": "float64", "precision": precision})
        for name in ("scale", "query", "output"):
            file[f"attention/{name}"] = drawn[name]
        file["attention"].attrs["tokens"] = tokens


def tokens(group, count):
    return lambda file: file[group].attrs.__setitem__("tokens", np.int64(count))


def element(name, index, value):
    def change(file):
        file[name][index] = value
    return change


def indefinite_layer(file):
    """Keys of layer 1: the Gram of each head is sound, but both together are indefinite."""
    lengths = np.sqrt(np.concatenate([file["k/fit/tiles"][tile].diagonal() for tile in (5, 9)]))
    file["k/fit/tiles"][8] = 0.99 * np.outer(lengths[D:], lengths[:D])
    for tile, norms in ((5, lengths[:D]), (9, lengths[D:])):
        file["k/fit/tiles"][tile] = np.diag(norms**2)


def drop_heldout(file):
    del file["v/heldout"]


def no_tokens(file):
    for group in ("k/fit", "v/fit", "attention"):
        tokens(group, 0)(file)


def case(name, line, change, arguments, heldout=False):
    def spoil(sample):
        write_grams(sample.path("a.gram.h5"), draw(), draw(seed=5) if heldout else None)
        with h5py.File(sample.path("a.gram.h5"), "r+") as file:
            change(file)
    return Case(name, r"a\.gram\.h5: " + line + DAMAGED, spoil, arguments=arguments)


def in_each(name, line, change, **more):
    return [case(f"{name}: {arguments[0]}", line, change, arguments, **more)
            for arguments in (CALIBRATE, INSPECT)]


CASES = [
    *(case(f"Gram that is indefinite between heads: {algorithm}", r"k, layer 1: its Gram is not positive semidefinite",
           indefinite_layer, [*CALIBRATE, f"--compress.algorithm={algorithm}", "--compress.references=1"])
      for algorithm in ("latent", "headspan", "paper-text")),
    *in_each("Gram with NaN", r"v/fit/tiles\[4, 0, 2\] = nan: is not a finite number", element("v/fit/tiles", (4, 0, 2), np.nan)),
    *in_each("Gram with infinity", r"k/fit/tiles\[5, 2, 2\] = inf: is not a finite number",
             element("k/fit/tiles", (5, 2, 2), np.inf)),
    *in_each("Gram with a negative square", r"v/heldout/tiles\[9, 1, 1\] = -5: is a negative sum of squares",
             element("v/heldout/tiles", (9, 1, 1), -5), heldout=True),
    *in_each("Gram that is not symmetric", r"k/fit/tiles\[2, 1, 0\] = 20: differs from its mirror image",
             element("k/fit/tiles", (2, 1, 0), 20)),
    *in_each("Gram with a mean of NaN", r"k/fit/mean\[7\] = nan: is not a finite number", element("k/fit/mean", 7, np.nan)),
    *in_each("Grams of other tokens", r"v/fit: tokens = 39: are not the 40 of k/fit", tokens("v/fit", 39)),
    *in_each("held-out Grams of other tokens", r"v/heldout: tokens = 41: are not the 40 of k/heldout", tokens("v/heldout", 41),
             heldout=True),
    *in_each("Gram without its held-out part", r"v/heldout: is missing, unlike that of k", drop_heldout, heldout=True),
    *in_each("Gram of 2^62 tokens", r"k/fit: tokens = 4611686018427387904: is no number of tokens", tokens("k/fit", 2**62)),
    *(case(f"Grams of no tokens: {arguments[0]}", r"k/fit/tiles\[0, 0, 0\] = .+: is a sum of squares of no tokens", no_tokens,
           arguments) for arguments in (STUDY, INSPECT)),
    *in_each("attention of other tokens", r"attention: tokens = 7: are not the 40 of k/fit", tokens("attention", 7)),
    *in_each("attention that is not symmetric", r"attention/query\[1, 2, 1, 0\] = 0: differs from its mirror image",
             element("attention/query", (1, 2, 1, 0), 0)),
    *in_each("attention with a negative square", r"attention/output\[0, 3, 1, 1\] = -2: is a negative sum of squares",
             element("attention/output", (0, 3, 1, 1), -2)),
    *in_each("attention with infinity", r"attention/output\[0, 3, 1, 0\] = inf: is not a finite number",
             element("attention/output", (0, 3, 1, 0), np.inf)),
    *in_each("attention beyond its squares", r"attention/query\[0, 0, 0, 1\] = 99: is more than the sums of squares allow",
             element("attention/query", (0, 0, 0, 1), 99)),
    *in_each("attention that is not positive semidefinite", r"attention/query\[1, 0\]: is not positive semidefinite",
             element("attention/query", (1, 0), 1.9 * np.eye(3) - 0.9)),
    *(line for value, text in ((0, "0"), (-1, "-1"), (np.nan, "nan"), (np.inf, "inf"))
      for line in in_each(f"attention with a scale of {text}", rf"attention/scale\[1\] = {text}: is no mean of 1 / squares",
                          element("attention/scale", 1, value))),
]
