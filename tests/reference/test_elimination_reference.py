"""The choice of heads, references and maps in numpy against brute force, least squares and hand-made graphs."""
import itertools
import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elimination
from regression import all_pairs, take
from samples import least_squares_loss, stream_of, structured


class EliminationTest(unittest.TestCase):
    def test_layer_elimination_by_brute_force(self):
        z, stream = structured(np.random.default_rng(5), 200, 1, 4, 3)
        losses = {kept: sum(least_squares_loss(z, stream, t, kept) for t in range(4) if t not in kept)
                  for n in range(1, 4) for kept in itertools.combinations(range(4), n)}

        steps = elimination.eliminate(stream, range(4))

        self.assertEqual(steps[4], (0, [0, 1, 2, 3]))
        for n in (3, 2, 1):
            loss, kept = steps[n]
            inside = {own: value for own, value in losses.items() if len(own) == n and set(own) <= set(steps[n + 1][1])}
            self.assertEqual(tuple(kept), min(inside, key=inside.get))
            np.testing.assert_allclose(loss, inside[tuple(kept)], rtol=1e-8)
        precision = np.linalg.inv(stream.covariance)
        dropped, = set(range(4)) - set(steps[3][1])
        own = stream.columns([dropped])
        residual = np.linalg.inv(precision[np.ix_(own, own)])
        np.testing.assert_allclose(steps[3][0], np.trace(stream.metric[dropped] @ residual), rtol=1e-8)

    def test_allocation_by_brute_force(self):
        rng = np.random.default_rng(6)
        losses = [dict(zip((4, 3, 2, 1), np.cumsum(rng.uniform(0, 1, 4)))) for _ in range(4)]
        for budget in range(4, 17):
            every = [counts for counts in itertools.product(range(1, 5), repeat=4) if sum(counts) == budget]

            counts = elimination.allocate(losses, budget)

            self.assertEqual(tuple(counts), min(every, key=lambda c: sum(own[n] for own, n in zip(losses, c))))

    def test_references_maps_and_their_scores(self):
        rng = np.random.default_rng(7)
        z, stream = structured(rng, 300, 2, 4, 2)
        fit, heldout = z[:200], z[200:]
        stream = elimination.Stream(fit.reshape(200, -1).mean(0), np.cov(fit.reshape(200, -1).T, ddof=0), stream.metric,
                                    stream.layer)
        chosen = elimination.layer_elimination({"k": stream}, 5, 2)["k"]

        groups = elimination.plan(stream, chosen, 2, heldout)

        self.assertEqual([len(g["kept"]) + len(g["targets"]) for g in groups], [4, 4])
        self.assertEqual(len(chosen), 3)
        for layer, group in enumerate(groups):
            kept = [4 * layer + h for h in group["kept"]]
            for i, head in enumerate(group["targets"]):
                target, references = 4 * layer + head, [int(r) for r in group["references"][i] if r >= 0]
                first = min(kept, key=lambda r, t=target: least_squares_loss(fit, stream, t, [r]))
                pairs = [[first, r] for r in kept if r != first] or [[first]]
                self.assertEqual(references, min(pairs, key=lambda p, t=target: least_squares_loss(fit, stream, t, p)))
                np.testing.assert_allclose(group["loss"][i], least_squares_loss(fit, stream, target, references), rtol=1e-8)
                x = np.column_stack([take(fit, references), np.ones(200)])
                w = np.linalg.lstsq(x, fit[:, target], rcond=None)[0]
                np.testing.assert_allclose(group["map"][i, :len(w) - 1], w[:-1], atol=1e-9)
                np.testing.assert_allclose(group["bias"][i], w[-1], atol=1e-8)
                error = heldout[:, target] - take(heldout, references) @ w[:-1] - w[-1]
                r2 = 1 - (error**2).sum(0) / ((heldout[:, target] - heldout[:, target].mean(0)) ** 2).sum(0)
                np.testing.assert_allclose(group["r2_heldout"][i], r2.mean(), rtol=1e-8)

    def test_pairwise_r2(self):
        rng = np.random.default_rng(12)
        z, _ = structured(rng, 100, 2, 2, 2)
        z[:, 1, 0] = 7

        ours = stream_of(rng, z, np.repeat([0, 1], 2)).pairwise_r2()

        np.testing.assert_allclose(ours, all_pairs(z, z[:0])[0], atol=1e-10)

    def test_rank_guard(self):
        c = np.array([[4, 2], [2, 1.01]])  # at unit diagonal, the second pivot is 1 - 1 / 1.01

        for unit, kept in ((0.0050, [0]), (0.0049, [0, 1])):
            self.assertEqual(elimination.independent(c, unit), kept)
        self.assertEqual(elimination.independent(np.diag([0.0, 3]), 1e-16), [1])

    def test_singular_regressors_and_a_ridge(self):
        rng = np.random.default_rng(8)
        z, _ = structured(rng, 200, 1, 3, 3)
        z[:, 1] = z[:, 0] @ rng.standard_normal((3, 3))
        stream = stream_of(rng, z, np.zeros(3, int))

        w, ridged = stream.map(2, [0, 1]), stream.map(2, [0, 1], ridge=0.1)

        self.assertEqual(np.count_nonzero(w.any(1)), 3)
        np.testing.assert_allclose(stream.loss(2, [0, 1]), least_squares_loss(z, stream, 2, [0]), rtol=1e-8)
        x, y = take(z, [0, 1]) - take(z, [0, 1]).mean(0), z[:, 2] - z[:, 2].mean(0)
        root = np.sqrt(0.1 * (x**2).sum() / 6)
        padded = np.linalg.lstsq(np.vstack([x, root * np.eye(6)]), np.vstack([y, np.zeros((6, 3))]), rcond=None)[0]
        np.testing.assert_allclose(ridged, padded, atol=1e-9)


