"""Aggregates all results of a study in one table: emergence.nc (dimensions checkpoint, stream, ...) and emergence.csv
(one row per checkpoint and stream).

Each file is read once and closed. A file that is missing, unfinished, damaged or from another study is listed in
`refused`, and the others are used. Results of one study have the same Result.fingerprint; the study is the one to which
most files belong.
"""
import csv
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray

from headspan import __version__
from headspan.error import EnvironmentFailed, InputError
from headspan.opening import one_line, open_checked

from . import reference
from .measure import AXES, NULLS, VARIABLES, dominance_nulls, layer_scores, measure, nulls
from .result import find_results, read_result
from .seeds import has_seeds, over_seeds
from .table import read_losses, read_names

COORDINATES = ("model_name", "model_type", "init", "step", "training_tokens", "training_seed", "validation_loss", "file", "sha256",
               "date_created", "git")
USUAL = {"effective": ["raw", "effective"], "rank_tolerance": ["paper", "1e-1", "1e-2", "1e-3", "1e-4"]}  # if no result says
NUMBERED = ("count", "links", "window", "layer", "reference_layer")  # axes that a column's name must give with the label


@dataclass
class Row:
    """The statistics of one checkpoint."""
    path: Path
    attributes: dict
    sha256: str
    fingerprint: dict
    streams: dict  # name -> Stream without its tables
    figures: dict  # name -> {statistic: array}
    labels: dict  # labels of the axes effective, rank_tolerance and reference_layer
    scores: object  # result.Scores, or None
    extra: object  # what keep(result) returned

    def name(self):
        return str(self.attributes["model_name"]), str(self.attributes["checkpoint"])

    def order(self):
        random = self.attributes.get("init") == "random"
        return random, int(self.attributes["step"]), int(self.attributes.get("training_tokens", -1)), self.name()


@dataclass
class Emergence:
    table: xarray.Dataset
    rows: list  # in the order of the table
    refused: list  # InputErrors
    missing: list  # InputErrors for rows of the manifest

    def complaints(self):
        return [*self.refused, *self.missing]


def aggregate(folders, manifest=None, losses=None, keep=lambda result: None):
    """Returns the Emergence of the results under the folders. keep(result) is stored as the `extra` of a row."""
    losses = read_losses(losses) if losses else {}
    names = read_names(manifest) if manifest else []
    rows, refused = read_rows(find_results(folders), keep)
    check_any(folders, rows, refused)
    return assemble(rows, refused, missing_of(manifest, names, rows), losses)


def aggregate_each(folders, manifest=None, losses=None, keep=lambda result: None):
    """Returns the Emergences of the studies under the folders, in their order; folders with results of the same study
    are merged. The first one lists what is missing in all of them and the problems of folders without a valid result.
    """
    losses = read_losses(losses) if losses else {}
    names = read_names(manifest) if manifest else []
    studies, lost, seen = {}, [], set()
    for folder in folders:
        paths = [path for path in find_results([folder]) if path not in seen]
        seen.update(paths)
        rows, refused = read_rows(paths, keep)
        if not rows:
            lost += refused
            continue
        study = studies.setdefault(tuple(most_common(rows).items()), ([], []))
        study[0].extend(rows)
        study[1].extend(refused)
    every = [row for rows, _ in studies.values() for row in rows]
    check_any(folders, every, lost)
    missing = missing_of(manifest, names, every)
    found = []
    for rows, refused in studies.values():
        found.append(assemble(rows, lost + refused, missing, losses))
        lost, missing = [], []
    return found


def read_rows(paths, keep):
    """Returns the rows, and InputErrors for the files that are not results."""
    rows, refused = [], []
    for path in paths:
        try:
            rows.append(read_row(path, keep))
        except InputError as error:
            refused.append(error)
    return rows, refused


