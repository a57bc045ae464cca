"""What the numbers would be if heads had nothing in common. Closed forms but for the paper code's dominance.

Heads that share nothing are random isotropic projections of one hidden state of size m to d coordinates each, seen
through n tokens. Speaks of: layer [heads], the layer of each head, layer by layer. Of joint regressions the null is
that of references taken at random; the best of many are a little better than that.
"""
from math import lgamma

import numpy as np

from .statistics import code_dominance

GRID = 20001  # points of a distribution function
DRAWS = 200  # of random rankings, at most
FEWEST_DRAWS = 8
WEIGHTS_DRAWN = 1e8  # in all draws together: more heads need fewer draws
SEED = 0
EPS32 = float(np.finfo(np.float32).eps)


def noise_floor(regressors, tokens):
    """In-sample R² of pure noise: p/(n-1); NaN where there are too few tokens for a fit."""
    floor = regressors / np.maximum(tokens - 1.0, 1e-300)
    return np.where(floor < 1, floor, np.nan)


def geometric(regressors, hidden_size):
    """R² from a random projection: p/m, at most 1; NaN where m is unknown (0)."""
    return np.minimum(1.0, regressors / hidden_size) if hidden_size > 0 else np.full(np.shape(regressors), np.nan)


def in_sample(r2, floor):
    """What a true R² reads in-sample over a noise floor: f + (1-f) R²."""
    return floor + (1 - floor) * r2


class PairNull:
    """R² of one head from one other, and from the best of C others.

    The R² of one coordinate is Beta(d/2, (m-d)/2). A head's is the mean of d such, taken as independent: the Beta of
    the same mean mu = d/m and variance, Beta(mu nu, (1-mu) nu) with nu = d (m+2)/2 - 1.
    """

    def __init__(self, head_size, hidden_size, floor):
        """`floor`: d/(n-1) for what is read in-sample, 0 for what is held out."""
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
        """The expected share of pairs above it."""
        if np.isnan(self.mean_r2 + self.floor):
            return np.nan
        return float(1 - np.interp((r2 - self.floor) / (1 - self.floor), self.x, self.below, left=0, right=1))

    def best_below(self, sources):
        """The distribution function, on the grid x, of the best of a random target's sources: mean_t F(x)^C_t."""
        counts, times = np.unique(sources[sources > 0], return_counts=True)
        return sum(share * self.below**count for count, share in zip(counts, times / times.sum()))

    def mean_best(self, sources):
        """Mean over targets of the best of its sources. sources: [targets] how many each has; none: left out."""
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
    """How many of the min(rows, columns) singular values of a matrix of independent standard normals exceed `limit`,
    by the law of Marchenko and Pastur: those of a matrix of n x p, p <= n, are sqrt(n x), where x has the density
    sqrt((b-x)(x-a)) / (2 pi c x) between a = (1-sqrt(c))^2 and b = (1+sqrt(c))^2, c = p/n."""
    most, least = max(rows, columns), min(rows, columns)
    c = least / most
    low, high = (1 - np.sqrt(c)) ** 2, (1 + np.sqrt(c)) ** 2
    edges = np.linspace(0, np.pi, GRID)
    middles = (edges[1:] + edges[:-1]) / 2

    def x(angle):  # takes the roots' ends away
        return (low + high) / 2 - (high - low) / 2 * np.cos(angle)

    share = np.cumsum(np.sin(middles) ** 2 / x(middles))
    below = np.interp(limit, np.sqrt(most * np.maximum(x(edges), 0)), np.append(0, share / share[-1]))
    return least * (1 - float(below))


def overlap_dimension(heads, head_size, hidden_size, tolerance):
    """Of a layer's projections, were they random matrices: the heads' ranks less the joint one. Singular values count
    above `tolerance` times the largest joint one; "paper": above max(shape) eps32 times the largest of that matrix."""
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
    """Of such a matrix, where it is large."""
    return np.sqrt(rows) + np.sqrt(columns)


def heads_at_or_below(layer):
    """How many heads there are in the own layer, and in this and all earlier layers. Both [heads]."""
    sizes = np.bincount(layer)
    return sizes[layer], np.cumsum(sizes)[layer]


def caption_dominance(layer, links):
    """Mean and standard deviation of the caption's share under random rankings: hypergeometric draws without
    replacement of min(links, C) from C causal sources, of which h-1 are of the own layer; heads independent."""
    own, upto = (counts - 1 for counts in heads_at_or_below(layer))
    own, upto = own[upto > 0].astype(float), upto[upto > 0].astype(float)
    if len(upto) == 0:
        return np.nan, np.nan
    taken = np.minimum(links, upto)
    chance = own / upto
    variance = taken * chance * (1 - chance) * np.where(upto > 1, (upto - taken) / np.maximum(upto - 1, 1), 0)
    return float(np.sum(taken * chance) / taken.sum()), float(np.sqrt(variance.sum()) / taken.sum())


def code_dominance_null(layer, links):
    """Mean and standard deviation of the paper code's shares under random rankings, by seeded Monte Carlo.

    links: how many best links each head has. Returns two arrays [links].
    """
    heads = len(layer)
    draws = int(np.clip(WEIGHTS_DRAWN / (2 * heads**2), FEWEST_DRAWS, DRAWS))
    random = np.random.default_rng(SEED)
    shares = np.array([code_dominance(random.random((heads, heads)), layer, links) for _ in range(draws)])
    return shares.mean(axis=0), shares.std(axis=0, ddof=1)
