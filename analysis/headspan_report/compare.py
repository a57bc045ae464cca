"""Compares two studies: how their jobs differ, the same statistics of both with their nulls, and the differences.

Checkpoints of the same name are compared; if no name is in both (two models), the last trained ones are. Figures that
show one checkpoint of each study show one such pair, and say which.
"""
import csv
import re
from dataclasses import dataclass

import numpy as np

from headspan.error import InputError

from .aggregate import cell, replace
from .figures.axes import COLOURS, StepAxis, count_label, density, from_zero, legend, null_line, null_marks, panels
from .figures.findings import side_by_side
from .figures.selection import LETTERS
from .page import environment, picture
from .report import checkpoint_label, name_and_step, share

# Name, variable, selection, the null's variable, its selection. {N}: for every number of references.
FIGURES = (
    ("best source, in-sample", "r2", {"scope": "best", "part": "in_sample", "statistic": "mean"},
     "null_best", {"part": "in_sample"}),
    ("best source, adjusted", "r2", {"scope": "best", "part": "adjusted", "statistic": "mean"},
     "null_best", {"part": "adjusted"}),
    ("best source, held-out", "r2", {"scope": "best", "part": "heldout", "statistic": "mean"},
     "null_best", {"part": "heldout"}),
    ("all causal pairs", "r2", {"scope": "pairs", "part": "in_sample", "statistic": "mean"},
     "null_pairs", {"part": "in_sample"}),
    ("pairs within a layer", "r2", {"scope": "intra", "part": "in_sample", "statistic": "mean"},
     "null_pairs", {"part": "in_sample"}),
    ("pairs between layers", "r2", {"scope": "inter", "part": "in_sample", "statistic": "mean"},
     "null_pairs", {"part": "in_sample"}),
    ("share of pairs above 0.5", "share_above", {"scope": "pairs", "threshold": 0.5},
     "null_share_above", {"threshold": 0.5}),
    ("N = {N} best pairwise, in-sample", "top_r2", {"rule": "pairwise", "part": "in_sample", "statistic": "mean"},
     "null_top", {"part": "in_sample"}),
    ("N = {N} best pairwise, held-out", "top_r2", {"rule": "pairwise", "part": "heldout", "statistic": "mean"},
     "null_top", {"part": "heldout"}),
    ("N = {N} forward selection, held-out", "top_r2", {"rule": "forward", "part": "heldout", "statistic": "mean"},
     "null_top", {"part": "heldout"}),
    ("ceiling of the layer, held-out", "ceiling", {"ceiling_kind": "layer_heldout", "statistic": "mean"},
     "null_ceiling", {}),
    ("best link within a layer, as captioned", "dominance", {"dominance_rule": "caption", "links": 1},
     "null_dominance", {"dominance_rule": "caption", "links": 1}),
    ("best link within a layer, as coded", "dominance", {"dominance_rule": "code", "links": 1},
     "null_dominance", {"dominance_rule": "code", "links": 1}),
    ("near/(near+far), 2 layers", "near_far", {"part": "in_sample", "window": 2, "distance": "near_share"}, None, {}),
    ("effective rank of a head", "effective_rank", {"statistic": "mean"}, None, {}))


@dataclass
class Line:
    """One statistic of both studies."""
    checkpoints: tuple
    stream: str
    name: str
    values: tuple  # a, b
    nulls: tuple

    def difference(self):
        return self.values[1] - self.values[0]


def matched(a, b):
    """Returns pairs of row numbers, and how they were matched."""
    rows = {}
    for side, table in enumerate((a, b)):
        for i, name in enumerate(table.checkpoint.values):
            rows.setdefault(str(name), {}).setdefault(side, i)
    both = [(found[0], found[1]) for found in rows.values() if len(found) == 2]
    if both:
        names = [str(a.checkpoint.values[i]) for i in dict.fromkeys((both[0][0], both[-1][0]))]
        return both, f"checkpoints of the same name ({count_label(len(both))}: {' to '.join(names)})"
    last = tuple(int(trained_rows(table)[-1]) for table in (a, b))
    return [last], "the last trained checkpoint of each, since no name is in both"


