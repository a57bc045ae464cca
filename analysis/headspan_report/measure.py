"""Statistics of one stream of one checkpoint, and their nulls: the columns of emergence.nc and .csv.

VARIABLES names every statistic with its axes. `measure` returns those of one stream, `nulls` those that are the same
for all checkpoints of a study. A statistic that the result does not have is absent.
"""
import numpy as np

from headspan import nulls as null
from headspan import statistics as st

from .result import FLAGS, RULES, SCORES

CEILINGS = ("layer", "layer_adjusted", "layer_heldout", "causal")
DOMINANCE = ("caption", "code")
MEASURES = ("cka", "cca", "procrustes")
TABLES = ("pairs", *RULES, "ceiling_layer")
AXES = {"scope": st.SCOPES, "part": st.PARTS, "statistic": st.STATISTICS, "threshold": st.THRESHOLDS, "rule": RULES,
        "ceiling_kind": CEILINGS, "dominance_rule": DOMINANCE, "links": st.LINKS, "window": st.WINDOWS,
        "distance": ("near", "far", "near_share"), "flag": tuple(FLAGS), "table": TABLES,
        "measure": MEASURES, "score": SCORES}

# Name -> axes, long name. Axes beyond AXES: head, count, effective, and rank_tolerance, because "tolerance" is an
# argument of xarray's sel.
VARIABLES = {
    "r2": (("scope", "part", "statistic"), "R2 from the best causal source (chosen in-sample), of all causal pairs, of "
           "those within and between layers"),
    "share_above": (("scope", "threshold"), "share with an in-sample R2 above the threshold"),
    "top_r2": (("rule", "count", "part", "statistic"), "joint R2 of the first count references, over targets"),
    "ceiling": (("ceiling_kind", "statistic"), "R2 from all other heads of the layer, or from everything earlier"),
    "dominance": (("dominance_rule", "links"), "share of dominant links within a layer: as the paper's caption says, "
                  "and as its code counts"),
    "near_far": (("part", "window", "distance"), "mean R2 between layers up to window apart and beyond; near_share is "
                 "near/(near+far) of the means, not a share of connections"),
    "overlap_dimension": (("effective", "rank_tolerance"),
                          "sum of the heads' ranks less the rank of all, mean over layers"),
    "alignment": ((), "mean squared cosine of the principal angles of two heads' projections, mean over the pairs of a "
                  "layer and over layers"),
    "canonical": ((), "mean squared canonical correlation of two heads of a layer, likewise"),
    "similarity": (("measure", "statistic"), "likeness of two heads, of all pairs: linear CKA, mean squared canonical "
                   "correlation, Procrustes distance"),
    "r2_layer": (("layer", "other_layer"), "mean R2 of the heads of a layer from those of another"),
    "cka_layer": (("layer", "other_layer"), "linear CKA of two whole layers"),
    "effective_rank": (("statistic",), "effective rank of a head's covariance, of at most head_size"),
    "effective_rank_layer": ((), "effective rank of a layer's covariance, mean over layers"),
    "flagged": (("table", "flag"), "entries that carry a status flag"),
    "head_best": (("part", "head"), "R2 of each head from its best causal source"),
    "head_source": (("head",), "that source, -1 where there is none"),
    "head_references": (("rule", "head", "count"), "references of each head, -1 where there are no more"),
    "head_top": (("rule", "part", "head", "count"), "joint R2 of the first count references"),
    "head_effective_rank": (("head",), "effective rank of each head's covariance")}
NULLS = {
    **null.NULLS,
    "null_share_above": (("threshold",), "share of pairs of random projections with an in-sample R2 above"),
    "null_ceiling": ((), "R2 from all other heads of a layer, were they random projections: (H-1) d / m"),
    "null_alignment": ((), "alignment of random projections: d / m"),
    "null_overlap_dimension": (("rank_tolerance",), "overlap dimension of random matrices"),
    "null_similarity": (("measure",), "likeness of two random subspaces"),
    "null_dominance": (("dominance_rule", "links"), "what random rankings give"),
    "null_dominance_sd": (("dominance_rule", "links"), "standard deviation of what random rankings give")}


