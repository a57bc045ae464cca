"""What each figure shows, in one sentence with its null, computed from the table [checkpoint, stream, ...] of the
figure. Draws nothing; returns None if there is nothing to say."""
import numpy as np

from .axes import Absent
from .reference import against_reference, other_than_itself, part_of
from .selection import LETTERS, last_of, trained, untrained_of

FLAT = 0.02  # R² that differ by less count as equal
PROJECTIONS = "random projections give"


def trend(values, flat=FLAT):
    """Returns (verb, index where the change began, value there, last value) of a series that may have gaps; None if it
    is empty.

    Describes the change to the last value from the highest or the lowest one: from the later of the two, unless the
    last value is nearer to it than a quarter of the range.
    """
    known = np.flatnonzero(np.isfinite(values))
    if len(known) == 0:
        return None
    seen = np.asarray(values, float)[known]
    last, span = seen[-1], np.ptp(seen)
    if len(known) == 1 or span < flat:
        return "is" if len(known) == 1 else "stays", int(known[0]), float(seen[0]), float(last)
    turns = [int(np.flatnonzero(np.round(seen, 2) == np.round(extreme, 2))[0]) for extreme in (seen.min(), seen.max())]
    start = max(turn for turn in turns if abs(seen[turn] - last) >= span / 4)
    return "rises" if last > seen[start] else "falls", int(known[start]), float(seen[start]), float(last)


def when(row):
    """Returns how a sentence names a checkpoint: by its step, or by its name if it has none."""
    step = int(row.step)
    return f"step {step}" if step >= 0 and row.init.item() != "random" else str(row.checkpoint.item())


def rounded(value):
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00")


def percent(value):
    return f"{100 * value:.0f} %"


def null_words(nulls, words=PROJECTIONS, tell=rounded):
    """Describes the nulls, or says that they are unknown. nulls: one for each stream."""
    known = [float(null) for null in np.ravel(nulls) if np.isfinite(null)]
    if not known:
        return "the null is unknown"
    least, most = tell(min(known)), tell(max(known))
    return f"{words} {least}" if least == most else f"{words} {least} to {most}"


def joined(clauses, null):
    """Joins clauses: stream -> text; only the first names the subject."""
    if not clauses:
        return None
    told = [f"{LETTERS[stream] if i == 0 else LETTERS[stream].lower()}: {text}"
            for i, (stream, text) in enumerate(clauses.items())]
    return "; ".join([*told, null])


def over_training(subject, rows, values, null, flat=FLAT):
    """Describes how each stream reached its last value. values: [checkpoint, stream]; null: appended as it is."""
    clauses, said = {}, None
    for stream in rows.stream.values:
        one = values.sel(stream=stream)
        found = trend(one.values, flat)
        if found is None:
            continue
        verb, start, before, last = found
        end = int(np.flatnonzero(np.isfinite(one.values))[-1])
        at = f" at {when(rows.isel(checkpoint=end))}" if said is None else ""
        way = {"is": rounded(last), "stays": f"at {rounded(last)}"}.get(
            verb, f"from {rounded(before)} at {when(rows.isel(checkpoint=start))} to {rounded(last)}")
        words = ([subject] if said is None else []) + ([verb] if verb != said else [])
        clauses[stream] = " ".join([*words, way]) + at
        said = verb
    return joined(clauses, null)