def check_any(folders, rows, refused):
    """Raises InputError if no folder holds a valid result."""
    where = ", ".join(map(str, folders))
    if not rows and not refused:
        raise InputError(where, "", "", "hold no results", "give the output.directory of a study")
    if not rows:
        raise InputError(where, "", "",
                         f"hold no result that can be read, {len(refused)} that cannot; the first: {refused[0]}")


def missing_of(manifest, names, rows):
    there = {row.attributes["checkpoint"] for row in rows}
    return [InputError(manifest, "name", name, "has no result here", "run the study again") for name in names
            if name not in there]


def assemble(rows, refused, missing, losses):
    """Returns the Emergence of the study to which most rows belong."""
    rows = sorted(refuse_foreign(rows, refused), key=Row.order)
    return Emergence(build_table(rows, refused, missing, losses), rows, refused, missing)


def read_row(path, keep):
    result = read_result(path)
    figures = {name: measure(stream, result.overlap) for name, stream in result.streams.items()}
    for name, other in result.references.items():
        figures[name] |= reference.measure_reference(result.streams[name], other)
    layers = sorted({int(layer) for other in result.references.values() for layer in other.layer})
    extra = keep(result)
    for stream in result.streams.values():
        stream.tables = {}
    overlap = result.overlap
    labels = {"effective": overlap.effective, "rank_tolerance": overlap.tolerances} if overlap else {}
    labels |= {"reference_layer": layers} if layers else {}
    return Row(result.path, result.attributes, result.sha256, result.fingerprint(), result.streams, figures, labels,
               result.scores, extra)


def refuse_foreign(rows, refused):
    """Returns the rows of the study to which most rows belong (in case of a tie, the first), each unit once. Appends
    errors for the others to `refused`."""
    study = most_common(rows) if rows else {}
    kept, seen = [], {}
    for row in rows:
        differs = next((key for key in study if row.fingerprint[key] != study[key]), None)
        if differs:
            alike = sum(other.fingerprint[differs] == study[differs] for other in rows)
            refused.append(InputError(row.path, differs, row.fingerprint[differs], "is of another study",
                                      f"{study[differs]} in {alike} of {len(rows)} results here"))
        elif row.name() in seen:
            refused.append(InputError(row.path, "checkpoint", "/".join(row.name()), "is there twice",
                                      f"the other is {seen[row.name()]}"))
        else:
            seen[row.name()] = row.path
            kept.append(row)
    return kept


def most_common(rows):
    """Returns the fingerprint of most rows; in case of a tie, the first."""
    votes = Counter(tuple(row.fingerprint.items()) for row in rows)
    return dict(votes.most_common(1)[0][0])


def build_table(rows, refused, missing, losses):
    first = rows[0]
    streams = list(first.streams)
    axes = {**AXES, "checkpoint": [row.attributes["checkpoint"] for row in rows], "stream": streams,
            "head": range(max(stream.heads for stream in first.streams.values())),
            "count": range(1, next(iter(first.streams.values())).references + 1),
            **dict.fromkeys(("layer", "other_layer"), np.unique(next(iter(first.streams.values())).layer).tolist()),
            **{axis: unique(label for row in rows for label in row.labels.get(axis, [])) or usual
               for axis, usual in USUAL.items()}}
    variables = {name: stack(name, VARIABLES[name], rows, streams, axes) for name in VARIABLES}
    variables |= stack_references(rows, streams, axes)
    variables |= stack_nulls(first, axes["rank_tolerance"])
    for name in ("heads", "head_size", "hidden_size", "n_fit", "n_heldout"):
        variables[name] = ("stream", [getattr(stream, name) for stream in first.streams.values()])
    variables |= head_places(first, streams, axes) | stack_scores(rows)
    coordinates = {axis: [*labels] for axis, labels in axes.items()}
    coordinates |= {name: ("checkpoint", values) for name, values in of_checkpoints(rows, losses).items()}
    table = xarray.Dataset(variables, coordinates)
    table.attrs = {
        "title": "Linear predictability of attention heads over checkpoints",
        "source": f"headspan-report {__version__}",
        "job": str(first.attributes.get("job", "")),
        "versions": "\n".join(unique(str(row.attributes.get("versions", "")) for row in rows)),
        "headspan": "\n".join(unique(str(row.attributes.get("source", "")) for row in rows)),
        **{f"study_{key}": value for key, value in first.fingerprint.items()},
        "refused": "\n".join(map(str, refused)), "missing": "\n".join(map(str, missing))}
    return table


