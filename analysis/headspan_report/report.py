"""Makes one self-contained page of one or several studies: findings, a map of heads and pairs over checkpoints,
figures, the jobs, problems.

The page loads nothing and needs no network. It contains the R² of causal pairs in 8 bits each (pack.py); if that would
make the page too large, the map shows fewer checkpoints and says so.
"""
from collections import Counter

import numpy as np

from headspan import __version__
from headspan import statistics as st

from . import charts
from .figures import draw_all
from .figures.axes import NARROW, Absent, count_label
from .figures.findings import side_by_side
from .figures.likeness import SCORES as SCORE_WORDS
from .figures.selection import LETTERS
from .figures.training import draw_side_by_side
from .pack import index16, pack, scaled16, share8, signed16
from .page import Picture, as_image, as_json, environment, picture, plot_library, template_text
from .result import FLAGS, RULES, SCORES
from .seeds import over_seeds

LARGEST_MAP = 22_000_000  # characters of packed arrays
ROWS_OF_THE_TABLE = 12
# Figures whose findings lead the page, as many as there are up to so many.
LEADING = ("emergence", "mean_by_references", "dominance", "training_density", "heads", "references", "near_far")
LED_BY = 4
FLAG_WORDS = {"deficient_source": "the regressors were linearly dependent; the redundant ones were left out",
              "constant_target_coordinate": "a coordinate of the target is constant and was left out",
              "too_few_tokens": "too few tokens for so many regressors: no R²",
              "outside_band": "an in-sample R² lies outside [0, 1] beyond rounding: a defect, please tell"}


def causal_r2(result):
    """Returns what a row keeps of its result for the map: stream -> R² of the causal pairs, target by target, in 8
    bits."""
    return {name: share8(stream.tables["r2"][st.causal_pairs(stream.layer)]) for name, stream in result.streams.items()}


def pages_map(emergence, number=0, largest=None):
    """Returns (streams for the page's script, packed arrays by stream and id, indices of the checkpoints in the map).
    number: the number of the study, with which ids begin; largest: characters, LARGEST_MAP for all studies together."""
    largest = LARGEST_MAP if largest is None else largest
    checkpoints = emergence.table.sizes["checkpoint"]
    every = 1
    while True:
        shown = sorted({*range(0, checkpoints, every), checkpoints - 1})
        streams, blocks = pack_streams(emergence, shown, number)
        if sum(len(text) for arrays in blocks.values() for text in arrays.values()) <= largest or len(shown) <= 2:
            return streams, blocks, shown
        every += 1


def pack_streams(emergence, shown, number):
    table = emergence.table.isel(checkpoint=shown)
    streams, blocks = [], {}
    for name, stream in emergence.rows[0].streams.items():
        one = table.sel(stream=name).isel(head=slice(0, stream.heads))
        arrays = {"pairs": np.stack([emergence.rows[i].extra[name] for i in shown]),
                  "source": index16(one.head_source.values),
                  "best": signed16(one.head_best.sel(part=["in_sample", "heldout"]).values),
                  "rank": scaled16(one.head_effective_rank.values, stream.head_size)}
        scores, measures = head_scores(table, stream), head_measures(one, stream)
        if scores is not None:
            largest = np.nanmax(scores, axis=(0, 2), initial=1)
            arrays["scores"] = scaled16(scores, largest[:, None])
            measures += score_measures(table, largest)
        for rule in RULES:
            if np.any(one.head_references.sel(rule=rule) >= 0):
                arrays[f"references_{rule}"] = index16(one.head_references.sel(rule=rule).values)
                arrays[f"joint_{rule}"] = share8(one.head_top.sel(rule=rule, part=["in_sample", "heldout"]).values)
        blocks[name] = {f"{number}.{name}.{array}": pack(values) for array, values in arrays.items()}
        streams.append({"name": name, "title": LETTERS[name], "layer": stream.layer.tolist(),
                        "head": stream.head.tolist(), "headSize": stream.head_size, "references": stream.references,
                        "measures": measures,
                        "nullPairs": as_number(one.null_pairs.sel(part="in_sample"))})
    return streams, blocks


def head_scores(table, stream):
    """Returns what the stream's heads attend to: [checkpoint, score, head]. None if that is unknown, or known of heads
    in other layers."""
    of_queries = stream.name in ("q", "z") and "head_score" in table
    if not of_queries or not np.array_equal(table.score_layer.values, stream.layer):
        return None
    return table.head_score.sel(score=list(SCORES)).values


def head_measures(one, stream):
    """Returns what the map can show of a head besides scores: a row of a packed array, in 16 bits from low to high, and
    its null. The first is shown unless another is chosen."""
    best = {"array": "best", "rows": 2, "low": -1, "high": 1, "unit": "R²"}
    nulls = [as_number(one.null_best.sel(part=part)) for part in ("in_sample", "heldout")]
    measures = [{**best, "name": "best", "label": "R² from the best causal source", "row": 0, "nullValue": nulls[0]},
                {**best, "name": "heldout", "label": "R² from the best source, held-out", "row": 1, "nullValue": nulls[1]},
                {"array": "rank", "rows": 1, "low": 0, "high": stream.head_size, "unit": "rank", "name": "rank",
                 "label": "effective rank", "row": 0, "nullValue": None}]
    return [measure for measure in measures if stream.n_heldout or measure["name"] != "heldout"]


