"""Result files held against each other, variable by variable."""
import h5py
import numpy as np


def datasets(path):
    """{name: values} of the file's variables; a Gram file's too."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[...]} if isinstance(item, h5py.Dataset) else {}))
    return found


def difference(a, b):
    """The largest of two variables; inf where a shape, a NaN, or an integer (a status, a chosen head) differs."""
    if a.shape != b.shape or (a.dtype.kind != "f" and not np.array_equal(a, b)):
        return np.inf
    if a.dtype.kind == "f" and not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf
    return np.nanmax(np.abs(a - b), initial=0) if a.dtype.kind == "f" else 0


def differences(ours, theirs):
    """{variable: difference}."""
    return {name: difference(ours[name], theirs[name]) if name in ours and name in theirs else np.inf
            for name in ours.keys() | theirs.keys()}
