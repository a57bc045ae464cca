"""Figures for the page of compression: loss against stored bytes, kept heads, bits by layer."""
import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .axes import NULL_COLOUR, SEQUENCE, legend, panel_list, panels
from .selection import LETTERS

METHODS = {"int": ("#D55E00", "s"), "latent,": ("#56B4E9", "D"), "latent": ("#0072B2", "o"),
           "headspan": ("#009E73", "^"), "paper-code": ("#CC79A7", "v"), "paper-text": ("#8A6D00", "P"),
           "Hadamard, q": ("#E69F00", "X"), "Hadamard": ("#6F4EAE", "*"), "KIVI": ("#444444", "p"), "OSCAR": ("#999933", "h"),
           "archive": ("#CC3311", "H"), "KVTC": ("#66CCEE", "d")}
TICKS = (0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1)


def style_of(method):
    """Returns (colour, marker) of a method: those that differ only in their bits have the same."""
    return next(style for start, style in METHODS.items() if method.startswith(start))


def family(run):
    """Returns what the runs on one line have in common."""
    families = {"quantise": "int8, int4, int3", "hadamard": "Hadamard, Lloyd's levels",
                "rotated-q4": "Hadamard, q8_0, q4_0", "rotated-q8": "Hadamard, q8_0, q4_0", "kivi": "KIVI", "oscar": "OSCAR"}
    method = families.get(run.plan.algorithm, run.plan.method)
    return f"{method}, {run.mode}" if run.mode else method, run.plan.calibration


def bars(errors, scale=1):
    """Returns the lengths of error bars: NaN, which is not drawn, for a missing error; None if all are missing."""
    if all(error is None for error in errors):
        return None
    return np.array(errors, float) * scale


def lines_of(runs, text, several_calibrations):
    """Returns (label, whether dashed, runs by their stored share) for each family on one text, with both streams
    compressed."""
    lines = {}
    for run in runs:
        if run.kl(text) and run.plan.streams == "k,v":
            lines.setdefault(family(run), []).append(run)
    calibrations = sorted({calibration for _, calibration in lines if calibration})
    return [(f"{method} (on {calibration})" if several_calibrations and calibration else method,
             bool(calibration) and calibrations.index(calibration) > 0,
             sorted(members, key=lambda run: run.plan.stored)) for (method, calibration), members in lines.items()]


def line_style(label, dashed, members):
    """Returns the style of a line of lines_of()."""
    colour, marker = style_of(members[0].plan.method)
    return {"color": colour, "marker": marker, "linestyle": "--" if dashed else "-", "capsize": 2, "label": label,
            "elinewidth": 1, "markerfacecolor": "white" if dashed else colour}


def draw_kl(axis, lines, text):
    """Draws KL against the stored share, both on log axes."""
    for label, dashed, members in lines:
        found = [run.texts[text] for run in members]
        axis.errorbar([run.plan.stored for run in members], [one["kl"] for one in found],
                      bars([one["kl_se"] for one in found]), **line_style(label, dashed, members))
    axis.set_yscale("log")
    axis.set_ylabel("KL to the full cache, nats a token")
    stored_axis(axis, [run.plan.stored for _, _, members in lines for run in members])


def draw_text(runs, text, several_calibrations):
    """Draws KL (log) and perplexity on one text against the stored share."""
    lines = lines_of(runs, text, several_calibrations)
    figure, axes = panels(1, 2, sharey=False, height=3.4)
    left, right = axes[0]
    draw_kl(left, lines, text)
    for label, dashed, members in lines:
        found = [run.texts[text] for run in members]
        perplexity = [one["perplexity"] for one in found]
        errors = bars([one["loss_se"] for one in found], np.array(perplexity))
        right.errorbar([run.plan.stored for run in members], perplexity, errors,
                       **{**line_style(label, dashed, members), "elinewidth": 0.5, "capsize": 0})
    full = next(run.texts[text]["full_loss"] for _, _, members in lines for run in members)
    right.axhline(np.exp(full), color=NULL_COLOUR, linestyle="--", linewidth=1.1, label="full cache", zorder=1.5)
    right.set_ylabel("perplexity")
    stored_axis(right, [run.plan.stored for _, _, members in lines for run in members])
    legend(figure, axes, 3)
    return figure


