"""How figures are drawn: palette, the step axis with its zero, null lines, densities, files. Knows no statistics.

The colours are those of Okabe and Ito, which people with all common kinds of colour vision can tell apart; streams also
differ by marker.
"""
import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..aggregate import replace

COLOURS = {"k": "#0072B2", "q": "#D55E00", "v": "#009E73", "z": "#A0518A"}
MARKERS = {"k": "o", "q": "s", "v": "^", "z": "D"}
NULL_COLOUR = "#555555"
SEQUENCE = matplotlib.colormaps["cividis"]
WIDE, NARROW = 12.0, 3.8  # inches: figures for a desk, with panels side by side, and for a phone, below each other
WIDEST_PANEL, PANEL_HEIGHT = 6.0, 2.9
PNG_DPI = 150
STYLE = {"figure.figsize": (WIDE, PANEL_HEIGHT), "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False,
         "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6, "axes.axisbelow": True,
         "legend.frameon": False, "legend.fontsize": 8, "legend.handlelength": 4, "lines.linewidth": 1.6,
         "lines.markersize": 4, "svg.hashsalt": "headspan", "figure.dpi": 100}


def style(width):
    """Returns settings for matplotlib's rc_context for figures of this width."""
    return {**STYLE, "figure.figsize": (width, PANEL_HEIGHT)}


class Absent(Exception):
    """The results do not contain what the figure shows; the message says what is missing."""


def is_narrow():
    return matplotlib.rcParams["figure.figsize"][0] <= NARROW


def panel_list(count, columns=3, height=PANEL_HEIGHT):
    """Returns a Figure as wide as rcParams say, and `count` axes in rows of `columns`, or below each other if it is
    narrow."""
    columns = 1 if is_narrow() else min(columns, count)
    rows = -(-count // columns)
    width = min(matplotlib.rcParams["figure.figsize"][0], WIDEST_PANEL * columns)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, i + 1) for i in range(count)]


def panels(rows, columns, sharey=True, height=PANEL_HEIGHT):
    """Returns a Figure and its axes [rows, columns]. sharey: axes in a row have the same y axis."""
    figure, axes = panel_list(rows * columns, columns, height)
    axes = np.reshape(axes, (rows, columns))
    for row in axes if sharey else ():
        for axis in row[1:]:
            axis.sharey(row[0])
            axis.tick_params(labelleft=is_narrow())
    return figure, axes


