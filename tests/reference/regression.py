"""The definitions of headspan's statistics, from raw activations, with numpy's least squares: no Gram, no normal
equations.

All functions take z: [tokens, heads, d] in float64. An independent reference for the tests, slow and obvious.
"""
import numpy as np


def centred(x):
    """Subtracts the mean twice: the mean of many tokens has rounding errors itself."""
    x = x - x.mean(0)
    return x - x.mean(0)


def is_constant(x):
    """Returns [columns] for x: [tokens, columns]: whether SST is rounding only."""
    return (centred(x) ** 2).sum(0) <= len(x) * (8 * np.finfo(float).eps * np.abs(x.mean(0))) ** 2


def covariance(x):
    """Returns [columns, columns] for x: [tokens, columns]; 0 where a column is constant."""
    varying = np.where(is_constant(x), 0, centred(x))
    return varying.T @ varying / (len(x) - 1)


def effective_rank(eigenvalues):
    return np.divide(eigenvalues.sum() ** 2, (eigenvalues**2).sum(), out=np.array(np.nan), where=eigenvalues.any())


def uniform_r2(sse, sst, paper=False):
    """Constant coordinates are left out, or count as 1 with the paper's flags."""
    valid = sst > 0
    r2 = 1 - sse[valid] / sst[valid]
    if paper:
        return np.concatenate([r2, np.ones((~valid).sum())]).mean()
    return r2.mean() if valid.any() else np.nan


def fit(x, y, x_heldout=None, y_heldout=None, paper=False):
    """OLS with intercept. Returns R2 uniform, R2 weighted, R2 held-out (NaN without held-out tokens)."""
    maps, *_ = np.linalg.lstsq(centred(x), centred(y), rcond=None)
    sse = ((centred(y) - centred(x) @ maps) ** 2).sum(0)
    sst = np.where(is_constant(y), 0, (centred(y) ** 2).sum(0))
    weighted = 1 - sse[sst > 0].sum() / sst.sum() if sst.sum() > 0 else np.nan
    heldout = np.nan
    if x_heldout is not None and len(x_heldout):
        residual = y_heldout - y.mean(0) - (x_heldout - x.mean(0)) @ maps
        sst_heldout = np.where(is_constant(y_heldout), 0, (centred(y_heldout) ** 2).sum(0))
        heldout = uniform_r2((residual**2).sum(0), sst_heldout)
    return uniform_r2(sse, sst, paper), weighted, heldout


def take(z, heads):
    """Returns the columns of some heads side by side."""
    return z[:, list(heads)].reshape(len(z), len(heads) * z.shape[2])


def too_few(z, references):
    return references * z.shape[2] >= len(z) - 1


def joint(z, zh, target, sources, paper=False):
    if too_few(z, len(sources)):
        return np.nan, np.nan, np.nan
    return fit(take(z, sources), z[:, target], take(zh, sources), zh[:, target], paper)


def all_pairs(z, zh, paper=False):
    heads = z.shape[1]
    r2 = np.full((3, heads, heads), np.nan)
    for t in range(heads):
        for s in range(heads):
            if s != t:
                r2[:, t, s] = joint(z, zh, t, [s], paper)
    return r2


def kept_regressors(x, unit):
    """Returns rank and smallest kept pivot of the regressors at unit scale; a pivot at or below columns * unit is
    dropped.

    Pivoted Gram-Schmidt; its squared lengths are the pivots of a pivoted Cholesky factorisation. Ties go to the first.
    """
    varying = centred(x)[:, ~is_constant(x)]
    rest = varying / np.linalg.norm(varying, axis=0)
    pivots = []
    while len(pivots) < rest.shape[1]:
        lengths = (rest**2).sum(0)
        best = np.argmax(np.round(lengths, 12))
        if lengths[best] <= x.shape[1] * unit:
            break
        pivots.append(lengths[best])
        direction = rest[:, best] / np.sqrt(lengths[best])
        rest = rest - np.outer(direction, direction @ rest)
        rest[:, best] = 0
    return len(pivots), min(pivots, default=np.nan)


def span(x, rank):
    """Returns an orthonormal basis of the `rank` largest directions of the columns that vary: [tokens, rank]."""
    varying = centred(x)[:, ~is_constant(x)]
    u, _, _ = np.linalg.svd(varying / np.linalg.norm(varying, axis=0), full_matrices=False)
    return u[:, :rank]


def ranked(r2, layer, target):
    sources = [s for s in range(len(layer)) if s != target and layer[s] <= layer[target] and not np.isnan(r2[target, s])]
    return sorted(sources, key=lambda s: -r2[target, s])


def forward(z, target, pool, most):
    chosen = []
    while len(chosen) < min(most, len(pool)):
        rest = [s for s in pool if s not in chosen]
        scores = [joint(z, z[:0], target, chosen + [s])[0] for s in rest]
        if np.isnan(scores[0]):
            break
        chosen.append(rest[int(np.argmax(scores))])
    return chosen


def splitmix64(seed, count):
    mask, state, out = (1 << 64) - 1, seed, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        x = state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        out.append(x ^ (x >> 31))
    return out


def heldout_sequences(count, share, seed):
    if share == 0 or count < 2:
        return np.zeros(count, bool)
    size = min(max(int(np.floor(share * count + 0.5)), 1), count - 1)
    order = np.argsort(np.array(splitmix64(seed, count), np.uint64), kind="stable")
    chosen = np.zeros(count, bool)
    chosen[order[:size]] = True
    return chosen