class CausalTest(unittest.TestCase):
    def test_lazy_is_eager_where_costs_only_grow(self):
        for seed in (2, 7, 12, 33, 36):
            rng = np.random.default_rng(seed)
            data = {s: structured(rng, 200, 2, 3, 2) for s in "kv"}
            streams = {s: stream for s, (_, stream) in data.items()}

            chosen = elimination.CausalElimination(streams, 2).run(5)

            self.assertEqual(chosen, self.eager(data, 5))

    def eager(self, data, budget):
        """Computes all costs again before each drop, from the tokens, and the references of every target from all kept
        heads."""
        def best(s, target, kept):
            z, stream = data[s]
            found = []
            pool = [r for r in kept if r != target and stream.layer[r] <= stream.layer[target]]
            while len(found) < min(2, len(pool)):
                rest = [r for r in pool if r not in found]
                found.append(min(rest, key=lambda r: least_squares_loss(z, stream, target, found + [r])))
            return least_squares_loss(z, stream, target, found) if found else np.inf, found

        def total(dropped):
            return sum(best(s, t, [h for h in range(6) if (s, h) not in dropped])[0] for s, t in dropped)

        dropped, costs = [], []
        while len(dropped) < 12 - budget:
            rest = [(s, h) for s in "kv" for h in range(6) if (s, h) not in dropped]
            costs.append({head: total(dropped + [head]) - total(dropped) if dropped else total([head]) for head in rest})
            dropped.append(min(rest, key=costs[-1].get))
        self.assertTrue(all(after[head] >= before[head] - 1e-12 for before, after in itertools.pairwise(costs) for head in after))
        kept = {s: [h for h in range(6) if (s, h) not in dropped] for s in "kv"}
        return {s: {t: best(s, t, kept[s])[1] for x, t in dropped if x == s} for s in "kv"}

    def test_one_head_may_serve_all_and_the_first_layer_keeps_one(self):
        rng = np.random.default_rng(10)
        z = np.einsum("ni,hij->nhj", rng.standard_normal((100, 2)), rng.standard_normal((6, 2, 2)))
        streams = {"v": stream_of(rng, z, np.repeat([0, 1], 3))}

        chosen = elimination.CausalElimination(streams, 5).run(1)["v"]

        kept, = set(range(6)) - set(chosen)
        self.assertLess(kept, 3)
        self.assertEqual(set(map(tuple, chosen.values())), {(kept,)})
        with self.assertRaises(ValueError):
            elimination.CausalElimination(streams, 5).run(0)

    def test_pool_is_fixed_at_the_start(self):
        rng = np.random.default_rng(11)
        z, stream = structured(rng, 200, 1, 5, 2)

        greedy = elimination.CausalElimination({"k": stream}, 5, pool=2)

        for t in range(5):
            order = sorted((r for r in range(5) if r != t), key=lambda r, t=t: least_squares_loss(z, stream, t, [r]))
            self.assertEqual(greedy.pools["k"][t], sorted(order[:2]))
        greedy.drop("k", 0)
        self.assertTrue(set(greedy.targets["k"][0][0]) <= set(greedy.pools["k"][0]))
        for t in range(1, 5):
            self.assertNotIn(0, greedy.choose("k", t)[0])