def count_label(number):
    """Formats 1500 as 1.5k."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


class StepAxis:
    """Training steps on a log axis, with a position for step 0, left of the first step and separated from it."""

    def __init__(self, steps, beside=()):
        """steps: [checkpoint], ascending, of the lines; -1 where unknown. beside: steps of other lines on the axis."""
        self.known = np.flatnonzero(np.asarray(steps) >= 0)
        self.steps = np.asarray(steps, float)[self.known]
        every = np.append(self.steps, [step for step in beside if step >= 0])
        if len(every) == 0:
            raise Absent("no checkpoint tells its training step")
        positive = every[every > 0]
        low, high = (np.log10(positive.min()), np.log10(positive.max())) if len(positive) else (0.0, 1.0)
        self.zero = low - max(0.3, 0.14 * (high - low))
        self.low, self.high = low, high
        self.has_zero, self.has_positive = len(positive) < len(every), len(positive) > 0
        self.x = np.where(self.steps > 0, np.log10(np.maximum(self.steps, 1)), self.zero)

    def line(self, axes, values, **style):
        """Draws values: [checkpoint]. The line from step 0 is dotted, because its length on this axis has no meaning.
        """
        values = np.asarray(values)[self.known]
        first = int(np.count_nonzero(self.steps == 0))
        marked = dict(style) if len(values) <= 30 else {**style, "marker": None}
        if first == 0 or first == len(values):
            return axes.plot(self.x, values, **marked)[0]
        joint = {**style, "marker": None, "linestyle": ":", "label": None, "alpha": 0.7}
        axes.plot(self.x[first - 1:first + 1], values[first - 1:first + 1], **joint)
        alone = {**style, "linestyle": "none", "label": None}
        axes.plot(self.x[:first], values[:first], **alone)
        return axes.plot(self.x[first:], values[first:], **marked)[0]

    def band(self, axes, low, high, **style):
        low, high = (np.asarray(values)[self.known] for values in (low, high))
        after = self.steps > 0
        axes.fill_between(self.x[after], low[after], high[after], linewidth=0, **style)
        axes.vlines(self.x[~after], low[~after], high[~after], linewidth=4, **{**style, "label": None})

    def finish(self, axes):
        """Draws ticks, limits, label, and the gap between 0 and the first step."""
        axes.set_xlim(*self.limits())
        axes.xaxis.set_major_locator(FixedLocator(self.ticks()))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: self.label(x)))
        if self.has_zero and self.has_positive:
            middle = (self.zero + self.low) / 2
            axes.plot([middle], [0], marker=(2, 0, -20), markersize=9, color="black", linewidth=0, clip_on=False,
                      markeredgewidth=0.9, transform=axes.get_xaxis_transform(), zorder=10)
        axes.set_xlabel(self.title())

    def limits(self):
        start = self.zero if self.has_zero else self.low
        spread = max(self.high - start, 0.2)
        return start - 0.06 * spread, self.high + 0.06 * spread

    def ticks(self):
        decades = np.arange(np.ceil(self.low), np.floor(self.high) + 1)
        every = int(np.ceil(len(decades) / 4)) or 1
        zero = [self.zero] if self.has_zero else []
        if len(decades) < 2 and self.has_positive:
            return [*zero, self.low, *([self.high] if self.high > self.low + 0.2 else [])]
        return [*zero, *decades[::every]]

    def label(self, x):
        """Returns the label of a tick."""
        return "0" if self.has_zero and abs(x - self.zero) < 1e-9 else count_label(float(f"{10**x:.3g}"))

    def title(self):
        return "training step (log scale; 0: as initialised)" if self.has_zero else "training step (log scale)"


def from_zero(axes, top=None):
    """Sets the lower limits to 0, or slightly below the minimum of all data if that is negative, and the upper limits
    to `top`, otherwise to those of the data. Call it last: shared axes keep the first limits that are set."""
    axes = np.ravel(axes)
    low = np.fmin.reduce([0.0, *(axis.dataLim.y0 for axis in axes)])
    for axis in axes:
        high = axis.get_ylim()[1] if top is None else top
        axis.set_ylim(low - 0.03 * (high - low) if low < 0 else 0, top)


def colour_bar(figure, axes, image, null):
    """Draws the scale of an image beside the axes, or below them if they are narrow, with a line at the null."""
    bar = figure.colorbar(image, ax=np.ravel(axes).tolist(), pad=0.01, **({"location": "bottom", "aspect": 30} if is_narrow() else {}))
    if np.isfinite(null):
        mark = bar.ax.axvline if is_narrow() else bar.ax.axhline
        mark(null, color="#D55E00", linewidth=2.5)
        bar.ax.text(0.5, 1.02, f"null {null:.2f}", color="#D55E00", fontsize=8, ha="center", va="bottom",
                    transform=bar.ax.transAxes)


def noise_label(one):
    """Returns the label of the noise floor with its value, which is often too small to be seen. one: the rows of one
    stream."""
    return f"noise floor p/(n-1) = {float(one.noise_floor.sel(count=1)):.2g}"


def null_line(axes, y, label, style="--", colour=NULL_COLOUR):
    """Draws a horizontal null; nothing if it is unknown."""
    if np.isfinite(y):
        axes.axhline(y, color=colour, linestyle=style, linewidth=1.1, label=label, zorder=1.5)


def null_marks(axes, x, label, style="--", colour=NULL_COLOUR):
    """Draws nulls on an axis on which R² is horizontal."""
    if np.isfinite(x):
        axes.axvline(x, color=colour, linestyle=style, linewidth=1.1, label=label, zorder=1.5)


def density(values, x):
    """Returns a Gaussian kernel density of values in [0, 1], reflected at both ends, with Silverman's bandwidth."""
    values = values[~np.isnan(values)]
    quarter = np.diff(np.quantile(values, (0.25, 0.75)))[0] / 1.349
    spread = min(filter(lambda s: s > 0, (values.std(), quarter)), default=0.01)
    width = max(0.9 * spread * len(values) ** -0.2, 0.004)
    mirrored = np.concatenate([values, -values, 2 - values])
    kernel = np.exp(-0.5 * ((x[:, None] - mirrored[None, :]) / width) ** 2)
    return kernel.sum(axis=1) / (len(values) * width * np.sqrt(2 * np.pi))


def legend(figure, axes, columns=4):
    """Adds one legend below all panels, with each label once. It extends beyond the figure: files are cropped around
    both. Panels that were moved below each other get the y label of their row and the title of their column."""
    columns = 1 if is_narrow() else columns
    grid = np.atleast_2d(axes)
    for (row, column), axis in np.ndenumerate(grid) if is_narrow() else ():
        axis.set_ylabel(axis.get_ylabel() or grid[row, 0].get_ylabel())
        axis.set_title(axis.get_title() or grid[0, column].get_title())
    found = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels()):
            found.setdefault(label, handle)
    if found:
        figure.legend(found.values(), found.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.0),
                      ncol=min(columns, len(found)))


def to_svg(figure):
    """Returns the figure as text; equal figures give equal texts."""
    with matplotlib.rc_context({"svg.hashsalt": "headspan"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return buffer.getvalue()


def files_of(folder, name):
    """Returns the files that save writes."""
    return Path(folder) / f"{name}.svg", Path(folder) / f"{name}.png"


def save(figure, folder, name):
    """Writes folder/name.svg and folder/name.png."""
    text, picture = files_of(folder, name)
    svg = to_svg(figure)
    replace(text, lambda path: Path(path).write_text(svg, encoding="utf-8"))
    replace(picture, lambda path: figure.savefig(path, format="png", dpi=PNG_DPI, bbox_inches="tight"))
