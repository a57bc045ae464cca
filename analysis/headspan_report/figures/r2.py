"""Figures of one checkpoint, the last: the distribution of the heads' R², and how it grows with the number of
references.

Each draws a matplotlib Figure from a table [checkpoint, stream, ...], or raises Absent.
"""
import numpy as np

from .axes import (COLOURS, NULL_COLOUR, SEQUENCE, Absent, density, from_zero, is_narrow, legend, noise_label,
                   null_marks, panels)
from .selection import LETTERS, last_of, need, of_stream, untrained_of


def draw_references(table):
    """Fig. 1, middle: the distribution of the heads' R² by number of references."""
    last = last_of(table)
    need(last.top_r2, "joint regressions")
    rule = rule_of(last)
    figure, axes = panels(1, last.sizes["stream"])
    for axis, stream in zip(axes[0], last.stream.values):
        one = last.sel(stream=stream)
        for shift, part, colour in ((-0.17, "in_sample", COLOURS[stream]), (0.17, "heldout", "black")):
            draw_boxes(axis, one.top_r2.sel(rule=rule, part=part), shift, colour, part)
        draw_null_steps(axis, one)
        axis.set_title(LETTERS[stream])
        axis.set_xticks(one["count"].values)
        axis.set_xlabel("references N")
        axis.grid(False, axis="x")
    from_zero(axes, 1)
    axes[0, 0].set_ylabel("R² of a head")
    legend(figure, axes)
    return figure


def rule_of(last):
    return "pairwise" if not np.all(np.isnan(last.top_r2.sel(rule="pairwise"))) else "forward"


def draw_boxes(axis, top, shift, colour, part):
    """Whiskers 5 to 95 %, box 25 to 75 %, bar for the median, point for the mean. top: [count, statistic]."""
    if np.all(np.isnan(top)):
        return
    x = top["count"].values + shift
    q = {name: top.sel(statistic=name).values for name in ("mean", "median", "q05", "q25", "q75", "q95")}
    words = {"in_sample": "in-sample", "heldout": "held-out"}[part]
    axis.vlines(x, q["q05"], q["q95"], color=colour, linewidth=1)
    axis.bar(x, q["q75"] - q["q25"], 0.28, bottom=q["q25"], facecolor=colour, alpha=0.3, edgecolor="none",
             label=f"half of the heads, {words}" if part == "heldout" else "half of the heads, in-sample")
    axis.hlines(q["median"], x - 0.14, x + 0.14, color=colour, linewidth=2)
    axis.plot(x, q["mean"], "o", color="white", markeredgecolor=colour, markersize=4.5, zorder=4)


def draw_null_steps(axis, one, in_sample=True):
    """Draws the nulls for N = 1, 2, ... references."""
    counts = one["count"].values
    part = "in_sample" if in_sample else "heldout"
    edges = np.append(counts - 0.42, counts[-1] + 0.42)
    lines = [(one.null_top.sel(part=part).values, "null: N random projections", "--")]
    if in_sample:
        lines.append((one.noise_floor.values, "noise floor p/(n-1)", ":"))
    for values, label, style in lines:
        if not np.all(np.isnan(values)):
            axis.stairs(values, edges, baseline=None, color=NULL_COLOUR, linestyle=style, linewidth=1.1, label=label)


def draw_mean_by_count(table):
    """Fig. 2."""
    last = last_of(table)
    need(last.top_r2, "joint regressions")
    parts = [part for part in ("in_sample", "heldout") if not np.all(np.isnan(last.top_r2.sel(part=part)))]
    figure, axes = panels(1, len(parts))
    for axis, part in zip(axes[0], parts):
        for stream in last.stream.values:
            for rule, line in (("pairwise", "-"), ("forward", "--")):
                values = last.top_r2.sel(stream=stream, rule=rule, part=part, statistic="mean")
                if not np.all(np.isnan(values)):
                    words = "best pairwise" if rule == "pairwise" else "forward selection"
                    axis.plot(values["count"], values, linestyle=line, label=f"{LETTERS[stream]}, {words}",
                              **of_stream(stream))
        for stream in different_nulls(last):
            draw_null_steps(axis, last.sel(stream=stream), part == "in_sample")
        axis.set_title({"in_sample": "in-sample", "heldout": "held-out"}[part])
        axis.set_xticks(last["count"].values)
        axis.set_xlabel("references N")
    from_zero(axes, 1)
    axes[0, 0].set_ylabel("mean R² over heads")
    legend(figure, axes, 3)
    return figure


def different_nulls(last):
    """Returns one stream for each different set of nulls."""
    seen = {}
    for stream in last.stream.values:
        seen.setdefault(last.null_top.sel(stream=stream).values.tobytes(), stream)
    return list(seen.values())