class GraphTest(unittest.TestCase):
    """Two layers of three heads, made by hand."""
    layer = np.repeat([0, 1], 3)
    edges = {0: {1: 0.9}, 1: {0: 0.9}, 2: {5: 0.99}, 3: {0: 0.6, 1: 0.9, 4: 0.7}, 4: {1: 0.55, 2: 0.8, 3: 0.9}, 5: {4: 0.9}}

    def r2(self, edges):
        """Returns [target, source] for {target: {source: R2}}; 2 <- 5 is not causal and must not count."""
        matrix = np.zeros((6, 6))
        for target, sources in edges.items():
            matrix[target, list(sources)] = list(sources.values())
        np.fill_diagonal(matrix, np.nan)
        return matrix

    def test_text_takes_heads_in_order_and_their_strongest_references(self):
        chosen = elimination.select_graph(self.r2(self.edges), self.layer, 0.5, "text", 1, 2)

        # 0; not 1, the only one to feed 0; not 2, which nothing feeds; 3, fed by 1 and 4; 4, fed by 1 and 2; not 5, fed by 4.
        self.assertEqual(chosen, {0: [1], 3: [1], 4: [2, 1]})

    def test_code_takes_the_last_layer_first_and_the_references_that_feed_least(self):
        chosen, one = (elimination.select_graph(self.r2(self.edges), self.layer, 0.5, "code", 1, most) for most in (6, 1))

        # 3; 5, which feeds no target, before 4, which feeds 3; not 4, the only one to feed 5; 0; not 1, as above.
        # 1 feeds 0, 3 and 4; 4 feeds 3 and 5.
        self.assertEqual(chosen, {0: [1], 3: [4, 1], 5: [4]})
        self.assertEqual(one, {0: [1], 3: [4], 5: [4]})

    def test_which_layer_is_first(self):
        edges = {0: {1: 0.9}, 3: {0: 0.9}}

        chosen = [elimination.select_graph(self.r2(edges), self.layer, 1 / 3, rule, 1, 6) for rule in ("text", "code")]

        self.assertEqual(chosen, [{0: [1]}, {3: [0]}])

    def test_every_target_keeps_the_least_number_of_references(self):
        complete = {t: {s: 0.9 for s in range(6) if s != t} for t in range(6)}
        for rule in ("text", "code"):
            two, three = (elimination.select_graph(self.r2(complete), self.layer, 0.5, rule, n, n) for n in (2, 3))

            self.assertEqual(two, {0: [1, 2], 3: [1, 2], 4: [1, 2], 5: [1, 2]})
            self.assertEqual(three, {3: [0, 1, 2], 4: [0, 1, 2], 5: [0, 1, 2]})

    def test_threshold_is_bisected(self):
        weak = {t: {s: 0.6 for s in range(6) if s != t} for t in range(6)}
        weak[0][1] = 0.9
        one_layer = np.zeros(6, int)

        # tau 0.5: five targets, and one is asked for; 0.75: one.
        self.assertEqual(elimination.select_graph(self.r2(weak), one_layer, 1 / 6, "text", 1, 5), {0: [1]})
        self.assertEqual(elimination.select_graph(self.r2({0: {1: 0.5}}), one_layer, 1 / 6, "text", 1, 5), {0: [1]})
        # Five or none, and three are asked for: the 14th interval is the first below 1e-4, and its tau is above all edges.
        # The 13th and the 30th are not. With 0.5, the first tau, five are near enough to four.
        for value, share, expected in ((0.25 + 2.0**-13 + 2.0**-15 + 2.0**-30, 0.5, 0), (0.5, 4 / 6, 5)):
            even = {t: {s: value for s in range(6) if s != t} for t in range(6)}
            self.assertEqual(len(elimination.select_graph(self.r2(even), one_layer, share, "code", 1, 6)), expected)


if __name__ == "__main__":
    unittest.main()