def trained_rows(table):
    """Returns the indices of the rows with trained weights, or of all rows if there are none."""
    found = np.flatnonzero(table.init.values != "random")
    return found if len(found) else np.arange(table.sizes["checkpoint"])


def shown_of(a, b, pairs):
    """Returns the last pair with trained weights on both sides, otherwise the last pair, as rows of the tables."""
    trained = [(i, j) for i, j in pairs if i in trained_rows(a) and j in trained_rows(b)]
    i, j = (trained or pairs)[-1]
    return a.isel(checkpoint=i), b.isel(checkpoint=j)


def called(shown, how=name_and_step):
    """Returns what the page calls the two rows: their names, or how(row) if one name stands for two steps."""
    names = [str(row.checkpoint.item()) for row in shown]
    if names[0] == names[1] and steps_of(shown[0]) != steps_of(shown[1]):
        return list(map(how, shown))
    return names


def lines_of(a, b, pairs):
    streams = [stream for stream in a.stream.values if stream in b.stream.values]
    if not streams:
        raise InputError("", "streams", f"{' '.join(a.stream.values)} and {' '.join(b.stream.values)}",
                         "have none in common", "compare studies of the same streams")
    counts = [count for count in a["count"].values if count in b["count"].values]
    lines = []
    for i, j in pairs:
        rows = a.isel(checkpoint=i), b.isel(checkpoint=j)
        names = tuple(str(row.checkpoint.item()) for row in rows)
        for stream in streams:
            for name, variable, selection, null, null_selection in FIGURES:
                for extra in [{"count": count} for count in counts] if "{N}" in name else [{}]:
                    values = tuple(float(row[variable].sel(stream=stream, **selection, **extra)) for row in rows)
                    nulls = tuple(float(row[null].sel(stream=stream, **null_selection, **extra)) if null else np.nan
                                  for row in rows)
                    if not np.all(np.isnan(values)):
                        lines.append(Line(names, stream, name.format(N=extra.get("count")), values, nulls))
    return lines


def differences_of(a, b):
    """Returns how the jobs differ: (what, in a, in b)."""
    rows = [("model", *(" and ".join(sorted(set(map(str, table.model_name.values)))) for table in (a, b))),
            ("checkpoints", *(str(table.sizes["checkpoint"]) for table in (a, b)))]
    for key in (key for key in a.attrs if key.startswith("study_")):
        rows.append((key.removeprefix("study_"), *(str(table.attrs.get(key, "")) for table in (a, b))))
    jobs = [job_keys(table.attrs.get("job", "")) for table in (a, b)]
    for key in dict.fromkeys([*jobs[0], *jobs[1]]):
        if not key.startswith(("output.", "run.")):
            rows.append((f"job: {key}", *(job.get(key, "–") for job in jobs)))
    return [(name, *map(short, values)) for name, *values in rows if values[0] != values[1] or name == "model"]


