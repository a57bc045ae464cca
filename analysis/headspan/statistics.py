"""Statistics of one stream, as pure functions of arrays. analysis/README.md says what each means.

r2 is [target, source]; layer is [heads], in order of layers. A pair of two different heads is causal if layer(source)
<= layer(target). Only causal pairs count. Pairs without an R² (NaN) are left out, and a statistic of no pairs is NaN.
"""
import numpy as np

PARTS = ("in_sample", "adjusted", "heldout")
STATISTICS = ("mean", "median", "q05", "q25", "q75", "q95")
SCOPES = ("best", "pairs", "intra", "inter")
QUANTILES = (0.5, 0.05, 0.25, 0.75, 0.95)
THRESHOLDS = (0.1, 0.5)
LINKS = (1, 3, 5)
WINDOWS = (2, 4)  # in layers: pairs up to this distance are near, others far


def causal_pairs(layer):
    """Returns [target, source] of bool."""
    return (layer[None, :] <= layer[:, None]) & ~np.eye(len(layer), dtype=bool)


def summary(values):
    """Returns mean, median and quantiles of the values that are not NaN, in the order of STATISTICS."""
    values = values[~np.isnan(values)]
    if values.size == 0:
        return np.full(len(STATISTICS), np.nan)
    return np.concatenate([[values.mean()], np.quantile(values, QUANTILES)])


def adjusted(r2, tokens, regressors):
    """Returns 1 - (1-R²)(n-1)/(n-p-1); NaN if there are too few tokens for a fit."""
    free = tokens - regressors - 1.0
    return 1 - (1 - r2) * (tokens - 1) / np.where(free > 0, free, np.nan)


def parts_of(tokens, in_sample, heldout, regressors):
    """Returns the three arrays of PARTS. heldout: NaN if None."""
    return [in_sample, adjusted(in_sample, tokens, regressors), np.full(in_sample.shape, np.nan) if heldout is None else heldout]


def best_sources(r2, causal):
    """Returns the source with the largest R² for each target among the `causal` ones, -1 if there is none; in case of a
    tie, that of the lower layer and head. causal: [target, source] of bool."""
    masked = np.where(causal & ~np.isnan(r2), r2, -np.inf)
    best = masked.argmax(axis=1)
    return np.where(masked.max(axis=1) > -np.inf, best, -1)


def from_sources(r2, sources):
    """Returns the r2 of each target from its source: [target]; NaN if the source is -1."""
    return np.where(sources >= 0, r2[np.arange(len(sources)), sources], np.nan)


def scopes(r2, layer, sources):
    """Returns the R² of each of SCOPES as flat arrays: from each target's `sources`; of all causal pairs; of those
    within a layer; of those between layers."""
    causal, same = causal_pairs(layer), layer[:, None] == layer[None, :]
    return [from_sources(r2, sources), r2[causal], r2[causal & same], r2[causal & ~same]]


def share_above(values, threshold):
    values = values[~np.isnan(values)]
    return np.mean(values > threshold) if values.size else np.nan


def caption_dominance(r2, layer, links):
    """Returns the share of links within a layer among those from each head's `links` best causal sources: the caption
    of Fig. 3."""
    causal = causal_pairs(layer) & ~np.isnan(r2)
    order = np.argsort(np.where(causal, -r2, np.inf), axis=1, kind="stable")[:, :links]
    is_link = np.take_along_axis(causal, order, axis=1)
    same = layer[order] == layer[:, None]
    return np.sum(same & is_link) / is_link.sum() if is_link.any() else np.nan


def code_dominance(r2, layer, links):
    """Returns what the paper's code computes for Fig. 3: each causal pair is a link of both its heads; each head names
    its best links; the named pairs are undirected and counted once. Returns the shares within a layer, one for each of
    `links`. In case of a tie the later source wins, then the later target, as in the code's sort."""
    heads = len(layer)
    causal = causal_pairs(layer) & ~np.isnan(r2)
    weight = np.where(causal, r2, -np.inf)
    # Row h: the links into h, by source, then those out of h, by target: [head, 2 heads].
    touching = np.concatenate([weight, weight.T], axis=1)
    own = np.arange(heads)[:, None]

    def later(columns):  # the order of (source, target)
        return np.where(columns < heads, columns * heads + own, own * heads + columns - heads)

    best = largest(touching, later, min(max(links), 2 * heads))
    found = np.take_along_axis(touching, best, axis=1) > -np.inf
    other = best % heads
    pairs = np.minimum(own, other) * heads + np.maximum(own, other)
    shares = []
    for count in links:
        named = np.unique(pairs[:, :count][found[:, :count]])
        shares.append(np.mean(layer[named // heads] == layer[named % heads]) if named.size else np.nan)
    return np.array(shares)


def largest(values, rank, count):
    """Returns the columns of the `count` largest values in each row of [row, column], largest first; in case of a tie,
    the column of higher rank(columns) first."""
    everything = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    kept = everything
    if count < values.shape[1]:
        order = np.argpartition(-values, (count - 1, count), axis=1)
        last, next_one = np.take_along_axis(values, order[:, count - 1:count + 1], axis=1).T
        tied = np.any((last == next_one) & (last > -np.inf))  # the partition chose arbitrarily among equal values
        kept = everything if tied else order[:, :count]
    order = np.lexsort((-rank(kept), -np.take_along_axis(values, kept, axis=1)), axis=1)
    return np.take_along_axis(kept, order[:, :count], axis=1)


def near_far(r2, layer, window):
    """Returns the mean R² of the causal pairs 1..window layers apart, of those farther apart, and near/(near + far) of
    the two means, which the paper calls "% Conn." although it is not a share of connections."""
    distance = layer[:, None] - layer[None, :]
    near, far = (np.nan if np.all(np.isnan(values)) else np.nanmean(values)
                 for values in (r2[(distance >= 1) & (distance <= window)], r2[distance > window]))
    return np.array([near, far, near / (near + far)])


def flag_counts(status, flags):
    """Returns how many entries have each flag: [flag]. `flags`: their masks."""
    return np.array([np.count_nonzero(status & mask) for mask in flags])
