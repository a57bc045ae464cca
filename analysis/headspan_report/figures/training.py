"""Figures over training steps. Each draws a Figure from a table [checkpoint, stream, ...], or raises Absent."""
from itertools import cycle

import numpy as np

from ..seeds import over_seeds
from .axes import NULL_COLOUR, Absent, StepAxis, from_zero, legend, noise_label, null_line, panel_list, panels
from .selection import LETTERS, need, of_stream, trained

STUDY_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#56B4E9", "#000000")


def draw_emergence(table):
    rows = trained(table)
    steps, streams = StepAxis(rows.step.values), list(rows.stream.values)
    figure, axes = panel_list(len(streams) + 1 + has_losses(rows))
    for axis, stream in zip(axes, streams):
        draw_best(axis, steps, rows.sel(stream=stream), of_stream(stream))
        axis.set_title(LETTERS[stream])
    axes[0].set_ylabel("R² from the best causal source")
    rank = axes[len(streams)]
    for stream in streams:
        steps.line(rank, rows.effective_rank.sel(stream=stream, statistic="mean"), label=LETTERS[stream],
                   **of_stream(stream))
    null_line(rank, float(rows.head_size.max()), "head size d: the largest rank", "-.")
    rank.set_ylabel("effective rank of a head, mean")
    rank.set_ylim(0)
    steps.finish(rank)
    if has_losses(rows):
        steps.line(axes[-1], rows.validation_loss.values.astype(float), color="black", marker="D", label="validation loss")
        axes[-1].set_ylabel("validation loss, nats per token")
        steps.finish(axes[-1])
    legend(figure, axes)
    return figure


def has_losses(rows):
    return not np.all(np.isnan(rows.validation_loss.values.astype(float)))


def draw_best(axis, steps, one, style):
    """Draws R² from the best source over training. one: the rows of one stream."""
    best = one.r2.sel(scope="best")
    seen, heldout = best.sel(part="in_sample"), best.sel(part="heldout", statistic="mean")
    steps.band(axis, seen.sel(statistic="q25"), seen.sel(statistic="q75"), color=style["color"], alpha=0.18,
               label="half of the heads, in-sample")
    steps.line(axis, seen.sel(statistic="mean"), label="mean, in-sample", **style)
    draw_spread(axis, steps, seen.sel(statistic="mean"), one, style)
    if not np.all(np.isnan(heldout)):
        black = {"color": "black", "markerfacecolor": "white", "linewidth": 1}
        steps.line(axis, heldout, label="mean, held-out", **{**style, **black})
    null_line(axis, float(one.null_best.sel(part="in_sample")), "null: best of random projections")
    null_line(axis, float(one.noise_floor.sel(count=1)), noise_label(one), ":")
    from_zero(axis, 1)
    steps.finish(axis)


def draw_spread(axis, steps, mean, one, style):
    """Draws the standard deviation over seeds around the mean R² of one stream, if there are seeds."""
    if "r2_sd" not in one or int(one.runs.max()) < 2:
        return
    spread = np.nan_to_num(one.r2_sd.sel(scope="best", part="in_sample", statistic="mean").values)
    steps.band(axis, mean.values - spread, mean.values + spread, color=style["color"], alpha=0.5,
               label=f"± 1 standard deviation over {int(one.runs.max())} seeds")


def draw_side_by_side(tables, names):
    """Draws R² from the best source of several studies over their steps, each with its null."""
    rows = [trained(over_seeds(table)) for table in tables]
    every = np.concatenate([one.step.values for one in rows])
    streams = [stream for stream in LETTERS if all(stream in one.stream.values for one in rows)]
    if not streams:
        raise Absent("the studies have no stream in common")
    figure, axes = panels(1, len(streams))
    for axis, stream in zip(axes[0], streams):
        for row, name, colour in zip(rows, names, cycle(STUDY_COLOURS)):
            one = row.sel(stream=stream)
            steps = StepAxis(one.step.values, every)
            if len(steps.known):
                steps.line(axis, one.r2.sel(scope="best", part="in_sample", statistic="mean"), label=name, color=colour,
                           marker="o")
            null_line(axis, float(one.null_best.sel(part="in_sample")), f"null of {name}", ":", colour)
        axis.set_title(LETTERS[stream])
        steps.finish(axis)
    from_zero(axes, 1)
    axes[0, 0].set_ylabel("mean R² from the best source")
    legend(figure, axes)
    return figure


def draw_dominance(table):
    """Fig. 3: on the left the best link, on the right the best five; above by the caption's rule, below by the code's.
    """
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    figure, axes = panels(2, 2, sharey=False)
    titles = {"caption": "the caption's rule", "code": "the code's rule"}
    for i, rule in enumerate(titles):
        for j, links in enumerate((1, 5)):
            axis = axes[i, j]
            for stream in rows.stream.values:
                one = rows.sel(stream=stream, dominance_rule=rule, links=links)
                steps.line(axis, 100 * one.dominance, label=LETTERS[stream], **of_stream(stream))
            for mean, spread in sorted({(float(m), float(s)) for m, s in zip(
                    *(rows[name].sel(dominance_rule=rule, links=links).values
                      for name in ("null_dominance", "null_dominance_sd")))}):
                null_line(axis, 100 * mean, "null: random rankings, ± 2 standard deviations")
                axis.axhspan(100 * (mean - 2 * spread), 100 * (mean + 2 * spread), color=NULL_COLOUR, alpha=0.15,
                             linewidth=0)
            axis.set_ylim(0, 100)
            axis.set_title(f"best {'link' if links == 1 else f'{links} links'}, {titles[rule]}")
            steps.finish(axis)
        axes[i, 0].set_ylabel("within a layer, % of links")
    legend(figure, axes)
    return figure


