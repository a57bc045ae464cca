"""Interactive charts, which the page's script (templates/charts.js) draws with uPlot in place of the static figures of
the same numbers. Missing values are None.

A chart is {panels}; a panel has x, the names of its points (`at`), ticks, labels, y range, and lines. Lines are
`shared` if all of them have all points. A line has a label, a colour (a name in page.css, or #rrggbb, which dark pages
adapt), dashes, values and perhaps errors; `bands` are pairs of lines with shading between them.
"""
from itertools import cycle

import numpy as np

from .figures.axes import Absent, StepAxis
from .figures.compression import lines_of, stored_range, stored_ticks, style_of
from .figures.r2 import different_nulls
from .figures.selection import LETTERS, trained
from .figures.training import STUDY_COLOURS, has_losses
from .page import on_dark
from .seeds import over_seeds

DASHED, DOTTED = [6, 4], [2, 3]


def numbers(values):
    """Returns the values for JSON."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in map(float, values)]


def line(label, colour, values, dash=(), points=True, width=2):
    return {"label": label, "colour": colour, "dark": on_dark(colour) if colour[0] == "#" else "", "dash": list(dash),
            "points": points, "width": width, "values": numbers(values)}


def flat(label, value, count, dash):
    """Returns a line of constant value, as for nulls; none if the value is unknown."""
    return [line(label, "null", [value] * count, dash, points=count == 1, width=1)] if np.isfinite(value) else []


def study_charts(table):
    """Returns id of the figure -> chart, for the figures that the table has."""
    charts, table = {}, over_seeds(table)
    for name, make in (("emergence", emergence), ("mean_by_references", by_references)):
        try:
            charts[name] = make(table)
        except Absent:
            pass
    return {name: chart for name, chart in charts.items() if chart["panels"]}


def emergence(table):
    rows = trained(table)
    steps = StepAxis(rows.step.values)
    rows = rows.isel(checkpoint=steps.known)
    axis = {"name": "checkpoint", "shared": True, "x": numbers(steps.x), "at": list(map(str, rows.checkpoint.values)),
            "xRange": list(steps.limits()),
            "ticks": [[float(x), steps.label(x)] for x in steps.ticks()], "xLabel": steps.title()}
    panels = [{**axis, "title": LETTERS[stream], "yLabel": "R² from the best causal source",
               **best_lines(rows.sel(stream=stream), stream)} for stream in rows.stream.values]
    rank = [line(LETTERS[stream], stream, rows.effective_rank.sel(stream=stream, statistic="mean"))
            for stream in rows.stream.values]
    rank += flat("head size, the largest rank", float(rows.head_size.max()), rows.sizes["checkpoint"], DASHED)
    panels.append({**axis, "title": "Effective rank of a head", "yLabel": "mean over heads", "yFrom": 0, "bands": [],
                   "lines": rank})
    if has_losses(rows):
        panels.append({**axis, "title": "Validation loss", "yLabel": "nats per token", "bands": [],
                       "lines": [line("validation loss", "ink", rows.validation_loss.values)]})
    return {"panels": panels}


def best_lines(one, stream):
    """Returns lines of R² from the best source of a stream over its rows."""
    best, count = one.r2.sel(scope="best"), one.sizes["checkpoint"]
    seen, heldout = best.sel(part="in_sample"), best.sel(part="heldout", statistic="mean")
    lines = [line("upper quartile", stream, seen.sel(statistic="q75"), points=False, width=0),
             line("lower quartile", stream, seen.sel(statistic="q25"), points=False, width=0),
             line("mean, in-sample", stream, seen.sel(statistic="mean"))]
    if not np.all(np.isnan(heldout)):
        lines.append(line("mean, held-out", "ink", heldout, DASHED))
    lines += flat("null", float(one.null_best.sel(part="in_sample")), count, DASHED)
    lines += flat("noise floor", float(one.noise_floor.sel(count=1)), count, DOTTED)
    bands = [[0, 1]]
    if int(one.runs.max()) > 1:
        mean, spread = seen.sel(statistic="mean").values, np.nan_to_num(
            one.r2_sd.sel(scope="best", part="in_sample", statistic="mean").values)
        words = f"standard deviation over {int(one.runs.max())} seeds"
        bands.append([len(lines), len(lines) + 1])
        lines += [line(f"mean + {words}", stream, mean + spread, points=False, width=0),
                  line(f"mean - {words}", stream, mean - spread, points=False, width=0)]
    return {"lines": lines, "bands": bands, "yFrom": 0, "yTo": 1}


def side_by_side(tables, names):
    """Returns the chart of several studies over their steps: a panel for each stream, a line for each study."""
    rows = [trained(over_seeds(table)) for table in tables]
    every = np.concatenate([one.step.values for one in rows])
    axes = [StepAxis(one.step.values, every) for one in rows]
    x = sorted({float(place) for one in axes for place in one.x})
    axis = {"name": "step", "x": numbers(x), "at": [axes[0].label(place) for place in x],
            "xRange": list(axes[0].limits()),
            "ticks": [[float(place), axes[0].label(place)] for place in axes[0].ticks()], "xLabel": axes[0].title(),
            "yLabel": "mean R² from the best source", "yFrom": 0, "yTo": 1, "bands": []}
    panels = []
    for stream in (stream for stream in LETTERS if all(stream in one.stream.values for one in rows)):
        lines = []
        for one, steps, name, colour in zip(rows, axes, names, cycle(STUDY_COLOURS)):
            best = one.sel(stream=stream).r2.sel(scope="best", part="in_sample", statistic="mean").values[steps.known]
            found = dict(zip(map(float, steps.x), best))
            lines.append(line(name, colour, [found.get(place, np.nan) for place in x]))
            null = float(one.null_best.sel(stream=stream, part="in_sample"))
            lines += [{**flat_line, "colour": colour, "dark": on_dark(colour)}
                      for flat_line in flat(f"null of {name}", null, len(x), DOTTED)]
        panels.append({**axis, "title": LETTERS[stream], "lines": lines})
    return {"panels": panels}


def by_references(table):
    last = trained(table).isel(checkpoint=-1)
    counts = last["count"].values
    axis = {"name": "references", "shared": True, "x": numbers(counts), "at": [f"N = {count}" for count in counts],
            "bands": [], "yFrom": 0, "yTo": 1,
            "xRange": [float(counts[0]) - 0.3, float(counts[-1]) + 0.3], "xLabel": "references N",
            "ticks": [[int(count), str(count)] for count in counts], "yLabel": "mean R² over heads"}
    panels = []
    for part, title in (("in_sample", "in-sample"), ("heldout", "held-out")):
        lines = []
        for stream in last.stream.values:
            for rule, words, dash in (("pairwise", "best pairwise", ()), ("forward", "forward selection", DASHED)):
                values = last.top_r2.sel(stream=stream, rule=rule, part=part, statistic="mean")
                if not np.all(np.isnan(values)):
                    lines.append(line(f"{LETTERS[stream]}, {words}", stream, values, dash))
        if not lines:
            continue
        nulls = different_nulls(last)
        for stream in nulls:
            null = last.null_top.sel(stream=stream, part=part)
            if not np.all(np.isnan(null)):
                words = "null" if len(nulls) == 1 else f"null of {LETTERS[stream].lower()}"
                lines.append(line(words, "null", null, DOTTED, points=False, width=1))
        panels.append({**axis, "title": title, "lines": lines})
    return {"panels": panels}


def rate_chart(runs, text, several_calibrations):
    """Returns the chart of KL (log) and perplexity on one text against the stored share."""
    lines = lines_of(runs, text, several_calibrations)
    shares = sorted({run.plan.stored for _, _, members in lines for run in members})
    low, high = stored_range(shares)
    axis = {"name": "stored", "x": numbers(shares), "at": [f"{share:.3f}" for share in shares], "xLog": True,
            "xRange": [low, high], "ticks": [[tick, f"{tick:g}"] for tick in stored_ticks(shares)],
            "xLabel": "stored share of the 16-bit bytes (log)", "bands": []}
    kl, perplexity = [], []
    for label, dashed, members in lines:
        found = {run.plan.stored: run.texts[text] for run in members}
        at = [found.get(share, {}) for share in shares]
        colour = style_of(members[0].plan.method)[0]
        dash = DASHED if dashed else ()
        values = [one.get("kl", np.nan) for one in at]
        kl.append(line(label, colour, [value if value > 0 else np.nan for value in values], dash)
                  | {"errors": numbers(one.get("kl_se") or np.nan for one in at)})
        values = [one.get("perplexity", np.nan) for one in at]
        errors = [value * (one.get("loss_se") or np.nan) for value, one in zip(values, at)]
        perplexity.append(line(label, colour, values, dash) | {"errors": numbers(errors)})
    full = next(run.texts[text]["full_loss"] for _, _, members in lines for run in members)
    perplexity += flat("full cache", float(np.exp(full)), len(shares), DASHED)
    return {"panels": [{**axis, "title": "KL to the full cache", "yLabel": "nats a token (log)", "log": True,
                        "lines": kl},
                       {**axis, "title": "Perplexity", "yLabel": "perplexity", "lines": perplexity}]}