def score_measures(table, largest):
    """Returns the same of the scores; their null is uniform attention. largest: [SCORES]."""
    return [{"array": "scores", "rows": len(SCORES), "low": 0, "high": float(largest[row]), "name": score, "row": row,
             "unit": "nats" if score == "entropy" else "score", "label": SCORE_WORDS[score],
             "nullValue": as_number(table.uniform_score.sel(score=score))} for row, score in enumerate(SCORES)]


def as_number(value):
    """Returns the value for JSON: None if there is none."""
    value = float(value)
    return round(value, 6) if np.isfinite(value) else None


def name_and_step(row):
    """Returns the name of a checkpoint, with the step if the name does not contain it."""
    name, step = str(row.checkpoint.item()), int(row.step)
    return name if step < 0 or str(step) in name else f"{name}, step {step}"


def checkpoint_label(row):
    """Returns what the page calls a checkpoint."""
    words, tokens = [name_and_step(row)], int(row.training_tokens)
    if row.init.item() == "random":
        return ", ".join([*words, "random weights"])
    if tokens > 0:
        words.append(f"{count_label(float(f'{tokens:.3g}'))} tokens")
    if np.isfinite(float(row.validation_loss)):
        words.append(f"validation loss {float(row.validation_loss):.4g}")
    return ", ".join(words)


def figures_of_rows(table):
    """Returns the numbers below the slider: [checkpoint][stream] of (mean best in-sample, adjusted, held-out, mean of
    all pairs, of those within layers, of those between layers, effective rank)."""
    best = table.r2.sel(statistic="mean")
    columns = [best.sel(scope="best", part=part) for part in ("in_sample", "adjusted", "heldout")]
    columns += [best.sel(scope=scope, part="in_sample") for scope in ("pairs", "intra", "inter")]
    columns.append(table.effective_rank.sel(statistic="mean"))
    values = np.stack([column.values for column in columns], axis=-1)
    return [[[as_number(value) for value in stream] for stream in row] for row in values]


def summary_table(table):
    """Returns (header cells, rows of cells, cells of the nulls): about a dozen checkpoints from first to last."""
    count = table.sizes["checkpoint"]
    shown = sorted({round(i) for i in np.linspace(0, count - 1, min(count, ROWS_OF_THE_TABLE))})
    rows, nulls = [], ["null"]
    for i in shown:
        row = table.isel(checkpoint=i)
        step = str(int(row.step)) if int(row.step) >= 0 else "–"
        cells = [str(row.checkpoint.item()), step]
        for stream in table.stream.values:
            best = row.r2.sel(stream=stream, scope="best", statistic="mean")
            cells += [share(best.sel(part="in_sample")), share(best.sel(part="heldout")),
                      f"{float(row.effective_rank.sel(stream=stream, statistic='mean')):.2f}"]
        rows.append(cells)
    nulls = ["null", ""]
    for stream in table.stream.values:
        null = table.null_best.sel(stream=stream)
        nulls += [share(null.sel(part="in_sample")), share(null.sel(part="heldout")), ""]
    return rows, nulls


def share(value):
    value = float(value)
    return f"{value:.3f}" if np.isfinite(value) else "–"


def near_far_rows(table):
    """Returns the appendix's table at the last checkpoint with trained weights, for each stream and window."""
    rows = []
    last = table.isel(checkpoint=np.flatnonzero(table.init.values != "random")[-1:])
    for row in last.transpose("checkpoint", ...).near_far.sel(part="in_sample"):
        for stream in table.stream.values:
            for window in table.window.values:
                near, far, ratio = row.sel(stream=stream, window=window).values
                rows.append([LETTERS[stream], int(window), share(near), share(far), share(ratio),
                             share(table.null_pairs.sel(stream=stream, part="in_sample"))])
    return rows


def warnings_of(emergence, shown):
    """Returns texts that a reader must know before the numbers."""
    table = emergence.table
    texts = [f"not in this report: {error}" for error in emergence.complaints()]
    for flag in FLAGS:
        counts = table.flagged.sel(flag=flag)
        if flag in FLAG_WORDS and int(counts.sum()) > 0:
            where = [f"{table.checkpoint.values[i]} {LETTERS[s]}" for i, s in
                     ((i, s) for i in range(table.sizes["checkpoint"]) for s in table.stream.values)
                     if int(counts.isel(checkpoint=i).sel(stream=s).sum()) > 0]
            more = f" and {len(where) - 6} more" if len(where) > 6 else ""
            texts.append(f"{int(counts.sum())} fits flagged: {FLAG_WORDS[flag]}; in {', '.join(where[:6])}{more}")
    if np.isnan(table.null_best).any():
        texts.append("the hidden size is unknown, or the tokens are too few: nulls are missing")
    if len(shown) < table.sizes["checkpoint"]:
        texts.append(f"the map shows {len(shown)} of {table.sizes['checkpoint']} checkpoints, to keep the page small; "
                     "figures and tables have all")
    return texts