def listed(texts):
    """Joins texts as in "a, b and c"."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def side_by_side(rows, names):
    """Compares one checkpoint of each of several studies, by name."""
    streams = [stream for stream in LETTERS if all(stream in row.stream.values for row in rows)]
    clauses = {}
    for stream in streams:
        values = [float(row.r2.sel(stream=stream, scope="best", part="in_sample", statistic="mean")) for row in rows]
        if np.all(np.isfinite(values)):
            told = listed([rounded(value) if clauses else f"{rounded(value)} in {name} at {when(row)}"
                           for value, name, row in zip(values, names, rows)])
            clauses[stream] = told if clauses else f"mean best-source R² is {told}"
    nulls = [null_words(row.null_best.sel(part="in_sample")) for row in rows]
    if len(set(nulls)) == 1:
        return joined(clauses, nulls[0])
    told = []
    for null, name in zip(nulls, names):
        again = any(text.startswith(PROJECTIONS) for text in told)
        told.append(f"{null.removeprefix(PROJECTIONS).strip() if again else null} in {name}")
    return joined(clauses, listed(told))


def emergence(table):
    rows = trained(table)
    values = rows.r2.sel(scope="best", part="in_sample", statistic="mean")
    return over_training("best-source R²", rows, values, null_words(rows.null_best.sel(part="in_sample")))


def levels(last, values, first, later, null):
    """Describes one checkpoint. values: stream's rows -> texts for the {} of `first`, the clause of the first stream,
    and of `later`, that of the others; None if there is nothing."""
    clauses = {}
    for stream in last.stream.values:
        texts = values(last.sel(stream=stream))
        if texts is not None:
            clauses[stream] = (later if clauses else first).format(*texts)
    return joined(clauses, null)


def texts_of(*numbers, tell=rounded):
    """Returns the texts that `levels` needs."""
    return [tell(number) for number in map(float, numbers)] if np.all(np.isfinite(numbers)) else None


def rule_of(last, best_first):
    """Returns the first rule of selection for which there are results."""
    return next((rule for rule in best_first if not np.all(np.isnan(last.top_r2.sel(rule=rule)))), best_first[0])


def references(table):
    last, many = last_of(table), int(table["count"].max())
    rule = rule_of(last, ("pairwise", "forward"))
    median = last.top_r2.sel(rule=rule, part="in_sample", statistic="median", count=many)
    return levels(last, lambda one: texts_of(median.sel(stream=one.stream)),
                  f"half of the heads reach R² {{}} from {counted(many)} at {when(last)}", "{}",
                  null_words(last.null_top.sel(part="in_sample", count=many), random_words(many)))


def counted(count):
    return f"{count} reference{'s' if count > 1 else ''}"


def random_words(count):
    return f"{count} random projections give" if count > 1 else "a random projection gives"


def mean_by_references(table):
    last, many = last_of(table), int(table["count"].max())
    rule = rule_of(last, ("forward", "pairwise"))
    top = last.top_r2.sel(rule=rule, part="in_sample", statistic="mean")
    counts = sorted({1, many})
    first = f"mean R² is {{}} from 1 reference{f' and {{}} from {many}' if many > 1 else ''} at {when(last)}"
    null = null_words(last.null_top.sel(part="in_sample", count=many), random_words(many))
    return levels(last, lambda one: texts_of(*(top.sel(stream=one.stream, count=count) for count in counts)), first,
                  " and ".join("{}" for _ in counts), null)


def dominance(table):
    last = last_of(table)
    one_link = {"dominance_rule": "caption", "links": 1}
    return levels(last, lambda one: texts_of(one.dominance.sel(**one_link), tell=percent),
                  f"{{}} of the best links stay within a layer at {when(last)}", "{}",
                  null_words(last.null_dominance.sel(**one_link), "random rankings give", percent))


def overlap(table):
    """Describes the overlap at the tolerance at which the last checkpoint is farthest from its null."""
    rows = trained(table)
    values = rows.overlap_dimension.sel(effective="raw") if "raw" in rows.effective.values else None
    if values is None or np.all(np.isnan(values)):
        return None
    last, null = values.isel(checkpoint=-1), rows.null_overlap_dimension
    apart = np.nan_to_num(np.abs(last - null).max("stream").values, nan=-1)
    tolerance = rows.rank_tolerance.values[int(apart.argmax())]
    at = "the paper's tolerance" if tolerance == "paper" else f"tolerance {tolerance}"
    values = values.sel(rank_tolerance=tolerance)
    return over_training(f"overlap dimension at {at}", rows, values,
                         null_words(null.sel(rank_tolerance=tolerance), "random matrices give"),
                         FLAT * max(1.0, float(np.nanmax(values.values))))


def training_density(table):
    last, before = last_of(table), untrained_of(table)
    if before is None:
        return None

    best = {"scope": "best", "part": "in_sample", "statistic": "mean"}
    return levels(last, lambda one: texts_of(*(row.r2.sel(**best) for row in (before.sel(stream=one.stream), one))),
                  f"mean best-source R² is {{}} at {when(before)}, before training, and {{}} at {when(last)}",
                  "{} and {}", null_words(last.null_best.sel(part="in_sample")))


def distributions(table):
    last, many = last_of(table), int(table["count"].max())
    rule, null = rule_of(last, ("pairwise", "forward")), last.null_top.sel(part="in_sample", count=many)

    def above(one):
        heads = one.head_top.sel(rule=rule, part="in_sample", count=many).values
        heads, line = heads[np.isfinite(heads)], float(null.sel(stream=one.stream))
        return texts_of(np.mean(heads > line), tell=percent) if len(heads) and np.isfinite(line) else None

    return levels(last, above, f"{{}} of the heads are above the null with {counted(many)} at {when(last)}", "{}",
                  null_words(null, random_words(many)))


def near_far(table):
    last, window = last_of(table), table.window.values[0]
    means = last.near_far.sel(part="in_sample", window=window)
    return levels(last, lambda one: texts_of(*means.sel(stream=one.stream, distance=["near", "far"])),
                  f"mean R² is {{}} between layers up to {window} apart and {{}} farther apart at {when(last)}",
                  "{} and {}", null_words(last.null_pairs.sel(part="in_sample"), "a random projection gives"))


def heads(table):
    last = last_of(table)

    def found(one):
        values, null = one.head_best.sel(part="in_sample").values, float(one.null_best.sel(part="in_sample"))
        known = values[np.isfinite(values)]
        if len(known) == 0 or not np.isfinite(null):
            return None
        best = int(np.nanargmax(values))
        return [np.count_nonzero(known > null), len(known), f"layer {int(one.head_layer[best])} head "
                f"{int(one.head_number[best])}", rounded(values[best])]

    return levels(last, found, f"{{}} of {{}} heads are above the null at {when(last)}, most of all {{}} with R² {{}}",
                  "{} of {}, {} with {}", null_words(last.null_best.sel(part="in_sample")))


def ceilings(table):
    rows = trained(table)
    values = rows.ceiling.sel(statistic="mean")
    names = {"layer": "R² from all other heads of the layer", "causal": "R² from everything earlier"}
    kind = next((kind for kind in names if not np.all(np.isnan(values.sel(ceiling_kind=kind)))), None)
    if kind is None:
        return None
    null = null_words(rows.null_ceiling) if kind == "layer" else "the null is unknown"
    return over_training(names[kind], rows, values.sel(ceiling_kind=kind), null)


def alignment(table):
    rows = trained(table)
    name = "alignment" if not np.all(np.isnan(rows.alignment)) else "canonical"
    subject = {"alignment": "squared cosine between two heads of a layer",
               "canonical": "squared canonical correlation of two heads of a layer"}[name]
    return over_training(subject, rows, rows[name], null_words(rows.null_alignment))


def similarity(table):
    rows = trained(table)
    for measure, words in (("cka", "mean CKA of two heads"), ("cca", "mean squared canonical correlation of two heads"),
                           ("procrustes", "mean Procrustes distance of two heads")):
        values = rows.similarity.sel(measure=measure, statistic="mean")
        if not np.all(np.isnan(values)):
            return over_training(words, rows, values, null_words(rows.null_similarity.sel(measure=measure),
                                                                 "random subspaces give"))
    return None


def layer_maps(table):
    last = last_of(table)

    def between(one):
        apart = ~np.eye(last.sizes["layer"], dtype=bool)
        return texts_of(*(np.nanmean(one[name].values[apart]) for name in ("cka_layer", "r2_layer")))

    if last.sizes["layer"] < 2 or np.all(np.isnan(last.cka_layer)):
        return None
    null = null_words(last.null_pairs.sel(part="in_sample"), "for R² a random projection gives")
    return levels(last, between, f"two layers have a mean CKA of {{}} and a mean R² of {{}} at {when(last)}", "{} and {}", null)


def scores(table):
    """Describes when induction heads appear."""
    if "layer_score" not in table:
        return None
    rows = trained(table)
    induction = rows.layer_score.sel(score="induction")
    best = induction.max("layer").values
    if np.all(np.isnan(best)):
        return None
    end = int(np.flatnonzero(np.isfinite(best))[-1])
    half = int(np.flatnonzero(best >= best[end] / 2)[0])
    layer = int(rows.layer.values[int(induction.isel(checkpoint=end).values.argmax())])
    uniform = f"uniform attention gives {float(rows.uniform_score.sel(score='induction')):.2g}"
    return (f"the largest induction score is {rounded(best[end])}, in layer {layer}, at {when(rows.isel(checkpoint=end))}; "
            f"half of it is there at {when(rows.isel(checkpoint=half))}; {uniform}")


def reference_training(table):
    """Describes from when on the reference's heads can be told from the same layer."""
    try:
        rows = against_reference(table)
    except Absent:
        return None
    values = rows.reference_r2.sel(known_from="layer", part=part_of(rows)).mean("reference_layer")
    return over_training("R² of the reference's heads from the same layer", rows, values, "pure noise gives 0 held-out")


def reference_maps(table):
    """Describes whether the two models have the same heads."""
    try:
        last = other_than_itself(table)
    except Absent:
        return None
    part = part_of(last)
    match = last.reference_r2.sel(known_from="one_to_one", part=part).mean("reference_layer")
    return levels(last, lambda one: texts_of(match.sel(stream=one.stream), one.match_null.sel(part=part)),
                  f"matched one to one, the heads of the two models have R² {{}} at {when(last)}, where heads "
                  "that are no pairs have {}", "{} against {}", "above that heads correspond, at it at most their layers do")