def job_keys(text):
    """Returns section.key -> value of a job file."""
    section, keys = "", {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            keys[section + key.strip()] = value.strip()
    return keys


def short(value):
    """Shortens digests to their beginning, and long values."""
    if re.fullmatch("[0-9a-f]{64}", value):
        return value[:12] + "…"
    return value if len(value) <= 60 else value[:28] + " … " + value[-28:]


def steps_of(table):
    """Returns the steps: [checkpoint], -1 if unknown or if the weights are random."""
    return np.where(table.init.values == "random", -1, table.step.values)


def goes_over_steps(a, b):
    """Returns whether there is something to draw over steps: two steps of one study."""
    return any(np.count_nonzero(steps_of(table) >= 0) > 1 for table in (a, b))


def stepless_of(a, b, names):
    """Returns the names of the studies that are missing from figures over steps."""
    return [name for name, table in zip(names, (a, b)) if goes_over_steps(a, b) and np.all(steps_of(table) < 0)]


def draw_both(a, b, names, shown):
    """Draws R² over steps for studies that have several, and mean by references and density for the rows `shown`. a is
    solid, b dashed, each with its null."""
    streams = [stream for stream in a.stream.values if stream in b.stream.values]
    steps = [steps_of(table) for table in (a, b)]
    over_steps = goes_over_steps(a, b)
    figure, axes = panels(2 + over_steps, len(streams), sharey=False)
    for column, stream in enumerate(streams):
        for side, (table, row) in enumerate(zip((a, b), shown)):
            style = {"linestyle": "-", "color": COLOURS[stream]} if side == 0 else {"linestyle": "--", "color": "black"}
            style["label"] = names[side]
            if over_steps and np.any(steps[side] >= 0):
                draw_steps(axes[0, column], table.sel(stream=stream), StepAxis(steps[side], steps[1 - side]), style)
            draw_counts(axes[-2, column], row.sel(stream=stream), style)
            draw_density(axes[-1, column], row.sel(stream=stream), style)
        axes[0, column].set_title(LETTERS[stream])
        axes[-2, column].set_xticks(np.union1d(a["count"], b["count"]))
    from_zero(axes[-1])
    checkpoints = "\n".join(dict.fromkeys(called(shown)))
    if over_steps:
        axes[0, 0].set_ylabel("mean R² from the best source")
    axes[-2, 0].set_ylabel(f"mean joint R²\n{checkpoints}")
    axes[-1, 0].set_ylabel(f"density over heads\n{checkpoints}")
    legend(figure, axes, 4)
    return figure


def draw_steps(axis, rows, steps, style):
    """Draws mean R² from the best source. rows: [checkpoint]."""
    steps.line(axis, rows.r2.sel(scope="best", part="in_sample", statistic="mean"), marker="o", **style)
    null_line(axis, float(rows.null_best.sel(part="in_sample")), f"null of {style['label']}", ":", style["color"])
    axis.set_ylim(0, 1)
    steps.finish(axis)


def draw_counts(axis, row, style):
    """Draws mean joint R² by number of references."""
    top = row.top_r2.sel(rule="pairwise", part="in_sample", statistic="mean")
    axis.plot(top["count"], top, marker="o", **style)
    axis.plot(top["count"], row.null_top.sel(part="in_sample"), color=style["color"], linewidth=0.9, linestyle=":",
              label=f"null of {style['label']}")
    axis.set_xlabel("references N")
    axis.set_ylim(0, 1)


def draw_density(axis, row, style):
    """Draws the density of R² from the best source over heads."""
    x, values = np.linspace(0, 1, 401), row.head_best.sel(part="in_sample").values
    if not np.all(np.isnan(values)):
        axis.plot(x, density(values, x), **style)
    null_marks(axis, float(row.null_best.sel(part="in_sample")), f"null of {style['label']}", ":", style["color"])
    axis.set_xlabel("R² from the best causal source")
    axis.set_xlim(0, 1)


def write_csv(lines, path):
    def write(temporary):
        with open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["checkpoint_a", "checkpoint_b", "stream", "figure", "a", "null_a", "b", "null_b",
                             "difference"])
            for line in lines:
                numbers = (line.values[0], line.nulls[0], line.values[1], line.nulls[1], line.difference())
                writer.writerow([*line.checkpoints, line.stream, line.name, *map(cell, numbers)])

    replace(path, write)


def render(a, b, names, pairs, how, lines, complaints):
    """Returns the page as text. Its table and lower figures show one pair of checkpoints."""
    shown = shown_of(a, b, pairs)
    last = tuple(str(row.checkpoint.item()) for row in shown)
    tables = {LETTERS[stream]: [(line.name, *map(share, (line.values[0], line.nulls[0], line.values[1], line.nulls[1])),
                                 f"{line.difference():+.3f}" if np.isfinite(line.difference()) else "–")
                                for line in lines if line.stream == stream and line.checkpoints == last]
              for stream in dict.fromkeys(line.stream for line in lines)}
    differences = differences_of(a, b) + [row for row in [("checkpoint of the numbers", *map(checkpoint_label, shown))]
                                          if row[1] != row[2]]
    return environment().get_template("compare.html").render(
        names=names, how=how, last=called(shown, checkpoint_label), stepless=stepless_of(a, b, names),
        differences=differences, tables=tables, warnings=list(map(str, complaints)),
        found=side_by_side(shown, names) or "Nothing that both have an R² of",
        picture=picture(lambda: draw_both(a, b, names, shown)))
