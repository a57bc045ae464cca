"""One result as xarray: a Dataset for each group of the file, with the nulls of its R². analysis/README.md says what each
number means, and src/io/README.md what each group holds.

A group of pairs (k, cross/q-k) has heads as targets and as sources: its tables are [target, source] or [target, count].
"""
from pathlib import Path

import h5py
import numpy as np
import xarray

from . import nulls
from . import statistics as st
from .error import EnvironmentFailed, InputError
from .opening import STREAMS, check_complete, check_result, one_line, open_checked

RULES = ("pairwise", "forward", "pairwise_all", "forward_all")
BROKEN = (OSError, KeyError, ValueError, RuntimeError, TypeError)  # what libraries raise for damaged files


class Result:
    """The result of one checkpoint. `attrs` are the attributes of the file, `groups` the names of its groups; result["k"] is
    the Dataset of one of them, read when it is first asked for. The methods take groups of pairs, and raise KeyError for
    others."""

    def __init__(self, path):
        """Raises InputError if the file is unfinished, damaged, no result, or of a newer schema."""
        self.path, self.datasets = Path(path), {}
        if self.path.is_dir():
            raise InputError(path, "", "", "is a folder", "give one of its results, MODEL/CHECKPOINT.h5")
        check_complete(self.path)
        try:
            with open_checked(self.path) as file:
                self.attrs = check_result(self.path, file)
                self.groups = groups_of(file)
        except BROKEN as error:
            raise InputError(path, "", "", f"cannot be read ({one_line(error)})", "run the study again") from error

    def __repr__(self):
        return f"<headspan result {self.attrs['model_name']}/{self.attrs['checkpoint']}: {', '.join(self.groups)}>"

    def __getitem__(self, group):
        """Returns the Dataset of a group. Those of pairs also have the nulls NULLS of nulls.py; `overlap` has
        null_overlap_dimension [projection, tolerance], NaN for a projection that was no stream of the study."""
        if group not in self.groups:
            raise KeyError(f"{group}; this result has {', '.join(self.groups)}")
        if group not in self.datasets:
            data = self.load(group)
            added = self.overlap_null(data) if group == "overlap" else pair_nulls(data) if "target" in data.dims else {}
            self.datasets[group] = data.assign(added)
        return self.datasets[group]

    @property
    def tree(self):
        """All groups as one xarray.DataTree. Raises EnvironmentFailed if xarray is older than 2024.10."""
        if not hasattr(xarray, "DataTree"):
            raise EnvironmentFailed("this xarray has no DataTree: pip install 'xarray>=2024.10', with Python 3.10 or later")
        return xarray.DataTree.from_dict({"/": xarray.Dataset(attrs=self.attrs), **{name: self[name] for name in self.groups}})

    def causal_mask(self, group):
        """Returns [target, source] of bool: which heads may be sources of a target."""
        return causal_mask(self[group])

    def best_sources(self, group):
        """Returns the causal source of the largest in-sample R² of each target: `source`, `source_layer` and `source_head`
        [target], -1 where there is none; its `r2` and, with held-out tokens, `r2_heldout` [target], whose attribute
        `null` is the mean over targets if heads were random projections."""
        data = self[group]
        best = st.best_sources(data["r2"].values, causal_mask(data).values)
        table = xarray.Dataset({"source": ("target", best)}, {name: data[name] for name in ("target", "target_layer", "target_head")})
        for name in ("source_layer", "source_head"):
            table[name] = ("target", np.where(best >= 0, data[name].values[best], -1))
        for name, part in (("r2", "in_sample"), ("r2_heldout", "heldout")):
            if name in data:
                about = {"long_name": "R2 from the best source", "null": float(data.null_best.sel(part=part))}
                table[name] = ("target", st.from_sources(data[name].values, best), about)
        return table

    def joint_curves(self, group):
        """Returns R² against the number of sources: `r2` [rule, part, target, count], NaN where there are no held-out
        tokens or not as many sources, and its `null_top` [part, count]."""
        data = self[group]
        regressors = data["count"].values * source_size(data)
        rules = [rule for rule in RULES if f"r2_{rule}" in data]
        heldout = [data.get(f"r2_{rule}_heldout") for rule in rules]
        r2 = [st.parts_of(data.attrs["n_fit"], data[f"r2_{rule}"].values, None if other is None else other.values, regressors)
              for rule, other in zip(rules, heldout)]
        places = {name: data[name] for name in ("target", "target_layer", "target_head", "count", "part")}
        return xarray.Dataset({"r2": (("rule", "part", "target", "count"), np.array(r2)), "null_top": data.null_top},
                              {"rule": rules, **places})

    def load(self, group):
        try:
            return xarray.load_dataset(self.path, group=group, engine="h5netcdf")
        except BROKEN as error:
            raise InputError(self.path, group, "", f"cannot be read ({one_line(error)})", "run the study again") from error

    def overlap_null(self, data):
        """Returns null_overlap_dimension of the group `overlap`."""
        found = np.full((data.sizes["projection"], data.sizes["tolerance"]), np.nan)
        for row, name in zip(found, data.projection.values):
            if name in self.groups:
                stream = self[name]
                sizes = np.bincount(stream.target_layer).max(), stream.attrs["head_size"], stream.attrs["hidden_size"]
                row[:] = [nulls.overlap_dimension(*sizes, tolerance) for tolerance in data.tolerance.values]
        return {"null_overlap_dimension": (("projection", "tolerance"), found, {"long_name": "of random matrices"})}


def groups_of(file):
    """Returns the names of the groups that hold datasets, streams first."""
    names = []
    file.visititems(lambda name, thing: names.append(name) if isinstance(thing, h5py.Dataset) else None)
    found = dict.fromkeys(name.rpartition("/")[0] for name in names)
    return tuple(sorted(found, key=lambda name: (name not in STREAMS, name)))


def source_size(data):
    """Returns the size of a source's heads; those of two models may differ from the targets'."""
    return int(data.attrs.get("source_head_size", data.attrs["head_size"]))


def causal_mask(data):
    """Returns [target, source] of bool. A causal source is of the target's layer or an earlier one; if it is z, which a layer
    computes last, and predicts another stream, of an earlier one. Between two models every head is a source."""
    other = data["target"] != data["source"]
    if "source_model" in data.attrs:
        return xarray.ones_like(other)
    if "source_stream" not in data.attrs:
        return other & (data.source_layer <= data.target_layer)
    return (data.source_layer + int(data.attrs["source_stream"] == "z") <= data.target_layer).transpose("target", "source")


def pair_nulls(data):
    """Returns NULLS of nulls.py as variables, with the coordinate `part`."""
    values = nulls.of_heads(causal_mask(data).values.sum(axis=1), source_size(data), data.attrs["hidden_size"],
                            data.attrs["n_fit"], data.attrs["references"])
    return {"part": list(st.PARTS), **{name: (axes, values[name], {"long_name": text, "units": "1"})
                                       for name, (axes, text) in nulls.NULLS.items()}}
