"""Reads one result file of headspan: checks that it is complete and valid, and returns its contents.

Computes no statistic. A stream has `heads` heads, in order of layers, and N = `references`; its tables are numpy
arrays: [heads, heads] is [target, source], [heads, N] is [target, count]. What a file may leave out (held-out tables,
ceilings, the group `overlap`) is absent from `tables`, or None.
"""
from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headspan.error import InputError
from headspan.opening import STREAMS, check_complete, check_result, one_line, open_checked, plain

RULES = ("pairwise", "forward")
FLAGS = {"deficient_source": 1, "constant_target_coordinate": 2, "too_few_tokens": 4, "outside_band": 8,
         "not_computed": 16}

# Table -> axes; a file may leave out those in the second half.
REQUIRED = {"r2": ("head", "head"), "status": ("head", "head"), "effective_rank": ("head",)}
OPTIONAL = {
    "r2_heldout": ("head", "head"), "effective_rank_layer": ("layer",),
    **{f"{name}_{rule}{part}": ("head", "count") for rule in RULES
       for name, part in (("references", ""), ("r2", ""), ("r2", "_heldout"), ("status", ""))},
    **dict.fromkeys(("ceiling_layer", "ceiling_layer_adjusted", "ceiling_layer_heldout", "ceiling_causal",
                     "status_ceiling_layer"), ("head",)),
    "canonical_layer": ("layer", "within", "within"),
    **dict.fromkeys(("cka", "cca", "procrustes"), ("head", "head")), "cka_layer": ("layer", "layer")}
SCORES = ("induction", "duplicate_token", "previous_token", "first_token", "entropy")
OVERLAP = {"overlap_dimension": ("projection", "effective", "tolerance", "layer"),
           "alignment": ("projection", "layer", "within", "within")}


@dataclass
class Stream:
    """K, Q, V or Z of one checkpoint."""
    name: str
    layer: np.ndarray  # [heads], ascending or equal
    head: np.ndarray  # [heads], within its layer
    head_size: int
    hidden_size: int  # 0: unknown
    n_fit: int
    n_heldout: int
    references: int
    capture: str
    skip_first: int
    tables: dict = field(repr=False)

    @property
    def heads(self):
        return len(self.layer)

    def shape(self):
        """Describes the stream: k 6 layers of 16 heads of 8, hidden size 128. If layers differ, lists the heads of
        each."""
        counts = np.bincount(self.layer).tolist()
        words = str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))
        return (f"{self.name} {len(counts)} layers of {words} heads of {self.head_size}, "
                f"hidden size {self.hidden_size or 'unknown'}")


@dataclass
class Overlap:
    """Weights of the projections of one checkpoint; NaN where a projection has fewer heads than the widest."""
    projections: list
    effective: list  # "raw", "effective"
    tolerances: list
    tables: dict = field(repr=False)


@dataclass
class Scores:
    """What the query heads of one checkpoint attend to."""
    layer: np.ndarray  # [query heads], ascending or equal
    values: np.ndarray = field(repr=False)  # [SCORES, query heads]
    uniform: np.ndarray = field(repr=False)  # [SCORES] of a head that attends to all tokens alike


@dataclass
class Reference:
    """A stream of one checkpoint and the same stream of the reference."""
    name: str  # of the reference
    layer: np.ndarray  # [heads of the reference], ascending or equal
    head: np.ndarray  # [heads of the reference], within its layer
    head_size: int  # of the reference
    of_reference: dict = field(repr=False)  # tables: targets are the reference's heads
    of_checkpoint: dict = field(repr=False)  # tables: targets are the checkpoint's

    def shape(self):
        return f"{self.name}: {len(self.layer)} heads of {self.head_size}"


@dataclass
class Result:
    path: Path
    attributes: dict
    sha256: str
    split: str  # digest of which sequences there are and which were held out
    streams: dict  # name -> Stream
    overlap: Overlap | None
    scores: Scores | None
    references: dict  # name of a stream -> Reference; empty without a reference model

    def fingerprint(self):
        """What results in one table must have in common, in order: the first difference is reported."""
        first = next(iter(self.streams.values()))
        return {"model_type": str(self.attributes.get("model_type", "")), "streams": " ".join(self.streams),
                "heads": "; ".join(stream.shape() for stream in self.streams.values()),
                "tokens_sha256": str(self.attributes.get("tokens_sha256", "")),
                "mode": str(self.attributes["mode"]), "n_fit": str(first.n_fit), "split": self.split,
                "capture": first.capture, "skip_first": str(first.skip_first), "references": str(first.references),
                "reference": "; ".join(reference.shape() for reference in self.references.values()),
                "reference_weights": str(self.attributes.get("reference_weights_digest", ""))}


def find_results(folders):
    """Returns the result files under the folders, finished or not, sorted by path."""
    found = set()
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError(folder, "", "", "is no folder", "give the output.directory of a study")
        for path in folder.rglob("*.h5*"):
            name = re.split(r"\.h5(?:\.state)?(?:\.done|\.lock)?(?:\.tmp\.|$)", path.name)[0]
            if not path.is_dir() and not name.endswith(".gram"):
                found.add(path.with_name(name + ".h5"))
    return sorted(found)


def read_result(path):
    """Returns the Result at `path`. Raises InputError that names what is wrong with it."""
    path = Path(path)
    try:
        sha256 = check_complete(path)
        with open_checked(path) as file:
            attributes = check_result(path, file)
            streams = {name: read_stream(path, file[name]) for name in STREAMS if name in file}
            name = str(attributes.get("reference_model", ""))
            found = {stream.name: read_reference(path, file, stream, name) for stream in streams.values()}
            references = {stream: reference for stream, reference in found.items() if reference}
            return Result(path, attributes, sha256, split_digest(file), streams, read_overlap(path, file),
                          read_scores(path, file), references)
    except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise InputError(path, "", "", f"cannot be read ({one_line(error)})", "run the study again") from error


