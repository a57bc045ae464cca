"""All R² of one stream of activations from one centred Gram, as fast as numpy and scipy can: what peers.py measures."""
import sys

import numpy as np
import scipy.linalg

REFERENCES = 5
PANEL = 2048  # tokens


class Stream:
    """Activations z: [tokens, columns], float32, of heads in layer-major order. The heads have a few directions in
    common, each to a different degree, and noise."""

    def __init__(self, options, seed):
        self.tokens, self.size, self.layer_heads = options.tokens, options.head_size, options.heads
        self.heads = options.layers * options.heads
        self.columns = self.heads * self.size
        random = np.random.default_rng(seed)
        self.z = random.standard_normal((self.tokens, self.columns), dtype=np.float32)
        shared = random.standard_normal((self.tokens, 16), dtype=np.float32)
        share = (np.arange(self.heads) % 7 / 4).astype(np.float32).repeat(self.size)
        self.z += 1 + share * shared[:, np.arange(self.columns) % 16]

    def columns_of(self, head):
        return slice(head * self.size, (head + 1) * self.size)

    def causal_sources(self, target):
        """Returns how many heads may predict `target`: those of its layer and earlier ones, without itself."""
        return (target // self.layer_heads + 1) * self.layer_heads - 1


class Captured(Stream):
    """Activations of a model, float32; empty at first."""

    def __init__(self, tokens, layers, layer_heads, size):
        self.tokens, self.size, self.layer_heads, self.heads = tokens, size, layer_heads, layers * layer_heads
        self.columns = self.heads * size
        self.z = np.empty((tokens, self.columns), np.float32)

    def take(self, first, layer, values):
        """values: [tokens, heads of a layer * size]."""
        width = self.layer_heads * self.size
        self.z[first:first + len(values), layer * width:(layer + 1) * width] = values


class Regressions:
    """All R² from one centred Gram, by BLAS and LAPACK in one precision."""

    def __init__(self, stream, dtype):
        self.stream, self.dtype = stream, dtype
        self.syrk, self.gemm, self.trsm = scipy.linalg.get_blas_funcs(("syrk", "gemm", "trsm"), dtype=dtype)
        self.potrf, self.trtri = scipy.linalg.get_lapack_funcs(("potrf", "trtri"), dtype=dtype)

    def accumulate(self):
        """Computes the Gram panel by panel about a provisional mean, then about the exact one."""
        z, n, columns = self.stream.z, self.stream.tokens, self.stream.columns
        shift = z[:PANEL].mean(0, dtype=self.dtype)
        gram = np.zeros((columns, columns), self.dtype, order="F")
        total = np.zeros(columns, self.dtype)
        buffer = np.empty((PANEL, columns), self.dtype)
        for first in range(0, n, PANEL):
            rows = z[first:first + PANEL]
            panel = buffer[:len(rows)]
            np.subtract(rows, shift, out=panel, dtype=self.dtype)
            total += panel.sum(0)
            gram = self.syrk(1.0, panel.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        self.gram = self.about_mean(gram, total / n)
        self.inverse_sst = 1 / np.diag(self.gram)

    def about_mean(self, gram, offset):
        """Returns gram - n offset offset^T, with its upper triangle from its lower, in blocks that stay in the cache.
        """
        n, block = self.stream.tokens, 256
        for first in range(0, self.stream.columns, block):
            last = min(first + block, self.stream.columns)
            gram[first:, first:last] -= n * np.outer(offset[first:], offset[first:last])
            tile = np.tril(gram[first:last, first:last])
            gram[first:last, first:last] = tile + np.tril(tile, -1).T
            gram[first:last, last:] = gram[last:, first:last].T
        return gram

    def all_pairs(self):
        """Computes r2[source, target]."""
        heads, size, columns = self.stream.heads, self.stream.size, self.stream.columns
        self.r2 = np.empty((heads, heads), self.dtype)
        white = np.empty((columns, size), self.dtype, order="F")
        for source in range(heads):
            own = self.stream.columns_of(source)
            factor, _ = self.potrf(self.gram[own, own], lower=1)
            inverse, _ = self.trtri(factor, lower=1)
            white = self.gemm(1.0, self.gram[:, own], inverse, trans_b=1, beta=0.0, c=white, overwrite_c=1)
            np.multiply(white, white, out=white)
            self.r2[source] = (white.sum(1) * self.inverse_sst).reshape(heads, size).mean(1)

    def rank_sources(self, most):
        """Returns [target, most]: the best causal sources, ties to the lower head."""
        heads = np.arange(self.stream.heads)
        layer = heads // self.stream.layer_heads
        allowed = (layer[:, None] <= layer[None, :]) & (heads[:, None] != heads[None, :])
        return np.argsort(-np.where(allowed, self.r2, -np.inf), axis=0, kind="stable")[:most].T

    def moments(self, heads):
        """Returns the Gram of some heads, and the inverse SST of the last of them."""
        index = (np.asarray(heads)[:, None] * self.stream.size + np.arange(self.stream.size)).ravel()
        return self.gram[np.ix_(index, index)], self.inverse_sst[self.stream.columns_of(heads[-1])]

    def targets(self):
        return [t for t in range(self.stream.heads) if self.stream.causal_sources(t) >= REFERENCES]

    def top(self):
        """Computes joint[target, N - 1]: one factor of [sources, target]; its last block row has R² for all N."""
        size, sources = self.stream.size, self.rank_sources(REFERENCES)
        self.joint = np.full((self.stream.heads, REFERENCES), np.nan)
        for target in self.targets():
            gram, inverse_sst = self.moments(np.append(sources[target], target))
            factor, _ = self.potrf(gram.T, lower=1, overwrite_a=1)
            last = np.square(factor[-size:, :-size]).reshape(size, REFERENCES, size).sum(2).cumsum(1)
            self.joint[target] = (last * inverse_sst[:, None]).mean(0)

    def forward(self, target, candidates):
        """Returns the candidates that raise the joint R² most, one by one, and its values."""
        size, have = self.stream.size, len(candidates)
        gram, inverse_sst = self.moments(np.append(candidates, target))
        alive, chosen, r2 = list(range(have)), [], []
        for step in range(REFERENCES):
            tiles = gram.reshape(have + 1, size, have + 1, size)
            own = np.stack([tiles[a, :, a, :] for a in alive])
            cross = np.stack([tiles[a, :, have, :] for a in alive])
            white = np.linalg.inv(np.linalg.cholesky(own)) @ cross
            gain = (np.einsum("aij,aij->aj", white, white) * inverse_sst).mean(1)
            best = alive.pop(int(np.argmax(gain)))
            chosen.append(candidates[best])
            r2.append(gain.max() + (r2[-1] if r2 else 0))
            if step + 1 < REFERENCES:
                taken = slice(best * size, (best + 1) * size)
                factor, _ = self.potrf(gram[taken, taken], lower=1)
                explained = self.trsm(1.0, factor, gram[taken, :], side=0, lower=1)
                gram -= explained.T @ explained
        return chosen, r2

    def compare_with_lstsq(self, sources, target, r2):
        """Ends the run if R² is not that of least squares on the rows."""
        z = self.stream.z.astype(np.float64)
        z -= z.mean(0)
        x = np.concatenate([z[:, self.stream.columns_of(s)] for s in sources], 1)
        y = z[:, self.stream.columns_of(target)]
        error = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
        expected = (1 - np.square(error).sum(0) / np.square(y).sum(0)).mean()
        tolerance = 100 * self.stream.tokens * np.finfo(self.dtype).eps
        if not abs(expected - r2) <= tolerance:
            sys.exit(f"peers.py: R² of head {target} is {r2}, by least squares {expected}")
