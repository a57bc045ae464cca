"""Statistics and nulls of headspan against loops over their definitions, scipy, and numbers computed by hand."""
import itertools
import unittest

import numpy as np
from samples import layers, random_stream
from scipy import integrate, stats

from headspan import nulls
from headspan import statistics as st
from headspan_report import measure


def causal_sources(layer, target):
    return [s for s in range(len(layer)) if s != target and layer[s] <= layer[target]]


def caption_by_loop(r2, layer, links):
    intra = total = 0
    for t in range(len(layer)):
        sources = sorted(causal_sources(layer, t), key=lambda s: (-r2[t, s], s))
        for s in sources[:links]:
            total += 1
            intra += layer[s] == layer[t]
    return intra / total


def code_by_loop(r2, layer, links):
    """The rule of LAS_calc.py: every edge is a candidate of both its ends; the best of each end, undirected, once."""
    edges = [(r2[t, s], (s, t)) for t in range(len(layer)) for s in causal_sources(layer, t)]
    named = set()
    for head in range(len(layer)):
        mine = sorted((edge for edge in edges if head in edge[1]), reverse=True)
        named |= {tuple(sorted(pair)) for _, pair in mine[:links]}
    return sum(layer[a] == layer[b] for a, b in named) / len(named)


class Statistics(unittest.TestCase):
    def setUp(self):
        self.layer = layers(3, 2, 4, 3)
        self.r2 = np.random.default_rng(3).random((12, 12))
        np.fill_diagonal(self.r2, np.nan)

    def test_best_source_is_causal_and_ties_go_to_the_lower_head(self):
        layer = layers(2, 2)
        r2 = np.array([[np.nan, .3, .9, .9], [.2, np.nan, .9, .9], [.5, .5, np.nan, .5], [.1, .6, .4, np.nan]])

        best = st.best_sources(r2, st.causal_pairs(layer))

        self.assertEqual(best.tolist(), [1, 0, 0, 1])
        np.testing.assert_array_equal(st.from_sources(r2, best), [.3, .2, .5, .6])

    def test_a_target_without_sources_has_none(self):
        best = st.best_sources(np.array([[np.nan, .5], [np.nan, np.nan]]), st.causal_pairs(layers(1, 1)))

        self.assertEqual(best.tolist(), [-1, -1])
        self.assertTrue(np.isnan(st.from_sources(np.eye(2), best)).all())

    def test_scopes_by_loop(self):
        wanted = {"best": [], "pairs": [], "intra": [], "inter": []}
        for t in range(12):
            sources = causal_sources(self.layer, t)
            wanted["best"].append(max(self.r2[t, s] for s in sources))
            for s in sources:
                wanted["pairs"].append(self.r2[t, s])
                wanted["intra" if self.layer[s] == self.layer[t] else "inter"].append(self.r2[t, s])

        found = st.scopes(self.r2, self.layer, st.best_sources(self.r2, st.causal_pairs(self.layer)))

        for scope, values in zip(st.SCOPES, found):
            np.testing.assert_array_equal(np.sort(values), np.sort(wanted[scope]), scope)

    def test_summary_by_hand(self):
        found = dict(zip(st.STATISTICS, st.summary(np.array([.5, .1, np.nan, .2, .4, .3]))))

        expected = {"mean": .3, "median": .3, "q05": .12, "q25": .2, "q75": .4, "q95": .48}
        for name, value in expected.items():
            self.assertAlmostEqual(found[name], value, places=14, msg=name)
        self.assertTrue(np.isnan(st.summary(np.array([np.nan]))).all())

    def test_adjusted_by_hand(self):
        self.assertAlmostEqual(st.adjusted(0.5, 101, 50), 0.0)  # the floor 50/100 is removed
        self.assertAlmostEqual(st.adjusted(1.0, 101, 50), 1.0)
        self.assertTrue(np.isnan(st.adjusted(0.5, 51, 50)))

    def test_dominance_by_loop(self):
        for links in (1, 2, 3, 5, 40):
            with self.subTest(links=links):
                self.assertEqual(st.caption_dominance(self.r2, self.layer, links),
                                 caption_by_loop(self.r2, self.layer, links))
                self.assertEqual(st.code_dominance(self.r2, self.layer, (links,))[0],
                                 code_by_loop(self.r2, self.layer, links))

    def test_dominance_with_ties_by_loop(self):
        coarse = np.round(self.r2 * 3) / 3  # four values only
        for links in (1, 3, 5):
            with self.subTest(links=links):
                self.assertEqual(st.caption_dominance(coarse, self.layer, links),
                                 caption_by_loop(coarse, self.layer, links))
                self.assertEqual(st.code_dominance(coarse, self.layer, (links,))[0],
                                 code_by_loop(coarse, self.layer, links))

    def test_dominance_by_hand(self):
        # Two layers of two. Head 0 and 1 like each other most, head 2 is best predicted by 0, head 3 by 1.
        r2 = np.full((4, 4), .1)
        r2[0, 1], r2[1, 0], r2[2, 0], r2[3, 1] = .5, .5, .8, .7

        self.assertEqual(st.caption_dominance(r2, layers(2, 2), 1), .5)  # of heads 0 and 1 yes, 2 and 3 no
        # Each head's best link, either way: 0-2, 1-3, 0-2, 1-3: two pairs, none within a layer.
        self.assertEqual(st.code_dominance(r2, layers(2, 2), (1,))[0], 0)

    def test_near_far_by_hand(self):
        layer = layers(1, 1, 1, 1)
        r2 = np.array([[9, 9, 9, 9], [.8, 9, 9, 9], [.4, .6, 9, 9], [.1, .5, .7, 9]])

        near, far, share = st.near_far(r2, layer, 2)  # near: .8 .6 .7 (1 apart) .4 .5 (2 apart); far: .1

        self.assertAlmostEqual(near, .6)
        self.assertAlmostEqual(far, .1)
        self.assertAlmostEqual(share, .6 / .7)
        self.assertTrue(np.isnan(st.near_far(r2, layer, 4)[1:]).all())  # nothing is five layers apart

    def test_pairs_without_r2_are_left_out(self):
        self.r2[5, :] = np.nan
        self.r2[9, 2] = np.nan
        kept = self.r2[st.causal_pairs(self.layer)]

        self.assertEqual(st.summary(kept)[0], np.mean(kept[~np.isnan(kept)]))
        self.assertEqual(st.share_above(kept, .5), np.mean(kept[~np.isnan(kept)] > .5))
        self.assertEqual(st.best_sources(self.r2, st.causal_pairs(self.layer))[5], -1)

    def test_between_heads_leaves_out_the_diagonal(self):
        values = np.array([[[1, .2], [.4, 1]], [[1, np.nan], [np.nan, np.nan]]])

        self.assertAlmostEqual(measure.mean_between_heads(values), .3)