def draw_curves(models):
    """Draws KL against the stored share of each model, given as (title, runs, text, whether calibrations differ)."""
    figure, axes = panel_list(len(models), height=4.2)
    for axis, (title, runs, text, several_calibrations) in zip(axes, models):
        draw_kl(axis, lines_of(runs, text, several_calibrations), text)
        axis.set_title(title)
    legend(figure, np.array(axes), 3)
    return figure


def stored_range(stored):
    return min(stored) / 1.15, max(stored) * 1.15


def stored_ticks(stored):
    """Returns the TICKS that are within the limits, or the shares themselves if there are none."""
    low, high = stored_range(stored)
    return [tick for tick in TICKS if low <= tick <= high] or sorted({round(share, 3) for share in stored})


def stored_axis(axis, stored):
    axis.set_xscale("log")
    axis.set_xlim(*stored_range(stored))
    axis.xaxis.set_major_locator(FixedLocator(stored_ticks(stored)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_xlabel("stored share of the 16-bit bytes (log)")


def kept_map(plan, stream):
    """Returns [head, layer]: 1 if the head is kept."""
    kept = np.zeros((int(plan.kv_heads), int(plan.layers)))
    for layer, one in enumerate(plan.stored_by[stream]):
        kept[one.kept, layer] = 1
    return kept


def draw_kept(plans):
    """Draws a map layer x head for each head plan and each stream that it compresses."""
    shown = streams_of(plans)
    figure, axes = panel_list(len(shown), 4, 1.1 + 0.09 * int(plans[0].kv_heads))
    for axis, (plan, stream) in zip(axes, shown):
        kept = kept_map(plan, stream)
        axis.imshow(kept, cmap="Blues", vmin=0, vmax=1.3, aspect="auto", origin="lower", interpolation="nearest")
        axis.grid(False)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.set_title(f"{LETTERS[stream]}, {plan.method}\n{plan.stored:.3f} stored: {int(kept.sum())} of {kept.size}",
                       fontsize=8)
        axis.set_xlabel("layer")
        axis.set_ylabel("KV head")
    return figure


def streams_of(plans):
    return [(plan, stream) for plan in plans for stream in "kv" if stream in plan.stored_by]


def columns_by_bits(plan, stream, bits):
    """Returns [bits, layer]: numbers of stored columns, in the order of `bits`."""
    columns = np.zeros((len(bits), int(plan.layers)))
    for layer, one in enumerate(plan.stored_by[stream]):
        for count, width in zip(one.columns, one.bits):
            columns[bits.index(width), layer] += count
    return columns


def draw_bits(plans):
    """Draws the stored columns of each layer by their bits, for each plan of latents and each stream that it
    compresses."""
    shown = streams_of(plans)
    figure, axes = panel_list(len(shown), 4, 2.1)
    bits = sorted({int(width) for plan in plans for stream in plan.stored_by.values() for one in stream
                   for width in one.bits}, reverse=True)
    colours = SEQUENCE(np.linspace(0, 1, len(bits)))
    for axis, (plan, stream) in zip(axes, shown):
        bottom = np.zeros(int(plan.layers))
        for colour, columns in zip(colours, columns_by_bits(plan, stream, bits)):
            axis.bar(np.arange(len(columns)), columns, 0.9, bottom, color=colour)
            bottom += columns
        axis.set_ylim(0, int(plan.kv_heads) * int(plan.head_size))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_title(f"{LETTERS[stream]}, {plan.method}, {plan.stored:.3f} stored", fontsize=8)
        axis.set_xlabel("layer")
        axis.set_ylabel("columns")
    handles = [Patch(color=colour, label=f"{width} bits") for width, colour in zip(bits, colours)]
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=min(3, len(handles)))
    return figure
