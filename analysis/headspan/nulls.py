"""What the numbers would be if heads had nothing in common, in closed form except for the dominance of the paper's
code.

Unrelated heads are random isotropic projections of a hidden state of size m to d coordinates each, seen through n
tokens. layer: [heads] is the layer of each head, in order of layers. The nulls of joint regressions are those of
references taken at random; the best of many are slightly better.
"""
from math import lgamma

import numpy as np

from .statistics import code_dominance

GRID = 20001  # points at which a distribution function is evaluated
DRAWS = 200  # random rankings, at most
FEWEST_DRAWS = 8
WEIGHTS_DRAWN = 1e8  # in all draws together; more heads need fewer draws
SEED = 0
EPS32 = float(np.finfo(np.float32).eps)

# Name -> axes, long name.
NULLS = {
    "null_best": (("part",), "mean R2 from the best of as many random projections"),
    "null_pairs": (("part",), "mean R2 from a random projection"),
    "null_top": (("part", "count"), "R2 from count random projections"),
    "noise_floor": (("count",), "p/(n-1): in-sample R2 of pure noise"),
    "geometric_null": (("count",), "N d / m: R2 from N random projections")}


def noise_floor(regressors, tokens):
    """Returns the in-sample R² of pure noise: p/(n-1); NaN if there are too few tokens for a fit."""
    floor = regressors / np.maximum(tokens - 1.0, 1e-300)
    return np.where(floor < 1, floor, np.nan)


def geometric(regressors, hidden_size):
    """Returns the R² from a random projection: p/m, at most 1; NaN if m is unknown (0)."""
    return np.minimum(1.0, regressors / hidden_size) if hidden_size > 0 else np.full(np.shape(regressors), np.nan)


def in_sample(r2, floor):
    """Returns the in-sample R² for a true R² and a noise floor f: f + (1-f) R²."""
    return floor + (1 - floor) * r2


def similarity(measure, share):
    """Returns the mean of a measure of similarity over two random subspaces of which each has this share, d / m, of the
    dimensions, for large m: d / m for CKA and CCA; for the Procrustes distance by the law of Wachter (1980)."""
    if not share < 1:
        return np.nan if np.isnan(share) else 0.0 if measure == "procrustes" else 1.0
    if measure != "procrustes":
        return share
    edge, rest = 2 * np.sqrt(share * (1 - share)), abs(1 - 2 * share)
    return 1 - max(0.0, 2 - 1 / share) - (edge - rest * np.arctan2(edge, rest)) / (np.pi * share)


class PairNull:
    """R² of one head from one other, and from the best of C others.

    The R² of one coordinate is Beta(d/2, (m-d)/2). A head's is the mean of d such, taken as independent: the Beta with
    the same mean mu = d/m and variance, Beta(mu nu, (1-mu) nu) with nu = d (m+2)/2 - 1.
    """

    def __init__(self, head_size, hidden_size, floor):
        """`floor`: d/(n-1) for in-sample R², 0 for held-out R²."""
        self.floor = floor
        self.mean_r2 = float(geometric(float(head_size), hidden_size))
        if not self.mean_r2 < 1:
            self.x, self.below = np.array([self.mean_r2]), np.array([1.0])
            return
        nu = head_size * (hidden_size + 2) / 2 - 1
        a, b = self.mean_r2 * nu, (1 - self.mean_r2) * nu
        spread = 12 * np.sqrt(self.mean_r2 * (1 - self.mean_r2) / (nu + 1))
        self.x = np.linspace(max(0.0, self.mean_r2 - spread), min(1.0, self.mean_r2 + spread), GRID)
        inner = np.clip(self.x, 1e-12, 1 - 1e-12)
        density = np.exp((a - 1) * np.log(inner) + (b - 1) * np.log1p(-inner) + lgamma(a + b) - lgamma(a) - lgamma(b))
        steps = np.diff(self.x) * (density[1:] + density[:-1]) / 2
        self.below = np.minimum(1.0, np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum())

    def mean(self):
        return float(in_sample(self.mean_r2, self.floor))

    def share_above(self, r2):
        """Returns the expected share of pairs with an R² above r2."""
        if np.isnan(self.mean_r2 + self.floor):
            return np.nan
        return float(1 - np.interp((r2 - self.floor) / (1 - self.floor), self.x, self.below, left=0, right=1))

    def best_below(self, sources):
        """Returns the distribution function, on the grid x, of the best R² of a random target's sources: mean_t
        F(x)^C_t."""
        counts, times = np.unique(sources[sources > 0], return_counts=True)
        return sum(share * self.below**count for count, share in zip(counts, times / times.sum()))

    def mean_best(self, sources):
        """Returns the mean over targets of the best R² of their sources. sources: [targets], their numbers; targets
        without any are left out."""
        if not np.any(sources > 0):
            return np.nan
        above = 1 - self.best_below(sources)
        tail = np.sum(np.diff(self.x) * (above[1:] + above[:-1]) / 2)
        return float(in_sample(self.x[0] + tail, self.floor))

    def median_best(self, sources):
        if not np.any(sources > 0) or np.isnan(self.mean_r2):
            return np.nan
        return float(in_sample(np.interp(0.5, self.best_below(sources), self.x), self.floor))


