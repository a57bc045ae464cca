"""Which heads are kept, which are targets, their references and maps: headspan's elimination and the paper's Algorithm
1.

Heads of one stream are counted layer by layer. E_t(R) is the residual covariance of head t given the heads R, and
loss_t(R) = tr(M_t E_t(R)). Selections are made without a ridge; only the final maps and their losses have it. Singular
regressors are dropped by the rank guard (independent). An independent reference for the tests, slow and obvious.

headspan, scope layer: for each stream and layer, start from all heads and drop the head whose absence makes the sum of
the targets' losses from all kept heads smallest (ties: the lower head), down to one. `allocate` divides the budget over
streams and layers. References: forward selection by smallest loss among the kept heads of the layer (ties: the lower
head).

headspan, scope causal, lazy greedy over the heads of all layers and streams:

  * pool of a target: the 20 heads of its stream in its own or an earlier layer with the largest
    tr(M_t C_tr C_rr^-1 C_rt), ties to the lower layer, then lower head; chosen once at the start among all heads,
    whether they are dropped later or not;
  * references of a target: forward selection by smallest loss among the pool's kept heads, ties as above; at least one;
  * cost of dropping t: its loss, and for every target that has t as a reference the increase of its loss when its
    references are selected again without t; infinite if a target would have none;
  * queue by (cost, lower layer, k before v, lower head), filled with every head's cost when all are kept; the first is
    taken out and its cost computed again; it is dropped if it still precedes the queue's first, otherwise put back with
    the new cost;
  * dropping t selects the references of t, and again those of the targets that had t; others keep theirs;
  * until the budget, in heads of all streams, is met.

paper-text, paper-code: see select_graph.
"""
import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from regression import centred, is_constant, take, uniform_r2

POOL = 20


def independent(c, unit):
    """Returns the indices of the columns that a pivoted Cholesky factorisation at unit diagonal keeps: pivots above
    columns * unit."""
    scale = np.sqrt(np.diag(c))
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    rest = c * inverse[:, None] * inverse
    kept = []
    while len(kept) < len(c):
        best = int(np.argmax(np.round(np.diag(rest), 12)))
        if rest[best, best] <= len(c) * unit:
            break
        kept.append(best)
        rest = rest - np.outer(rest[:, best], rest[best]) / rest[best, best]
        rest[best], rest[:, best] = 0, 0
    return sorted(kept)


@dataclass
class Stream:
    """What the choice of heads needs to know about one stream; unit: of the rank guard."""
    mean: np.ndarray  # [heads * d]
    covariance: np.ndarray  # [heads * d, heads * d]
    metric: np.ndarray  # [heads, d, d]
    layer: np.ndarray  # [heads]
    unit: float = float(np.finfo(float).eps)

    def columns(self, heads):
        d = self.metric.shape[1]
        return np.concatenate([np.arange(h * d, (h + 1) * d) for h in heads])

    def map(self, target, references, ridge=0.0):
        """Returns W: [references * d, d]."""
        s, t = self.columns(references), self.columns([target])
        css, cst = self.covariance[np.ix_(s, s)], self.covariance[np.ix_(s, t)]
        if ridge:
            return np.linalg.solve(css + ridge * np.diag(css).mean() * np.eye(len(s)), cst)
        kept = independent(css, self.unit)
        w = np.zeros_like(cst)
        w[kept] = np.linalg.solve(css[np.ix_(kept, kept)], cst[kept])
        return w

    def residual(self, target, references, ridge=0.0):
        """Returns the covariance of the error of the target's map: [d, d]."""
        s, t = self.columns(references), self.columns([target])
        w = self.map(target, references, ridge)
        cross = w.T @ self.covariance[np.ix_(s, t)]
        return self.covariance[np.ix_(t, t)] - cross - cross.T + w.T @ self.covariance[np.ix_(s, s)] @ w

    def loss(self, target, references, ridge=0.0):
        return np.trace(self.metric[target] @ self.residual(target, references, ridge))

    def pairwise_r2(self):
        """Returns [target, source], the uniform average over coordinates that vary; NaN on the diagonal."""
        heads = len(self.layer)
        r2 = np.full((heads, heads), np.nan)
        for t, s in itertools.permutations(range(heads), 2):
            variance = np.diag(self.covariance)[self.columns([t])]
            if variance.any():
                r2[t, s] = 1 - np.mean(np.diag(self.residual(t, [s]))[variance > 0] / variance[variance > 0])
        return r2