def read_stream(path, group):
    where = f"{path}: {group.name[1:]}"
    layer, number = (table(where, group, f"target_{name}", None) for name in ("layer", "head"))
    check_layers(where, "target_layer", layer, number)
    heads = len(layer)
    for name, expected in (("layer", layer), ("head", number)):
        if not np.array_equal(table(where, group, f"source_{name}", (heads,)), expected):
            raise InputError(where, f"source_{name}", "", f"is not target_{name}", "run the study again")
    attributes = {name: plain(value) for name, value in group.attrs.items()}
    references = int(attributes["references"])
    sizes = {"head": heads, "count": references, "layer": len(set(layer.tolist())),
             "within": int(np.bincount(layer).max())}
    tables = {name: table(where, group, name, tuple(sizes[axis] for axis in axes))
              for name, axes in {**REQUIRED, **OPTIONAL}.items() if name in group or name in REQUIRED}
    if attributes["n_heldout"] > 0 and "r2_heldout" not in tables:
        raise InputError(where, "r2_heldout", "", "is missing", "run the study again")
    for rule in RULES:
        chosen = tables.get(f"references_{rule}")
        if chosen is not None and (chosen.min(initial=-1) < -1 or chosen.max(initial=-1) >= heads):
            raise InputError(where, f"references_{rule}", "", f"names a head outside 0..{heads - 1}",
                             "run the study again")
    return Stream(group.name[1:], layer, number, int(attributes["head_size"]), int(attributes["hidden_size"]),
                  int(attributes["n_fit"]), int(attributes["n_heldout"]), references, str(attributes["capture"]),
                  int(attributes.get("skip_first", 0)), tables)


def read_overlap(path, file):
    """Returns None if the study did not compute the overlap."""
    if "overlap" not in file:
        return None
    group, where = file["overlap"], f"{path}: overlap"
    labels = {axis: [str(plain(value)) for value in table(where, group, axis, None)]
              for axis in ("projection", "effective", "tolerance")}
    labels["effective"] = [{"0": "raw", "1": "effective"}.get(label, label) for label in labels["effective"]]
    layers = len(table(where, group, "layer", None))
    tables = {}
    for name, axes in OVERLAP.items():
        if name not in group:
            continue
        within = group[name].shape[-1]
        sizes = {axis: len(values) for axis, values in labels.items()} | {"layer": layers, "within": within}
        tables[name] = table(where, group, name, tuple(sizes[axis] for axis in axes))
    return Overlap(labels["projection"], labels["effective"], labels["tolerance"], tables)


def read_scores(path, file):
    """Returns None if the study did not measure what heads attend to."""
    if "attention" not in file:
        return None
    group, where = file["attention"], f"{path}: attention"
    layer = table(where, group, "layer", None)
    check_layers(where, "layer", layer)
    values = np.array([table(where, group, name, layer.shape) for name in SCORES])
    return Scores(layer, values, np.array([float(group[name].attrs["uniform"]) for name in SCORES]))


def read_reference(path, file, stream, name):
    """Returns the Reference of a Stream, or None if the result has none. name: of the reference."""
    groups = [f"cross/{stream.name}-reference", f"cross/reference-{stream.name}"]
    if groups[0] not in file:
        return None
    where = f"{path}: {groups[0]}"
    layer, head = (table(where, file[groups[0]], f"target_{axis}", None) for axis in ("layer", "head"))
    check_layers(where, "target_layer", layer, head)
    found = []
    for group, shape in zip(groups, ((len(layer), stream.heads), (stream.heads, len(layer)))):
        names = [each for each in ("r2", "r2_heldout", "cka") if each in file[group] or each == "r2"]
        rows = [each for each in ("r2_layer", "r2_layer_heldout") if each in file[group] or each == "r2_layer"]
        found.append({each: table(f"{path}: {group}", file[group], each, shape if each in names else shape[:1])
                      for each in names + rows})
    return Reference(name, layer, head, int(file[groups[0]].attrs["head_size"]), *found)


def check_layers(where, name, layer, head=None):
    """Raises InputError unless the heads are counted layer by layer. layer, head: [heads]."""
    alike = head is None or layer.shape == head.shape
    if len(layer) == 0 or not alike or np.any(np.diff(layer) < 0) or layer[0] < 0:
        raise InputError(where, name, "", "does not count heads layer by layer", "run the study again")


def table(where, group, name, shape):
    """Returns the values of a variable of exactly this shape; None: of any one-dimensional shape."""
    if name not in group:
        raise InputError(where, name, "", "is missing", "this is no result of headspan, or it is damaged")
    variable = group[name]
    found = " x ".join(map(str, variable.shape))
    if shape is None and variable.ndim != 1:
        raise InputError(where, name, found, "has the wrong shape", "it has one dimension")
    if shape is not None and variable.shape != shape:
        raise InputError(where, name, found, "has the wrong shape", "it should be " + " x ".join(map(str, shape)))
    return variable[...]


def split_digest(file):
    """Returns the digest of the group `tokens`; empty if the study had activations instead of tokens."""
    if "tokens" not in file:
        return ""
    digest = hashlib.sha256()
    for name in ("start", "length", "heldout"):
        digest.update(np.ascontiguousarray(file["tokens"][name][...], dtype="<i8").tobytes())
    return digest.hexdigest()
