"""Two studies side by side: what was run differently, the same figures of both with their nulls, and their difference.

Checkpoints of the same name are laid beside each other; where no name is in both (two models), the last trained ones.
"""
import csv
import re
from dataclasses import dataclass

import matplotlib
import numpy as np

from .aggregate import cell, replace
from .axes import COLOURS, STYLE, StepAxis, count_label, density, from_zero, legend, null_line, null_marks, panels
from .error import InputError
from .report import as_image, environment, share, template_text
from .selection import LETTERS, last_of, trained

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
    """One figure of both studies."""
    checkpoints: tuple
    stream: str
    name: str
    values: tuple  # a, b
    nulls: tuple

    def difference(self):
        return self.values[1] - self.values[0]


def matched(a, b):
    """Pairs of row numbers, and how they were found."""
    rows = {}
    for side, table in enumerate((a, b)):
        for i, name in enumerate(table.checkpoint.values):
            rows.setdefault(str(name), {}).setdefault(side, i)
    both = [(found[0], found[1]) for found in rows.values() if len(found) == 2]
    if both:
        return both, "checkpoints of the same name"
    last = [int(np.flatnonzero(table.init.values != "random")[-1]) for table in (a, b)]
    return [tuple(last)], "the last trained checkpoint of each, since no name is in both"


def lines_of(a, b, pairs):
    streams = [stream for stream in a.stream.values if stream in b.stream.values]
    if not streams:
        raise InputError("", "streams", f"{list(a.stream.values)} and {list(b.stream.values)}", "have none in common",
                         "compare studies of the same streams")
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
    """What was run differently: (what, in a, in b)."""
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
    """section.key -> value of a job file."""
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
    """Digests by their beginning, long values cut."""
    if re.fullmatch("[0-9a-f]{64}", value):
        return value[:12] + "…"
    return value if len(value) <= 60 else value[:28] + " … " + value[-28:]


def draw_both(a, b, names):
    """Best source over steps, mean by references, density: a solid, b dashed, each with its null."""
    streams = [stream for stream in a.stream.values if stream in b.stream.values]
    figure, axes = panels(3, max(1, len(streams)), sharey="row")
    x = np.linspace(0, 1, 401)
    for column, stream in enumerate(streams):
        for table, name, line, colour in ((a, names[0], "-", COLOURS[stream]), (b, names[1], "--", "black")):
            rows, last = trained(table).sel(stream=stream), last_of(table).sel(stream=stream)
            style = {"linestyle": line, "color": colour, "label": name}
            if np.any(rows.step.values >= 0):
                steps = StepAxis(rows.step.values)
                steps.line(axes[0, column], rows.r2.sel(scope="best", part="in_sample", statistic="mean"), marker="o",
                           **style)
                if table is b or rows.sizes["checkpoint"] >= trained(b).sizes["checkpoint"]:
                    steps.finish(axes[0, column])
            top = last.top_r2.sel(rule="pairwise", part="in_sample", statistic="mean")
            axes[1, column].plot(top["count"], top, marker="o", **style)
            axes[1, column].plot(top["count"], last.null_top.sel(part="in_sample"), color=colour, linewidth=0.9,
                                 linestyle=":", label=f"null of {name}")
            values = last.head_best.sel(part="in_sample").values
            if not np.all(np.isnan(values)):
                axes[2, column].plot(x, density(values, x), **style)
            null = float(last.null_best.sel(part="in_sample"))
            null_line(axes[0, column], null, f"null of {name}", ":", colour)
            null_marks(axes[2, column], null, f"null of {name}", ":", colour)
        axes[0, column].set_title(LETTERS[stream])
        axes[0, column].set_ylim(0, 1)
        axes[1, column].set_xticks(a["count"].values)
        axes[1, column].set_xlabel("references N")
        axes[1, column].set_ylim(0, 1)
        axes[2, column].set_xlabel("R² from the best causal source")
        axes[2, column].set_xlim(0, 1)
    from_zero(axes[2])
    for row, label in enumerate(("mean R² from the best source", "mean joint R², last checkpoint",
                                 "density over heads, last checkpoint")):
        axes[row, 0].set_ylabel(label)
    legend(figure, axes, 4)
    return figure


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
    """The page as text; its table is of the last pair of checkpoints."""
    last = lines[-1].checkpoints
    shown = {LETTERS[stream]: [(line.name, *map(share, (line.values[0], line.nulls[0], line.values[1], line.nulls[1])),
                                f"{line.difference():+.3f}" if np.isfinite(line.difference()) else "–")
                               for line in lines if line.stream == stream and line.checkpoints == last]
             for stream in dict.fromkeys(line.stream for line in lines)}
    with matplotlib.rc_context(STYLE):
        image = as_image(draw_both(a, b, names))
    return environment().get_template("compare.html").render(
        names=names, how=how, last=last, count=count_label(len(pairs)), differences=differences_of(a, b),
        tables=shown, warnings=list(map(str, complaints)), image=image,
        style=template_text("page.css"))