def streams_of(moments, names):
    """Returns {s: Stream} of moments.Moments."""
    layers, heads, d, _ = moments.metric["k"].shape
    return {s: Stream(moments.mean[s], moments.covariance[s], moments.metric[s].reshape(-1, d, d),
                      np.repeat(np.arange(layers), heads)) for s in names}


def select_references(stream, target, candidates, most):
    """Forward selection; the order of the candidates breaks ties."""
    chosen = []
    while len(chosen) < min(most, len(candidates)):
        rest = [r for r in candidates if r not in chosen]
        chosen.append(rest[int(np.argmin([stream.loss(target, chosen + [r]) for r in rest]))])
    return chosen


def eliminate(stream, heads):
    """Returns {n: (J, the n kept heads)} for the heads of one layer, by backward elimination."""
    def total(kept):
        return sum(stream.loss(t, kept) for t in heads if t not in kept)

    kept = list(heads)
    steps = {len(kept): (0.0, kept)}
    while len(kept) > 1:
        smaller = [[h for h in kept if h != dropped] for dropped in kept]
        losses = [total(rest) for rest in smaller]
        kept = smaller[int(np.argmin(losses))]
        steps[len(kept)] = (min(losses), kept)
    return steps


def allocate(losses, budget):
    """Returns the n of each block with sum n = budget and the smallest sum of J; losses: [{n: J}]. Ties: fewer in the
    earlier block."""
    best = {0: (0.0, [])}
    for own in losses:
        longer = {}
        for total, (value, counts) in best.items():
            for n, loss in own.items():
                candidate = (value + loss, counts + [n])
                longer[total + n] = min(longer.get(total + n, candidate), candidate)
        best = longer
    return best[budget][1]


def heads_stored(stored, heads):
    """Returns the largest number of heads within a share; rounding must not exclude a share that is meant exactly."""
    return int(np.floor(stored * heads * (1 + 1e-12)))


def layer_elimination(streams, budget, most):
    """Returns {s: {target: references}} for the streams {s: Stream}, scope layer."""
    blocks = [(s, np.flatnonzero(stream.layer == layer)) for s, stream in streams.items()
              for layer in np.unique(stream.layer)]
    steps = [eliminate(streams[s], heads) for s, heads in blocks]
    counts = allocate([{n: j for n, (j, _) in own.items()} for own in steps], budget)
    chosen = {s: {} for s in streams}
    for (s, heads), own, n in zip(blocks, steps, counts):
        kept = own[n][1]
        chosen[s].update({t: select_references(streams[s], t, kept, most) for t in heads if t not in kept})
    return chosen


class CausalElimination:
    """Scope causal, by the rules above."""

    def __init__(self, streams, most, pool=POOL):
        self.streams, self.most = streams, most
        self.kept = {s: set(range(len(stream.layer))) for s, stream in streams.items()}
        self.targets = {s: {} for s in streams}  # {s: {target: (references, loss)}}
        self.pools = {s: [self.pool(stream, t, pool) for t in range(len(stream.layer))] for s, stream in streams.items()}

    @staticmethod
    def pool(stream, target, size):
        causal = [r for r in range(len(stream.layer)) if r != target and stream.layer[r] <= stream.layer[target]]
        return sorted(sorted(causal, key=lambda r: stream.loss(target, [r]))[:size])

    def choose(self, s, target, without=None):
        candidates = [r for r in self.pools[s][target] if r in self.kept[s] and r != without]
        references = select_references(self.streams[s], target, candidates, self.most)
        return references, self.streams[s].loss(target, references) if references else np.inf

    def users(self, s, head):
        return [u for u, (references, _) in self.targets[s].items() if head in references]

    def cost(self, s, head):
        increases = [self.choose(s, u, without=head)[1] - self.targets[s][u][1] for u in self.users(s, head)]
        return self.choose(s, head)[1] + sum(increases)

    def drop(self, s, head):
        self.kept[s].remove(head)
        for t in [head, *self.users(s, head)]:
            self.targets[s][t] = self.choose(s, t)

    def run(self, budget):
        """Returns {s: {target: references}}."""
        def entry(s, head):
            return self.cost(s, head), self.streams[s].layer[head], s, head

        queue = [entry(s, head) for s in self.streams for head in self.kept[s]]
        heapq.heapify(queue)
        while sum(map(len, self.kept.values())) > budget:
            _, _, s, head = heapq.heappop(queue)
            again = entry(s, head)
            if queue and queue[0] < again:
                heapq.heappush(queue, again)
            elif again[0] == np.inf:
                raise ValueError("no head is left that others can predict")
            else:
                self.drop(s, head)
        return {s: {t: found[0] for t, found in targets.items()} for s, targets in self.targets.items()}