def unique(values):
    return list(dict.fromkeys(values))


def stack_references(rows, streams, axes):
    """Returns what the heads of the rows and of their reference say of each other, whose axes are added; {} without one."""
    layers = unique(label for row in rows for label in row.labels.get("reference_layer", []))
    if not layers:
        return {}
    axes |= {**reference.AXES, "reference_layer": sorted(layers)}
    return {name: stack(name, about, rows, streams, axes) for name, about in reference.VARIABLES.items()}


def stack(name, about, rows, streams, axes):
    """Returns a statistic of all rows: [checkpoint, stream, ...], NaN (or -1 for heads) if a row does not have it."""
    inner, long_name = about
    whole = name in ("head_source", "head_references", "flagged")
    shape = (len(rows), len(streams), *(len(axes[axis]) for axis in inner))
    dtype = np.int32 if whole else np.float32 if "head" in inner else np.float64
    values = np.full(shape, (0 if name == "flagged" else -1) if whole else np.nan, dtype)
    for i, row in enumerate(rows):
        for s, stream in enumerate(streams):
            if name not in row.figures.get(stream, {}):
                continue
            found = row.figures[stream][name]
            places = [[axes[axis].index(label) for label in row.labels[axis]] if axis in row.labels else range(length)
                      for axis, length in zip(inner, np.shape(found))]
            values[(i, s, *np.ix_(*places))] = found
    return ("checkpoint", "stream", *inner), values, {"long_name": long_name, "units": "1"}


def stack_nulls(first, tolerances):
    """Returns the nulls of all streams: [stream, ...]."""
    dominance, found = {}, []
    for stream in first.streams.values():
        layers = stream.layer.tobytes()
        if layers not in dominance:
            dominance[layers] = dominance_nulls(stream.layer)
        found.append(nulls(stream, dominance[layers], tolerances))
    return {name: (("stream", *inner), np.array([values[name] for values in found]), {"long_name": text, "units": "1"})
            for name, (inner, text) in NULLS.items()}


def stack_scores(rows):
    """Returns what query heads attend to, of the rows that have as many as the first that has any; {} if none has."""
    sample = next((row.scores for row in rows if row.scores), None)
    if sample is None:
        return {}
    axes, alike = np.unique(sample.layer), [row.scores for row in rows]
    missing = np.full(sample.values.shape, np.nan), np.full((len(sample.values), len(axes)), np.nan)
    found = [(scores.values, layer_scores(scores)) if scores and np.array_equal(scores.layer, sample.layer) else missing
             for scores in alike]
    words = {"long_name": "what query heads attend to: mean weights, and entropy in nats", "units": "1"}
    return {"head_score": (("checkpoint", "score", "query_head"), np.array([values for values, _ in found]), words),
            "layer_score": (("checkpoint", "score", "layer"), np.array([values for _, values in found]),
                            {"long_name": "largest score of a layer's heads; mean of their entropies", "units": "1"}),
            "uniform_score": (("score",), sample.uniform, {"long_name": "of uniform attention", "units": "1"}),
            "query_head": np.arange(len(sample.layer)),
            "score_layer": (("query_head",), sample.layer, {"long_name": "layer of each query head"})}


def head_places(first, streams, axes):
    """Returns layer and number of each head: [stream, head], -1 beyond the heads of a stream."""
    places = np.full((2, len(streams), len(axes["head"])), -1, np.int32)
    for s, stream in enumerate(first.streams.values()):
        places[:, s, :stream.heads] = stream.layer, stream.head
    return {"head_layer": (("stream", "head"), places[0], {"long_name": "layer of each head"}),
            "head_number": (("stream", "head"), places[1], {"long_name": "head within its layer"})}