def measure(stream, overlap):
    """Returns name -> array over the axes of VARIABLES. overlap: the result's, or None."""
    layer, tables = stream.layer, stream.tables
    best = st.best_sources(tables["r2"], st.causal_pairs(layer))
    parts = st.parts_of(stream.n_fit, tables["r2"], tables.get("r2_heldout"), stream.head_size)
    scopes = [st.scopes(r2, layer, best) for r2 in parts]  # [part][scope]
    found = {
        "r2": np.array([[st.summary(values) for values in part] for part in scopes]).transpose(1, 0, 2),
        "share_above": np.array([[st.share_above(values, t) for t in st.THRESHOLDS] for values in scopes[0]]),
        "dominance": np.array([[st.caption_dominance(tables["r2"], layer, links) for links in st.LINKS],
                               st.code_dominance(tables["r2"], layer, st.LINKS)]),
        "near_far": np.array([[st.near_far(r2, layer, window) for window in st.WINDOWS] for r2 in parts]),
        "effective_rank": st.summary(tables["effective_rank"]),
        "r2_layer": mean_of_layers(tables["r2"], layer),
        "head_best": np.array([part[0] for part in scopes]), "head_source": best,
        "head_effective_rank": tables["effective_rank"],
        "flagged": np.array([flags_of(tables, name) for name in TABLES])}
    if "effective_rank_layer" in tables:
        found["effective_rank_layer"] = np.nanmean(tables["effective_rank_layer"])
    if any(f"r2_{rule}" in tables for rule in RULES):
        found.update(measure_selections(stream))
    if any(name in tables for name in ("ceiling_layer", "ceiling_causal")):
        found["ceiling"] = np.array([st.summary(tables.get(f"ceiling_{kind}", np.array([np.nan])))
                                     for kind in CEILINGS])
    if "canonical_layer" in tables:
        found["canonical"] = mean_between_heads(tables["canonical_layer"])
    if any(name in tables for name in MEASURES):
        pairs = np.tril_indices(stream.heads, -1)
        found["similarity"] = np.array([st.summary(tables[name][pairs] if name in tables else np.array([np.nan]))
                                        for name in MEASURES])
    if "cka_layer" in tables:
        found["cka_layer"] = tables["cka_layer"]
    return found | measure_overlap(stream.name, overlap)


def flags_of(tables, name):
    """Returns counts by flag; for pairs, without the diagonal."""
    status = tables.get("status" if name == "pairs" else f"status_{name}")
    if status is None:
        return np.zeros(len(FLAGS), int)
    if name == "pairs":
        status = status[~np.eye(len(status), dtype=bool)]
    return st.flag_counts(status, FLAGS.values())


def measure_selections(stream):
    """Measures the joint regressions of both rules; NaN and -1 for a rule that the job did not ask for."""
    counts = np.arange(1, stream.references + 1)
    absent = np.full((stream.heads, stream.references), np.nan)
    tables = [st.parts_of(stream.n_fit, stream.tables.get(f"r2_{rule}", absent), stream.tables.get(f"r2_{rule}_heldout"),
                          counts * stream.head_size) for rule in RULES]
    return {"head_top": np.array(tables),
            "head_references": np.array([stream.tables.get(f"references_{rule}", np.full(absent.shape, -1))
                                         for rule in RULES]),
            "top_r2": np.array([[[st.summary(part[:, count]) for part in parts] for count in range(stream.references)]
                                for parts in tables])}


def measure_overlap(name, overlap):
    """Measures the overlap of the stream's projection."""
    if overlap is None or name not in overlap.projections:
        return {}
    at, found = overlap.projections.index(name), {}
    if "overlap_dimension" in overlap.tables:
        found["overlap_dimension"] = overlap.tables["overlap_dimension"][at].mean(axis=-1)
    if "alignment" in overlap.tables:
        found["alignment"] = mean_between_heads(overlap.tables["alignment"][at])
    return found


def mean_of_layers(values, layer):
    """Returns the means of [head, head] over the pairs of two layers, without the diagonal: [layer, layer]."""
    member = (layer == np.unique(layer)[:, None]).astype(float)  # [layer, head]
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return member @ np.where(known, values, 0) @ member.T / (member @ known @ member.T)


def layer_scores(scores):
    """Returns the largest score of a layer's heads, of entropies the mean: [SCORES, layer]."""
    layers = np.unique(scores.layer)
    return np.array([[(np.mean if name == "entropy" else np.max)(row[scores.layer == layer]) for layer in layers]
                     for name, row in zip(SCORES, scores.values)])


def mean_between_heads(values):
    """Returns the means of [layer, head, head] without the diagonals; NaN marks heads that do not exist."""
    values = values[:, ~np.eye(values.shape[-1], dtype=bool)]
    return np.nan if np.all(np.isnan(values)) else np.nanmean(values)


def nulls(stream, dominance, tolerances):
    """Returns name -> array over the axes of NULLS. dominance: dominance_nulls(layer of the stream)."""
    d, m, n = stream.head_size, stream.hidden_size, stream.n_fit
    per_layer = int(np.bincount(stream.layer).max())
    fit = null.PairNull(d, m, float(null.noise_floor(float(d), n)))
    return null.of_heads(st.causal_pairs(stream.layer).sum(axis=1), d, m, n, stream.references) | {
        "null_share_above": np.array([fit.share_above(t) for t in st.THRESHOLDS]),
        "null_ceiling": float(null.geometric((per_layer - 1.0) * d, m)),
        "null_alignment": float(null.geometric(float(d), m)),
        "null_overlap_dimension": np.array([null.overlap_dimension(per_layer, d, m, t) for t in tolerances]),
        "null_similarity": np.array([null.similarity(measure, d / m if m > 0 else np.nan) for measure in MEASURES]),
        "null_dominance": dominance[0], "null_dominance_sd": dominance[1]}


def dominance_nulls(layer):
    """Returns means and standard deviations, each [dominance_rule, links]."""
    caption = np.array([null.caption_dominance(layer, links) for links in st.LINKS]).T
    code = null.code_dominance_null(layer, st.LINKS)
    return np.stack([caption[0], code[0]]), np.stack([caption[1], code[1]])