def select_graph(r2, layer, share, rule, minimum, most):
    """Returns {target: references} by Algorithm 1 from the pairwise R2 [target, source] of one stream. share: of
    targets.

    An edge has R2 >= tau and a source in the same or an earlier layer that is not the target itself. A head can be
    added to the targets T if every head of T is then fed by at least `minimum` heads that are not in T. The first one
    by rule "text" is that in the lowest layer, then the lowest head; by rule "code" that in the highest layer, then the
    one with the fewest successors in T, then the lowest head. Bisection of tau in [0, 1] until | |T| - share |V| | <=
    1, the interval is below 1e-4 or 30 steps are done; with too few targets the lower half, otherwise the upper half;
    the state tested last is used. References: the heads outside T with an edge to t, the first `most` of them by
    largest R2 (rule "text") or by smallest out-degree in the pruned graph (rule "code"); ties to the lower layer, then
    lower head.
    """
    heads, low, high = len(r2), 0.0, 1.0
    for _ in range(30):
        tau = (low + high) / 2
        edge = np.nan_to_num(r2, nan=-1) >= tau
        edge &= (layer[None, :] <= layer[:, None]) & ~np.eye(heads, dtype=bool)
        chosen = select_targets(edge, layer, rule, minimum)
        low, high = (low, tau) if len(chosen) < share * heads else (tau, high)
        if abs(len(chosen) - share * heads) <= 1 or high - low < 1e-4:
            break
    references = {}
    for t in sorted(chosen):
        sources = [s for s in np.flatnonzero(edge[t]) if s not in chosen]
        strength = (lambda s, t=t: -r2[t, s]) if rule == "text" else (lambda s: edge[:, s].sum())
        references[t] = sorted(sources, key=strength)[:most]
    return references


def select_targets(edge, layer, rule, minimum):
    chosen = set()

    def valid(head):
        outside = [h for h in range(len(edge)) if h not in chosen and h != head]
        return all(edge[t, outside].sum() >= minimum for t in (*chosen, head))

    def order(head):
        return head if rule == "text" else (-layer[head], edge[list(chosen), head].sum(), head)

    while True:
        candidates = [h for h in range(len(edge)) if h not in chosen and valid(h)]
        if not candidates:
            return chosen
        chosen.add(min(candidates, key=order))


def heldout_r2(zh, target, references, w, bias):
    if len(zh) == 0:
        return np.nan
    residual = zh[:, target] - take(zh, references) @ w - bias
    sst = np.where(is_constant(zh[:, target]), 0, (centred(zh[:, target]) ** 2).sum(0))
    return uniform_r2((residual**2).sum(0), sst)


def plan(stream, chosen, most, zh, ridge=0.0):
    """Returns [a plan file's group for each layer] for {target: references}; zh: [held-out tokens, heads, d]; most: R.
    """
    d, groups = stream.metric.shape[1], []
    for layer in np.unique(stream.layer):
        heads = np.flatnonzero(stream.layer == layer)
        targets = [t for t in heads if t in chosen]
        group = {"kept": [i for i, h in enumerate(heads) if h not in chosen],
                 "targets": [i for i, h in enumerate(heads) if h in chosen],
                 "references": np.full((len(targets), most), -1), "map": np.zeros((len(targets), most * d, d)),
                 "bias": np.zeros((len(targets), d)), "r2_heldout": [], "loss": []}
        for i, t in enumerate(targets):
            w = stream.map(t, chosen[t], ridge)
            group["references"][i, :len(chosen[t])], group["map"][i, :len(w)] = chosen[t], w
            group["bias"][i] = stream.mean[stream.columns([t])] - stream.mean[stream.columns(chosen[t])] @ w
            group["r2_heldout"].append(heldout_r2(zh, t, chosen[t], w, group["bias"][i]))
            group["loss"].append(stream.loss(t, chosen[t], ridge))
        group["expected_loss"] = sum(group["loss"])
        groups.append(group)
    return groups
