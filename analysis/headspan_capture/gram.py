"""Grams of the heads of one stream, as headspan saves and reads them (src/io/README.md): tokens, means, and cross-products
about the mean, in float64."""
import datetime
import os
from pathlib import Path

import h5py
import numpy as np

from headspan import __version__
from headspan.error import InputError
from headspan.opening import digest

STREAMS = ("k", "q", "v", "z")
PARTS = ("fit", "heldout")


class Sums:
    """n, mean and cross-products of rows that arrive in batches, merged as Chan, Golub and LeVeque (1979) do."""

    def __init__(self):
        self.tokens, self.mean, self.products = 0, None, None

    def add(self, rows):
        """rows: [tokens, columns], a numpy array or a torch tensor, in float64."""
        count = len(rows)
        if count == 0:
            return
        mean = rows.mean(0)
        centred = rows - mean
        products = centred.T @ centred
        if self.tokens == 0:
            self.tokens, self.mean, self.products = count, mean, products
            return
        step, total = mean - self.mean, self.tokens + count
        self.products += products
        self.products += (step[:, None] * step[None, :]) * (self.tokens * count / total)
        self.mean = self.mean + step * (count / total)
        self.tokens = total


class GramAccumulator:
    """Sums the Gram of a stream over batches of tokens.

        gram = GramAccumulator(layers=2, heads=4, head_size=16, stream="k")
        for batch in batches:
            for layer in range(2):
                for head in range(4):
                    gram.add(layer, head, values)     # [tokens, head_size]: the same tokens for every head
        gram.write("mine.gram.h5", model_name="mine")

    A batch is complete when every head has been added once. `heldout=True` adds a batch to the part on which headspan
    scores and does not fit. Values may be numpy arrays or torch tensors, on any device; sums are formed where they are,
    in float64.
    """

    def __init__(self, layers, heads, head_size, stream="k", capture="given", hidden_size=0, forward_dtype="float32",
                 skip_first=0):
        """heads: of each layer, one number or a list. capture: proj, normed, roped, or given if you do not say.
        hidden_size: of the model, for nulls; 0: unknown. forward_dtype: in which the values were computed."""
        if stream not in STREAMS:
            raise InputError("", "stream", stream, "is not known", "one of " + ", ".join(STREAMS))
        per_layer = [heads] * layers if isinstance(heads, int) else list(heads)
        self.stream, self.capture, self.head_size, self.hidden_size = stream, capture, head_size, hidden_size
        self.forward_dtype, self.skip_first = forward_dtype, skip_first
        self.places = [(layer, head) for layer, count in enumerate(per_layer) for head in range(count)]
        self.parts = {part: Sums() for part in PARTS}
        self.waiting, self.heldout = {}, None

    def add(self, layer, head, values, heldout=False):
        """Adds the values of one head: [tokens, head_size]. Raises InputError if they do not go with the batch."""
        place = (layer, head)
        where = f"layer {layer} head {head}"
        if place not in self.places:
            raise InputError("", where, "", "is not among the heads of the accumulator", "count layers and heads from 0")
        if place in self.waiting:
            raise InputError("", where, "", f"is given twice, and {len(self.places) - len(self.waiting)} heads of the batch "
                             "are missing", "give every head once")
        if values.ndim != 2 or values.shape[1] != self.head_size:
            raise InputError("", where, "x".join(map(str, values.shape)), "has the wrong shape",
                             f"[tokens, {self.head_size}]")
        first = next(iter(self.waiting.values()), values)
        if len(values) != len(first) or (self.waiting and heldout != self.heldout):
            raise InputError("", where, len(values), "are not the tokens of the other heads of the batch",
                             f"{len(first)} tokens, of the same part")
        self.waiting[place], self.heldout = values, heldout
        if len(self.waiting) == len(self.places):
            self.add_rows(joined([self.waiting[place] for place in self.places]), heldout)
            self.waiting = {}

    def add_rows(self, rows, heldout=False):
        """Adds the values of all heads at once: [tokens, heads of all layers * head_size]."""
        self.parts["heldout" if heldout else "fit"].add(rows)

    def write(self, path, **attributes):
        """Writes the file and its .done; attributes: of the root, such as model_name, step, tokens_sha256."""
        write_grams(path, [self], attributes)

    def write_stream(self, file):
        group = file.create_group(self.stream)
        group.attrs.update({"head_size": self.head_size, "hidden_size": self.hidden_size, "capture": self.capture,
                            "forward_dtype": self.forward_dtype, "precision": "float64", "skip_first": self.skip_first,
                            **{name: np.array([place[i] for place in self.places], np.int64)
                               for i, name in enumerate(("layer", "head"))}})
        for part, sums in self.parts.items():
            if part == "fit" or sums.tokens > 0:
                write_part(group.create_group(part), sums, len(self.places), self.head_size)


def joined(values):
    """Returns [tokens, columns] in float64, where the values are."""
    if isinstance(values[0], np.ndarray):
        return np.concatenate([value.astype(np.float64) for value in values], 1)
    import torch
    return torch.cat([value.detach().to(torch.float64) for value in values], 1)


def as_numpy(values):
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def write_part(group, sums, heads, d):
    group.attrs["tokens"] = sums.tokens
    columns = heads * d
    group["mean"] = as_numpy(sums.mean) if sums.tokens else np.zeros(columns)
    products = as_numpy(sums.products) if sums.tokens else np.zeros((columns, columns))
    tiles = group.create_dataset("tiles", (heads * (heads + 1) // 2, d, d), np.float64)
    for a in range(heads):
        row = products[a * d:(a + 1) * d, :(a + 1) * d].reshape(d, a + 1, d).transpose(1, 0, 2)
        tiles[a * (a + 1) // 2:(a + 1) * (a + 2) // 2] = row


def write_grams(path, accumulators, attributes, attention=None):
    """Writes PATH and PATH.done. attention: {"tokens", "scale", "query", "output"} as src/io/README.md has them, or None.
    Raises InputError if a batch is incomplete or there are no tokens."""
    path = Path(path)
    for gram in accumulators:
        if gram.waiting:
            raise InputError(path, gram.stream, "", f"{len(gram.places) - len(gram.waiting)} heads of the last batch are "
                             "missing", "give every head once")
        if gram.parts["fit"].tokens == 0:
            raise InputError(path, gram.stream, "", "has no tokens to fit on", "add values with heldout=False")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    attributes = {"headspan_schema": "1.0", "title": "Grams of attention heads", "source": f"headspan-capture {__version__}",
                  "history": f"{now} headspan-capture", "date_created": now, "init": "pretrained", **attributes}
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        with h5py.File(temporary, "w") as file:
            for name, value in attributes.items():
                file.attrs[name] = value if not isinstance(value, str) else np.bytes_(value.encode())
            for gram in accumulators:
                gram.write_stream(file)
            if attention is not None:
                group = file.create_group("attention")
                group.attrs["tokens"] = attention["tokens"]
                for name in ("scale", "query", "output"):
                    group[name] = attention[name]
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def publish(temporary, path):
    """Names a file, and writes its .done after it."""
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
        sha256, size = digest(file), os.fstat(file.fileno()).st_size
    done = path.with_name(f"{path.name}.done")
    done.unlink(missing_ok=True)
    os.replace(temporary, path)
    finished = done.with_name(f"{done.name}.tmp.{os.getpid()}")
    finished.write_text(f"size {size}\nsha256 {sha256}\njob_id headspan-capture\njob_digest {sha256}\n")
    os.replace(finished, done)