def singular_values_above(rows, columns, limit):
    """Returns how many of the min(rows, columns) singular values of a matrix of independent standard normals exceed
    `limit`, by the law of Marchenko and Pastur: those of a matrix of n x p, p <= n, are sqrt(n x), where x has the
    density sqrt((b-x)(x-a)) / (2 pi c x) between a = (1-sqrt(c))^2 and b = (1+sqrt(c))^2, c = p/n."""
    most, least = max(rows, columns), min(rows, columns)
    c = least / most
    low, high = (1 - np.sqrt(c)) ** 2, (1 + np.sqrt(c)) ** 2
    edges = np.linspace(0, np.pi, GRID)
    middles = (edges[1:] + edges[:-1]) / 2

    def x(angle):  # removes the singular ends of the roots
        return (low + high) / 2 - (high - low) / 2 * np.cos(angle)

    share = np.cumsum(np.sin(middles) ** 2 / x(middles))
    below = np.interp(limit, np.sqrt(most * np.maximum(x(edges), 0)), np.append(0, share / share[-1]))
    return least * (1 - float(below))


def of_heads(sources, head_size, hidden_size, tokens, references):
    """Returns name -> array over the axes of NULLS. sources: [target], how many sources each may have; tokens: those of the
    fit; references: the largest count."""
    regressors = np.arange(1, references + 1) * float(head_size)
    floor, random = noise_floor(regressors, tokens), geometric(regressors, hidden_size)
    fit, true = (PairNull(head_size, hidden_size, own) for own in (float(noise_floor(float(head_size), tokens)), 0.0))
    # On average adjusting removes exactly the noise floor, and held-out R² has none.
    by_part = (fit, true, true)
    return {"null_best": np.array([pair.mean_best(sources) for pair in by_part]),
            "null_pairs": np.array([pair.mean() for pair in by_part]),
            "null_top": np.array([in_sample(random, floor), random, random]),
            "noise_floor": floor, "geometric_null": random}


def overlap_dimension(heads, head_size, hidden_size, tolerance):
    """Returns the overlap dimension of a layer's projections if they were random matrices: the sum of the heads' ranks
    minus the joint rank. Singular values count above `tolerance` times the largest joint one; "paper": above max(shape)
    eps32 times the largest of that matrix."""
    if hidden_size <= 0:
        return np.nan
    columns = heads * head_size
    if tolerance == "paper":
        head_limit, joint_limit = (max(hidden_size, width) * EPS32 * largest_singular_value(hidden_size, width)
                                   for width in (head_size, columns))
    else:
        head_limit = joint_limit = float(tolerance) * largest_singular_value(hidden_size, columns)
    return (heads * singular_values_above(hidden_size, head_size, head_limit)
            - singular_values_above(hidden_size, columns, joint_limit))


def largest_singular_value(rows, columns):
    """Returns the largest singular value of such a matrix, for large ones."""
    return np.sqrt(rows) + np.sqrt(columns)


def heads_at_or_below(layer):
    """Returns the number of heads in the same layer, and in this and all earlier layers. Both [heads]."""
    sizes = np.bincount(layer)
    return sizes[layer], np.cumsum(sizes)[layer]


def caption_dominance(layer, links):
    """Returns mean and standard deviation of the caption's share under random rankings: hypergeometric draws without
    replacement of min(links, C) from C causal sources, of which h-1 are in the same layer; heads are independent."""
    own, upto = (counts - 1 for counts in heads_at_or_below(layer))
    own, upto = own[upto > 0].astype(float), upto[upto > 0].astype(float)
    if len(upto) == 0:
        return np.nan, np.nan
    taken = np.minimum(links, upto)
    chance = own / upto
    variance = taken * chance * (1 - chance) * np.where(upto > 1, (upto - taken) / np.maximum(upto - 1, 1), 0)
    return float(np.sum(taken * chance) / taken.sum()), float(np.sqrt(variance.sum()) / taken.sum())


def code_dominance_null(layer, links):
    """Estimates mean and standard deviation of the paper code's shares under random rankings, by seeded Monte Carlo.

    links: the number of best links per head. Returns two arrays [links].
    """
    heads = len(layer)
    draws = int(np.clip(WEIGHTS_DRAWN / (2 * heads**2), FEWEST_DRAWS, DRAWS))
    random = np.random.default_rng(SEED)
    shares = np.array([code_dominance(random.random((heads, heads)), layer, links) for _ in range(draws)])
    return shares.mean(axis=0), shares.std(axis=0, ddof=1)
