"""Figures of what the heads of checkpoints and of a reference model say of each other. Each draws a Figure from a table
[checkpoint, stream, ...], or raises Absent."""
import numpy as np

from .axes import SEQUENCE, Absent, colour_bar, count_label, legend, panels
from .selection import LETTERS, trained

FROM = {"same": "the same head", "best": "the best head", "layer": "the whole layer"}


def against_reference(table):
    """Returns the trained rows of one training run with their reference."""
    if "reference_r2" not in table:
        raise Absent("the results have no reference (cross.model)")
    rows = trained(table)
    if int(rows.get("runs", np.ones(1)).max()) > 1:
        raise Absent("a reference is compared with one training run at a time")
    return rows


def part_of(rows):
    """Returns the part to be shown: held-out if there is one."""
    return "in_sample" if np.all(np.isnan(rows.reference_r2.sel(part="heldout"))) else "heldout"


def is_itself(rows):
    """Returns [checkpoint]: whether each head of the reference is also there."""
    same = rows.reference_r2.sel(known_from="same", part="in_sample").min(["stream", "reference_layer"], skipna=True)
    return same.values > 1 - 1e-6


def other_than_itself(table):
    """Returns the last row that is not the reference itself."""
    rows = against_reference(table)
    found = np.flatnonzero(~is_itself(rows))
    if len(found) == 0:
        raise Absent("the only checkpoint is the reference itself")
    return rows.isel(checkpoint=found[-1])


def draw_training(table):
    """Layer by step: R² of the reference's heads from the same head, the best head and the whole layer of a checkpoint."""
    rows = against_reference(table)
    if rows.sizes["checkpoint"] < 2:
        raise Absent("there is one checkpoint alone")
    figure, axes = panels(len(FROM), rows.sizes["stream"], sharey=False, height=2.2)
    for line, (source, words) in zip(axes, FROM.items()):
        for axis, stream in zip(line, rows.stream.values):
            values = rows.reference_r2.sel(known_from=source, part=part_of(rows), stream=stream)
            image = heat_map(axis, values.transpose("reference_layer", "checkpoint"))
            axis.set_title(f"{LETTERS[stream]}: from {words}")
            places = np.unique(np.linspace(0, rows.sizes["checkpoint"] - 1, 5).round().astype(int))
            axis.set_xticks(places, [step_label(rows.isel(checkpoint=i)) for i in places])
            axis.set_xlabel("training step")
        line[0].set_ylabel("layer of the reference")
    legend(figure, axes)
    noise = 0.0 if part_of(rows) == "heldout" else float(rows.noise_floor.sel(count=1).mean())
    colour_bar(figure, axes, image, noise)
    return figure


def draw_maps(table):
    """Layer by layer, at the last checkpoint that is not the reference: its best head for a head of the reference."""
    last = other_than_itself(table)
    figure, axes = panels(1, last.sizes["stream"], sharey=False, height=3.2)
    for axis, stream in zip(axes[0], last.stream.values):
        image = heat_map(axis, last.reference_map.sel(stream=stream).transpose("reference_layer", "layer"))
        axis.set_title(f"{LETTERS[stream]}: R² from the best head")
        axis.set_xlabel("layer of the checkpoint")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("layer of the reference")
    legend(figure, axes)
    colour_bar(figure, axes, image, float(last.match_null.sel(part=part_of(last)).mean()))
    return figure


def step_label(row):
    step = int(row.step)
    return count_label(step) if step >= 0 else str(row.checkpoint.item())


def heat_map(axis, values):
    image = axis.imshow(values, cmap=SEQUENCE, vmin=0, vmax=1, origin="lower", aspect="auto", interpolation="nearest")
    axis.grid(False)
    axis.yaxis.get_major_locator().set_params(integer=True)
    return image
