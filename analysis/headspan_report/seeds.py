"""Training runs that differ only in their seed: the mean and the spread of their statistics at each step."""
import warnings

import numpy as np
import xarray

PER_HEAD = ("head", "query_head")  # axes of what cannot be averaged: heads of two runs are not the same heads


def seed_groups(table):
    """Returns lists of row numbers, in order: rows of the same step and weights that differ in their training_seed
    together, every other row alone."""
    groups = {}
    for i in range(table.sizes["checkpoint"]):
        row = table.isel(checkpoint=i)
        step, seed = int(row.step), int(row.training_seed)
        key = (str(row.init.item()), step) if seed >= 0 and step >= 0 else i
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def has_seeds(table):
    """Returns whether any step has the runs of several seeds."""
    return any(len(rows) > 1 for rows in seed_groups(table))


def over_seeds(table):
    """Returns the table with one row for the runs of a step: means over the runs, the standard deviation of NAME (that
    of a sample) as NAME_sd, the number of runs as `runs`, and per head what the first of them has. Rows without a seed
    stay, with NaN as their standard deviation. Without any runs to average, the table as it is, with `runs`."""
    groups = seed_groups(table)
    if all(len(rows) == 1 for rows in groups):
        return table.assign(runs=("checkpoint", [1] * len(groups)))
    first = table.isel(checkpoint=[rows[0] for rows in groups])
    variables = {}
    for name, variable in first.data_vars.items():
        variables[name] = variable
        averaged = variable.dtype.kind == "f" and "checkpoint" in variable.dims and not set(PER_HEAD) & set(variable.dims)
        if averaged:
            means, spreads = zip(*(mean_and_sd(table[name].isel(checkpoint=rows)) for rows in groups))
            variables[name] = variable.copy(data=stacked(variable, means))
            variables[f"{name}_sd"] = variable.copy(data=stacked(variable, spreads)).assign_attrs(
                long_name=f"standard deviation over seeds of {name}")
    found = xarray.Dataset(variables, first.coords, table.attrs)
    several = np.array([len(rows) > 1 for rows in groups])
    loss = [float(table.validation_loss.isel(checkpoint=rows).mean()) for rows in groups]
    labels = [f"step{int(step)}" if many else label
              for many, step, label in zip(several, first.step.values, first.checkpoint.values)]
    return found.assign(runs=("checkpoint", [len(rows) for rows in groups])).assign_coords(
        checkpoint=labels, training_seed=("checkpoint", np.where(several, -1, first.training_seed.values)),
        validation_loss=("checkpoint", loss))


def mean_and_sd(values):
    """Returns both over the axis checkpoint: those of the rows that have a value."""
    axis = values.get_axis_num("checkpoint")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # no row has a value, or only one
        return np.nanmean(values.values, axis), np.nanstd(values.values, axis, ddof=1)


def stacked(variable, parts):
    """Returns [..., checkpoint, ...] of the parts, with the axes and the type of the variable."""
    return np.stack(parts, variable.get_axis_num("checkpoint")).astype(variable.dtype)