def draw_training_density(table):
    """Fig. 4, right."""
    last, before = last_of(table), untrained_of(table)
    if before is None:
        raise Absent("neither step 0 nor random weights are among the checkpoints")
    x = np.linspace(0, 1, 501)
    figure, axes = panels(1, last.sizes["stream"], sharey=False)
    for axis, stream in zip(axes[0], last.stream.values):
        for row, colour, when in ((before, "#777777", "untrained"), (last, COLOURS[stream], "trained")):
            y = density(row.head_best.sel(stream=stream, part="in_sample").values, x)
            axis.fill_between(x, y, color=colour, alpha=0.2, linewidth=0)
            axis.plot(x, y, color=colour, label=f"{when}: {row.checkpoint.item()}")
        null_marks(axis, float(last.null_best.sel(stream=stream, part="in_sample")), "null: best of random projections")
        null_marks(axis, float(last.noise_floor.sel(stream=stream, count=1)), noise_label(last.sel(stream=stream)), ":")
        axis.set_title(LETTERS[stream])
        axis.set_xlabel("R² from the best causal source")
        axis.set_xlim(0, 1)
    from_zero(axes)
    axes[0, 0].set_ylabel("density over heads")
    legend(figure, axes)
    return figure


def draw_distributions(table):
    """Appendix: CDF above, density below, by number of references."""
    last = last_of(table)
    need(last.head_top, "joint regressions")
    rule, x = rule_of(last), np.linspace(0, 1, 401)
    counts = last["count"].values
    figure, axes = panels(2, last.sizes["stream"])
    for column, stream in enumerate(last.stream.values):
        one = last.sel(stream=stream)
        for i, count in enumerate(counts):
            values = one.head_top.sel(rule=rule, part="in_sample", count=count).values
            values = np.sort(values[~np.isnan(values)])
            if len(values) == 0:
                continue
            colour = SEQUENCE(0.9 * i / max(1, len(counts) - 1))
            axes[0, column].step(values, np.arange(1, len(values) + 1) / len(values), where="post", color=colour,
                                 label=f"N = {count}")
            axes[1, column].plot(x, density(values, x), color=colour)
        for count, style in ((counts[0], ":"), (counts[-1], "--")):
            for axis in axes[:, column]:
                null_marks(axis, float(one.null_top.sel(part="in_sample", count=count)),
                           f"null: {count} random projection{'s' if count > 1 else ''}", style)
        axes[0, column].set_title(LETTERS[stream])
        axes[1, column].set_xlabel("joint R² of a head, in-sample")
        for axis in axes[:, column]:
            axis.set_xlim(0, 1)
    from_zero(axes)
    axes[0, 0].set_ylabel("share of heads below")
    axes[1, 0].set_ylabel("density over heads")
    legend(figure, axes, 7)
    return figure


def draw_heads(table):
    """Appendix: each head's R² from its best source."""
    last = last_of(table)
    streams = list(last.stream.values)
    layers, widest = int(last.head_layer.max()) + 1, int(last.head_number.max()) + 1
    null = float(last.null_best.sel(part="in_sample").mean())
    low, high = range_of([*last.head_best.sel(part="in_sample").values.ravel(), null])
    figure, axes = panels(1, len(streams), height=max(2.2, min(5.0, 1.0 + 0.12 * widest)), sharey=False)
    for axis, stream in zip(axes[0], streams):
        one = last.sel(stream=stream)
        grid = np.full((int(one.head_number.max()) + 1, layers), np.nan)
        there = one.head_layer.values >= 0
        grid[one.head_number.values[there], one.head_layer.values[there]] = \
            one.head_best.sel(part="in_sample").values[there]
        image = axis.imshow(grid, cmap="cividis", vmin=low, vmax=high, aspect="auto", origin="lower",
                            interpolation="nearest")
        axis.set_title(LETTERS[stream])
        axis.set_xlabel("layer")
        axis.grid(False)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.yaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("head")
    legend(figure, axes)
    bar = figure.colorbar(image, ax=list(axes[0]), label="R² from the best causal source", pad=0.01,
                          **({"location": "bottom", "aspect": 30} if is_narrow() else {}))
    if np.isfinite(null):
        mark = bar.ax.axvline if is_narrow() else bar.ax.axhline
        mark(null, color="#D55E00", linewidth=2.5)
        bar.ax.text(0.5, 1.03, f"null {null:.2f}", color="#D55E00", fontsize=8, ha="center", va="bottom",
                    transform=bar.ax.transAxes)
    return figure


def range_of(values):
    """Returns the range of a colour scale: minimum to maximum, rounded outwards to multiples of a twentieth."""
    low, high = np.floor(20 * np.nanmin(values) + 1e-9) / 20, np.ceil(20 * np.nanmax(values) - 1e-9) / 20
    return low, max(high, low + 0.05)