class Nulls(unittest.TestCase):
    def test_noise_floor_and_geometric(self):
        np.testing.assert_allclose(nulls.noise_floor(128.0 * np.arange(1, 6), 1000),
                                   [.12813, .25626, .38438, .51251, .64064], atol=5e-6)  # of the paper's Fig. 2
        self.assertAlmostEqual(float(nulls.geometric(128.0, 4096)), .03125)
        self.assertTrue(np.isnan(nulls.noise_floor(100.0, 101)))
        self.assertTrue(np.isnan(nulls.geometric(128.0, 0)))

    def test_pair_null_against_scipy(self):
        d, m, floor = 8, 128, .05
        nu = d * (m + 2) / 2 - 1
        beta = stats.beta(d / m * nu, (1 - d / m) * nu)
        sources = np.array([0, 3, 3, 40])

        def best_below(x):
            return (2 * beta.cdf(x)**3 + beta.cdf(x)**40) / 3


        null = nulls.PairNull(d, m, floor)

        mean = integrate.quad(lambda x: 1 - best_below(x), 1e-9, 1, points=[.05, .1], epsabs=1e-12)[0]
        self.assertAlmostEqual(null.mean_best(sources), floor + (1 - floor) * mean, places=7)
        self.assertAlmostEqual(null.share_above(.12), beta.sf((.12 - floor) / (1 - floor)), places=7)
        median = (null.median_best(sources) - floor) / (1 - floor)
        self.assertAlmostEqual(best_below(median), .5, places=6)

    def test_pair_null_against_random_projections(self):
        """Exact for each pair: R² of one random projection of white noise from another."""
        d, m, random = 4, 64, np.random.default_rng(0)
        bases = [np.linalg.qr(random.normal(size=(m, d)))[0] for _ in range(200)]
        target = [w / np.linalg.norm(w, axis=0) for w in (random.normal(size=(m, d)) for _ in range(40))]
        r2 = np.array([[np.mean(np.sum((q.T @ w)**2, axis=0)) for q in bases] for w in target])

        null = nulls.PairNull(d, m, 0.0)

        self.assertAlmostEqual(null.mean(), r2.mean(), delta=4 * r2.std() / np.sqrt(200 * 4))
        self.assertAlmostEqual(null.mean_best(np.full(40, 200)), r2.max(axis=1).mean(),
                               delta=4 * r2.max(axis=1).std() / np.sqrt(40))

    def test_overlap_of_random_matrices(self):
        """Against the singular values of random matrices: square, tall and wide."""
        for heads, d, m in ((16, 8, 128), (4, 8, 128), (24, 8, 128)):
            for tolerance in ("1e-1", "3e-2", "1e-4"):
                drawn = []
                for seed in range(8):
                    blocks = np.random.default_rng(seed).normal(size=(heads, m, d))
                    joint = np.linalg.svd(np.concatenate(list(blocks), axis=1), compute_uv=False)
                    limit = float(tolerance) * joint[0]
                    drawn.append((np.linalg.svd(blocks, compute_uv=False) > limit).sum() - (joint > limit).sum())
                with self.subTest(heads=heads, tolerance=tolerance):
                    found = nulls.overlap_dimension(heads, d, m, tolerance)
                    self.assertAlmostEqual(found, np.mean(drawn), delta=0.8)
            self.assertAlmostEqual(nulls.overlap_dimension(heads, d, m, "paper"), max(0, heads * d - m), places=2)
        self.assertTrue(np.isnan(nulls.overlap_dimension(4, 8, 0, "paper")))

    def test_overlap_of_random_matrices_by_hand(self):
        """Square, m = 4096: the singular values over sqrt(m) have density sqrt(4 - s^2) / pi, 2 / pi near 0, so that
        4096 * 4 t / pi of them are below t of the largest, 2 sqrt(m). The paper's t is 4096 eps32."""
        tolerance = 4096 * 2.0**-23
        self.assertAlmostEqual(nulls.overlap_dimension(32, 128, 4096, "paper"), 4096 * 4 * tolerance / np.pi,
                               delta=0.01)

    def test_caption_null_of_the_paper(self):
        mean, _ = nulls.caption_dominance(layers(*[32] * 32), 1)

        self.assertAlmostEqual(mean, .124, places=3)  # what the paper's code would give

    def test_code_null_of_the_paper(self):
        self.addCleanup(setattr, nulls, "WEIGHTS_DRAWN", nulls.WEIGHTS_DRAWN)
        nulls.WEIGHTS_DRAWN = 3e7  # 14 draws of 1024 heads

        mean, spread = nulls.code_dominance_null(layers(*[32] * 32), (1,))

        self.assertAlmostEqual(mean[0], .059, delta=4 * spread[0] / 14**.5)  # what the paper's code would give

    def test_nulls_against_all_rankings(self):
        """Every ranking of the 8 causal pairs of two layers of two heads, each as likely as another."""
        layer = layers(2, 2)
        places = np.argwhere(st.causal_pairs(layer))
        caption, code = [], []
        for ranking in itertools.permutations(range(len(places))):
            r2 = np.full((4, 4), np.nan)
            r2[tuple(places.T)] = ranking
            caption.append([st.caption_dominance(r2, layer, links) for links in (1, 2)])
            code.append(st.code_dominance(r2, layer, (1, 2)))

        for i, links in enumerate((1, 2)):
            np.testing.assert_allclose(nulls.caption_dominance(layer, links),
                                       (np.mean(caption, axis=0)[i], np.std(caption, axis=0)[i]), atol=1e-12)
        found = nulls.code_dominance_null(layer, (1, 2))[0]
        np.testing.assert_allclose(found, np.mean(code, axis=0), atol=4 * np.max(np.std(code, axis=0)) / 200**.5)

    def test_code_null_is_seeded(self):
        layer = layers(4, 4)
        np.testing.assert_array_equal(nulls.code_dominance_null(layer, (1, 5)),
                                      nulls.code_dominance_null(layer, (1, 5)))


class Measure(unittest.TestCase):
    def test_heldout_is_that_of_the_source_chosen_in_sample(self):
        layer = layers(3)
        sample = random_stream(layer, 0)
        from headspan_report.result import Stream
        tables = dict(sample["tables"], r2=np.array([[np.nan, .5, .4], [.3, np.nan, .2], [.1, .6, np.nan]]),
                      r2_heldout=np.array([[np.nan, .1, .9], [.2, np.nan, .9], [.9, .3, np.nan]]))
        stream = Stream("k", layer, np.arange(3), 4, 32, 1000, 300, 2, "roped", 0, tables)

        found = measure.measure(stream, None)

        best = dict(zip(st.PARTS, found["r2"][0]))
        self.assertAlmostEqual(best["in_sample"][0], (.5 + .3 + .6) / 3)
        self.assertAlmostEqual(best["heldout"][0], (.1 + .2 + .3) / 3)
        self.assertAlmostEqual(best["adjusted"][0], 1 - (1 - (.5 + .3 + .6) / 3) * 999 / 995)


if __name__ == "__main__":
    unittest.main()
