"""Selects the rows of emergence.nc for a figure: those with trained weights, the last of them, the untrained one."""
import numpy as np

from .axes import COLOURS, MARKERS, Absent

LETTERS = {"k": "Keys", "q": "Queries", "v": "Values", "z": "Outputs"}


def trained(table):
    """Returns the rows with trained weights."""
    found = table.isel(checkpoint=np.flatnonzero(table.init.values != "random"))
    if found.sizes["checkpoint"] == 0:
        raise Absent("no checkpoint has trained weights")
    return found


def last_of(table):
    return trained(table).isel(checkpoint=-1)


def untrained_of(table):
    """Returns the row with random weights, otherwise that of step 0, otherwise None."""
    random = np.flatnonzero((table.init.values == "random") | (table.step.values == 0))
    return table.isel(checkpoint=random[-1]) if len(random) else None


def need(values, what):
    if np.all(np.isnan(values)):
        raise Absent(f"the results hold no {what}")
    return values


def of_stream(stream):
    return {"color": COLOURS[stream], "marker": MARKERS[stream]}