def study_names(studies):
    """Returns what the page calls each study: its model, with the folder if several have the same."""
    names = [" and ".join(sorted(set(map(str, study.table.model_name.values)))) for study in studies]
    often = Counter(names)
    return [f"{name} ({study.rows[0].path.parent})" if often[name] > 1 else name
            for name, study in zip(names, studies)]


def study_figures(table, number):
    """Returns ([(drawing, finding, its Picture, id)], [(drawing, why it is absent)])."""
    drawn, absent = draw_all(table)
    narrow, _ = draw_all(table, NARROW)
    told = over_seeds(table)
    end = f"-{number}" if number else ""
    return [(drawing, drawing.find(told) or drawing.title, Picture(as_image(wide), as_image(small)),
             f"figure-{drawing.name}{end}") for (drawing, wide), (_, small) in zip(drawn, narrow)], absent


def study_part(emergence, number, name, blocks, shown):
    """Returns what the template shows of one study."""
    table = emergence.table
    figures, absent = study_figures(table, number)
    rows, nulls = summary_table(table)
    first = emergence.rows[0].attributes
    return {
        "name": name, "end": f"-{number}" if number else "", "headspan": table.attrs["headspan"].splitlines(),
        "versions": table.attrs["versions"].splitlines(), "job": table.attrs["job"],
        "dates": sorted(set(map(str, table.date_created.values))), "mode": first["mode"],
        "tokens": first.get("tokens_path", ""), "n_fit": int(table.n_fit[0]), "n_heldout": int(table.n_heldout[0]),
        "capture": table.attrs["study_capture"], "warnings": warnings_of(emergence, shown),
        "sizes": [(LETTERS[s], int(table.heads.sel(stream=s)), int(table.head_size.sel(stream=s)),
                   int(table.hidden_size.sel(stream=s))) for s in table.stream.values],
        "labels": checkpoint_labels(table), "stream_titles": [LETTERS[s] for s in table.stream.values],
        "rows": rows, "nulls": nulls, "near_far": near_far_rows(table), "blocks": blocks, "absent": absent,
        "figures": figures, "charts": as_json(charts.study_charts(table)),
        "findings": leading(figures)}


def leading(figures):
    """Returns (finding, id of its figure) for the first ones of LEADING."""
    found = {drawing.name: (text, at) for drawing, text, _, at in figures if text != drawing.title}
    return [found[name] for name in LEADING if name in found][:LED_BY]


def checkpoint_labels(table):
    return [checkpoint_label(table.isel(checkpoint=i)) for i in range(table.sizes["checkpoint"])]


def overview(studies, names):
    """Returns (streams, rows) of the table of several studies: the last trained checkpoint of each, with the null."""
    streams = list(dict.fromkeys(s for study in studies for s in study.table.stream.values))
    rows = []
    for study, name in zip(studies, names):
        last = study.table.isel(checkpoint=last_trained(study.table))
        cells = [name, name_and_step(last)]
        for stream in streams:
            if stream not in last.stream.values:
                cells += ["–"] * 3
                continue
            one = last.sel(stream=stream)
            best = one.r2.sel(scope="best", statistic="mean")
            cells += [share(value) for value in (best.sel(part="in_sample"), best.sel(part="heldout"),
                                                 one.null_best.sel(part="in_sample"))]
        rows.append(cells)
    return [LETTERS[stream] for stream in streams], rows


def together(studies, names):
    """Returns (finding, Picture, charts) of several studies side by side; None if nothing can be drawn of them."""
    tables = [study.table for study in studies]
    found = side_by_side([table.isel(checkpoint=last_trained(table)) for table in tables], names)
    try:
        image = picture(lambda: draw_side_by_side(tables, names))
        return found or "Over training", image, as_json({"side": charts.side_by_side(tables, names)})
    except Absent:
        return None


def last_trained(table):
    """Returns the index of the last checkpoint with trained weights, or of the last one if there is none."""
    found = np.flatnonzero(table.init.values != "random")
    return found[-1] if len(found) else -1


def render(studies):
    """Returns the page as text."""
    names = study_names(studies)
    parts, maps = [], []
    for number, (emergence, name) in enumerate(zip(studies, names)):
        streams, blocks, shown = pages_map(emergence, number, LARGEST_MAP // len(studies))
        part = study_part(emergence, number, name, blocks, shown)
        parts.append(part)
        maps.append({"name": name, "checkpoints": [part["labels"][i] for i in shown], "streams": streams,
                     "figures": figures_of_rows(emergence.table.isel(checkpoint=shown))})
    streams, rows = overview(studies, names)
    return environment().get_template("report.html").render(
        names=names, together=together(studies, names) if len(studies) > 1 else None, version=__version__, parts=parts,
        overview_streams=streams, overview=rows, studies=as_json(maps),
        script=template_text("report.js"), charts_script=template_text("charts.js"), plot=plot_library())