def draw_overlap(table):
    """Fig. 4, left."""
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    need(rows.overlap_dimension, "overlap dimension (job section [overlap])")
    by_tolerance = {t: rows.overlap_dimension.sel(rank_tolerance=t) for t in rows.rank_tolerance.values}
    tolerances = [t for t, values in by_tolerance.items() if not np.all(np.isnan(values))]
    figure, axes = panel_list(len(tolerances))
    for axis, tolerance in zip(axes, tolerances):
        for stream in rows.stream.values:
            for kind, line in (("raw", "-"), ("effective", "--")):
                if kind not in rows.effective.values:
                    continue
                values = by_tolerance[tolerance].sel(stream=stream, effective=kind)
                if not np.all(np.isnan(values)):
                    gain = "" if kind == "raw" else ", norm gain folded in"
                    steps.line(axis, values, linestyle=line, label=LETTERS[stream] + gain, **of_stream(stream))
        for null in np.unique(rows.null_overlap_dimension.sel(rank_tolerance=tolerance)):
            null_line(axis, float(null), "null: random matrices")
        axis.set_title("the paper's tolerance" if tolerance == "paper" else f"tolerance {tolerance} of the largest")
        axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
        steps.finish(axis)
    axes[0].set_ylabel("overlap dimension, mean over layers")
    legend(figure, axes, 3)
    return figure


def draw_near_far(table):
    """Appendix: its table, over training."""
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    need(rows.near_far.sel(part="in_sample", window=rows.window.values[0]), "layers so far apart")
    figure, axes = panels(1, rows.sizes["stream"])
    for axis, stream in zip(axes[0], rows.stream.values):
        one = rows.sel(stream=stream)
        for window, shade in zip(rows.window.values, (1.0, 0.45)):
            for distance, line in (("near", "-"), ("far", "--")):
                values = one.near_far.sel(part="in_sample", window=window, distance=distance)
                if np.all(np.isnan(values)):
                    continue
                words = f"up to {window} layers apart" if distance == "near" else f"{window + 1} and more apart"
                steps.line(axis, values, linestyle=line, alpha=shade, label=words, color="black", marker=None)
        null_line(axis, float(one.null_pairs.sel(part="in_sample")), "null: a random projection", "-.", "#D55E00")
        null_line(axis, float(one.noise_floor.sel(count=1)), noise_label(one), ":", "#D55E00")
        axis.set_title(LETTERS[stream])
        steps.finish(axis)
    from_zero(axes)
    axes[0, 0].set_ylabel("mean R² of pairs between layers")
    legend(figure, axes, 3)
    return figure


def draw_ceilings(table):
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    need(rows.ceiling, "ceilings (job section [ceiling])")
    figure, axes = panels(1, rows.sizes["stream"])
    lines = {"layer": ("-", "all other heads of the layer, in-sample"),
             "layer_heldout": ("--", "all other heads of the layer, held-out"),
             "causal": (":", "everything earlier, in-sample")}
    for axis, stream in zip(axes[0], rows.stream.values):
        one = rows.sel(stream=stream)
        for kind, (line, label) in lines.items():
            values = one.ceiling.sel(ceiling_kind=kind, statistic="mean")
            if not np.all(np.isnan(values)):
                steps.line(axis, values, linestyle=line, label=label, **of_stream(stream))
        null_line(axis, float(one.null_ceiling), "null of a layer: (H-1) d / m")
        axis.set_title(LETTERS[stream])
        steps.finish(axis)
    from_zero(axes, 1.02)
    axes[0, 0].set_ylabel("mean R² over heads")
    legend(figure, axes, 2)
    return figure


def draw_alignment(table):
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    if np.all(np.isnan(rows.alignment)) and np.all(np.isnan(rows.canonical)):
        raise Absent("the results hold neither alignment nor canonical correlations")
    figure, axes = panels(1, 2)
    for axis, name, title in ((axes[0, 0], "alignment", "weights: cos² of principal angles"),
                              (axes[0, 1], "canonical", "activations: canonical correlation²")):
        for stream in rows.stream.values:
            values = rows[name].sel(stream=stream)
            if not np.all(np.isnan(values)):
                steps.line(axis, values, label=LETTERS[stream], **of_stream(stream))
        for null in np.unique(rows.null_alignment.values):
            null_line(axis, float(null), "null: d / m, random projections")
        axis.set_title(title)
        steps.finish(axis)
    from_zero(axes)
    axes[0, 0].set_ylabel("mean over pairs of a layer's heads")
    legend(figure, axes)
    return figure