def of_checkpoints(rows, losses):
    """Returns the coordinates of the checkpoints: name -> [checkpoint]."""
    unknown = {"step": -1, "training_tokens": -1, "training_seed": -1, "validation_loss": np.nan}
    columns = {name: [row.attributes.get(name, unknown.get(name, "")) for row in rows] for name in COORDINATES}
    columns["file"], columns["sha256"] = [str(row.path) for row in rows], [row.sha256 for row in rows]
    for i, row in enumerate(rows):
        if row.attributes.get("init") != "random":
            columns["validation_loss"][i] = losses.get(row.attributes["checkpoint"],
                                                       losses.get(int(row.attributes["step"]),
                                                                  columns["validation_loss"][i]))
    return columns


def write_netcdf(table, path):
    """Writes the table as one file, which appears complete or not at all."""
    encoding = {name: {"zlib": True, "complevel": 4} for name, variable in table.data_vars.items() if variable.ndim > 1}

    def write(temporary):
        table.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
        if has_seeds(table):
            over_seeds(table).to_netcdf(temporary, engine="h5netcdf", mode="a", group="seeds")

    replace(path, write)


def read_netcdf(path):
    """Reads what write_netcdf wrote."""
    try:
        open_checked(path).close()
        table = xarray.load_dataset(path, engine="h5netcdf")
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(path, "", "", f"cannot be read ({one_line(error)})", "give an emergence.nc") from error
    lacking = [name for name in (*VARIABLES, *NULLS) if name not in table]
    if lacking:
        raise InputError(path, lacking[0], "", "is missing", "give an emergence.nc that aggregate wrote")
    return table


def write_csv(emergence, path):
    """Writes one row per checkpoint and stream, then one for each refused file and each missing row."""
    table = emergence.table
    maps = {"head", "query_head", "other_layer"}
    names = [name for name in table.data_vars if not maps & set(table[name].dims) and name != "reference_map"]
    figures = {column: values for name in names for column, values in columns_of(table, name)}
    coordinates = [name for name in table.coords if table[name].dims == ("checkpoint",) and name != "checkpoint"]

    def write(temporary):
        with open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["checkpoint", "stream", *coordinates, *figures, "refused"])
            for i, checkpoint in enumerate(table.checkpoint.values):
                about = [cell(table[name].values[i]) for name in coordinates]
                for s, stream in enumerate(table.stream.values):
                    writer.writerow([checkpoint, stream, *about,
                                     *(cell(values[i, s]) for values in figures.values()), ""])
            for error in emergence.complaints():
                writer.writerow(["", "", *("" for _ in coordinates), *("" for _ in figures), error])

    replace(path, write)


def columns_of(table, name):
    """Yields (column, values [checkpoint, stream]) for every entry of a statistic along its other axes."""
    shape = dict(table.sizes)
    outer = ("checkpoint", "stream")
    inner = [axis for axis in table[name].dims if axis not in outer]
    values = table[name].variable.set_dims({axis: shape[axis] for axis in (*outer, *inner)}).transpose(*outer, *inner)
    for place in np.ndindex(*(shape[axis] for axis in inner)):
        labels = [(axis, table[axis].values[i]) for axis, i in zip(inner, place)]
        text = "_".join(f"{axis}{label}" if axis in NUMBERED else str(label)
                        for axis, label in labels)
        yield f"{name}_{text}" if text else name, values.values[(slice(None), slice(None), *place)]


def cell(value):
    """Formats a number with as few digits as read back the same; NaN becomes an empty cell."""
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else repr(float(value))
    return str(value)


def replace(path, write):
    """Calls write(temporary), then renames the file."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentFailed(f"cannot write {path}: {error.strerror or error}") from error
