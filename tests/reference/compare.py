"""Compares result files, variable by variable."""
import h5py
import numpy as np


def datasets(path):
    """Returns {name: values} of the variables of a result or Gram file."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[...]} if isinstance(item, h5py.Dataset) else {}))
    return found


def difference(a, b):
    """Returns the largest difference of two variables; inf if a shape, a NaN, or an integer (a status, a chosen head)
    differs."""
    if a.shape != b.shape or (a.dtype.kind != "f" and not np.array_equal(a, b)):
        return np.inf
    if a.dtype.kind == "f" and not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf
    return np.nanmax(np.abs(a - b), initial=0) if a.dtype.kind == "f" else 0


def differences(ours, theirs):
    """Returns {variable: difference}."""
    return {name: difference(ours[name], theirs[name]) if name in ours and name in theirs else np.inf
            for name in ours.keys() | theirs.keys()}
