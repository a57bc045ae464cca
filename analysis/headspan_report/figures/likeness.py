"""Figures of how alike heads are and of what they attend to. Each draws a Figure from a table [checkpoint, stream, ...],
or raises Absent."""
from itertools import cycle

import numpy as np

from .axes import SEQUENCE, Absent, StepAxis, colour_bar, from_zero, legend, null_line, panel_list, panels
from .selection import LETTERS, last_of, need, of_stream, trained

LAYER_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#56B4E9")
MEASURES = {"cka": "linear CKA", "cca": "mean squared canonical correlation", "procrustes": "Procrustes distance"}
SCORES = {"induction": "induction", "duplicate_token": "duplicate token", "previous_token": "previous token",
          "first_token": "first token", "entropy": "entropy, nats"}


def draw_similarity(table):
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    means = rows.similarity.sel(statistic="mean")
    shown = [measure for measure in MEASURES if not np.all(np.isnan(means.sel(measure=measure)))]
    if not shown:
        raise Absent("the results hold no measures of similarity (predict.similarity)")
    figure, axes = panel_list(len(shown))
    for axis, measure in zip(axes, shown):
        for stream in rows.stream.values:
            steps.line(axis, means.sel(stream=stream, measure=measure), label=LETTERS[stream], **of_stream(stream))
        for null in np.unique(rows.null_similarity.sel(measure=measure)):
            null_line(axis, float(null), "null: random subspaces of the hidden state")
        axis.set_title(MEASURES[measure])
        steps.finish(axis)
    from_zero(axes)
    axes[0].set_ylabel("mean over all pairs of heads")
    legend(figure, axes)
    return figure


def draw_layer_maps(table):
    """R² between layers beside their CKA, at the last checkpoint."""
    last = last_of(table)
    need(last.cka_layer, "CKA of layers (predict.similarity)")
    streams = [stream for stream in last.stream.values if not np.all(np.isnan(last.cka_layer.sel(stream=stream)))]
    figure, axes = panels(2, len(streams), height=2.6, sharey=False)
    for i, (name, label) in enumerate((("r2_layer", "mean R² of a head"), ("cka_layer", "CKA of the layers"))):
        for axis, stream in zip(axes[i], streams):
            image = axis.imshow(last[name].sel(stream=stream), cmap=SEQUENCE, vmin=0, vmax=1, origin="lower", aspect="equal",
                                interpolation="nearest")
            axis.set_title(f"{LETTERS[stream]}: {label}")
            axis.grid(False)
            axis.set_xlabel("from layer")
            for side in (axis.xaxis, axis.yaxis):
                side.get_major_locator().set_params(integer=True)
        axes[i, 0].set_ylabel("layer")
    legend(figure, axes)
    colour_bar(figure, axes, image, float(last.null_pairs.sel(part="in_sample").mean()))
    return figure


def draw_scores(table):
    if "layer_score" not in table:
        raise Absent("the results hold no attention scores (attention.scores)")
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    figure, axes = panel_list(len(SCORES))
    for axis, (score, title) in zip(axes, SCORES.items()):
        for layer, colour in zip(rows.layer.values, cycle(LAYER_COLOURS)):
            steps.line(axis, rows.layer_score.sel(score=score, layer=layer), label=f"layer {layer}", color=colour, marker="o")
        null_line(axis, float(rows.uniform_score.sel(score=score)), "null: uniform attention")
        axis.set_title(title)
        steps.finish(axis)
        from_zero(axis, None if score == "entropy" else 1)
    axes[0].set_ylabel("largest of a layer's heads")
    axes[list(SCORES).index("entropy")].set_ylabel("mean of a layer's heads")
    legend(figure, axes)
    return figure
