"""The sentences above the figures: their numbers against numpy on made-up results, and what they say about a series
that rises, falls or stays, about one checkpoint, and without steps or nulls."""
import tempfile
import unittest
from pathlib import Path

import numpy as np
from samples import layers, make_overlap, make_stream, random_stream, write_result


from headspan_report.aggregate import aggregate
from headspan_report.figures import DRAWINGS, findings
from headspan_report.figures.findings import trend

LAYER = layers(3, 3)
CAUSAL = (LAYER[None, :] <= LAYER[:, None]) & ~np.eye(6, dtype=bool)


def level_stream(r2, **more):
    """Returns a stream in which every pair has this R²."""
    return make_stream(LAYER, np.full((6, 6), float(r2)), **more)


def best(stream):
    return np.where(CAUSAL, stream["tables"]["r2"], -1).max(axis=1)


class Made(unittest.TestCase):
    def table(self, *results):
        """results: (step or name, stream -> sample, attributes)."""
        with tempfile.TemporaryDirectory(prefix="headspan_findings_") as folder:
            for at, streams, *more in results:
                name, step = (f"step{at}", at) if isinstance(at, int) else (at, -1)
                write_result(Path(folder), name, streams, step=step, **(more[0] if more else {}))
            return aggregate([folder]).table

    def over_steps(self, k, v=None, **more):
        """Returns the table for these R² of keys and values at steps 0, 10, 20, ..."""
        streams = {"k": k} | ({"v": v} if v else {})
        return self.table(*((10 * i, {name: level_stream(r2[i], **more) for name, r2 in streams.items()})
                            for i in range(len(k))))


class Trends(unittest.TestCase):
    def test_where_the_last_leg_begins(self):
        for values, told in (((.1, .6, .3), ("falls", 1, .6, .3)), ((.1, .2, .6), ("rises", 0, .1, .6)),
                             ((.6, .1, .3), ("rises", 1, .1, .3)), ((.9, .5, .1), ("falls", 0, .9, .1)),
                             ((.1, .6, .58), ("rises", 0, .1, .58)),  # a wiggle at the top
                             ((.5, .505, .51), ("stays", 0, .5, .51)), ((.4,), ("is", 0, .4, .4)),
                             ((np.nan, .2, np.nan, .7, np.nan), ("rises", 1, .2, .7)),
                             ((.3, .3, .6, .6, .1), ("falls", 2, .6, .1))):
            with self.subTest(values=values):
                self.assertEqual(trend(np.array(values)), told)
        self.assertIsNone(trend(np.array([np.nan, np.nan])))


class Sentences(Made):
    def test_falls_rises_and_stays_with_the_null(self):
        table = self.over_steps((.1, .61, .32), (.5, .5, .5))
        null = float(table.null_best.sel(stream="k", part="in_sample"))
        self.assertEqual(findings.emergence(table), "Keys: best-source R² falls from 0.61 at step 10 to 0.32 at step "
                         f"20; values: stays at 0.50; random projections give {null:.2f}")
        self.assertEqual(findings.emergence(self.over_steps((.1, .2, .7), (.2, .3, .9))),
                         "Keys: best-source R² rises from 0.10 at step 0 to 0.70 at step 20; values: from 0.20 at step "
                         f"0 to 0.90; random projections give {null:.2f}")

    def test_one_checkpoint_without_a_step(self):
        table = self.table(("final", {"k": level_stream(.4), "v": level_stream(.5)}))
        self.assertRegex(findings.emergence(table),
                         r"^Keys: best-source R² is 0\.40 at final; values: 0\.50; random projections give 0\.\d\d$")

    def test_an_unknown_null_is_said(self):
        table = self.over_steps((.1, .2), hidden_size=0)
        for name in ("emergence", "references", "mean_by_references"):
            self.assertRegex(getattr(findings, name)(table), "; the null is unknown$")
        self.assertIsNone(findings.distributions(table))
        self.assertIsNone(findings.heads(table))

    def test_nulls_of_streams_that_differ(self):
        self.assertEqual(findings.null_words([.1, .1, .25]), "random projections give 0.10 to 0.25")
        self.assertEqual(findings.null_words([.104, np.nan, .101]), "random projections give 0.10")

    def test_numbers_are_those_of_numpy(self):
        low = np.random.default_rng(4).uniform(0, .17, (6, 6))
        k, v = random_stream(LAYER, 1, references=3), make_stream(LAYER, low, references=3)
        before = level_stream(.05, references=3)
        table = self.table((0, {"k": before, "v": before}), (500, {"k": k, "v": v}))
        null = float(table.null_best.sel(stream="k", part="in_sample"))
        told = {drawing.name: drawing.find(table) for drawing in DRAWINGS}

        def each(text, *values):
            """Checks that the sentence has the numbers of both streams, in this order."""
            at = 0
            for value in values:
                at = text.index(value, at) + len(value)

        each(told["emergence"], f"0.05 at step 0 to {best(k).mean():.2f} at step 500",
             f"0.05 at step 0 to {best(v).mean():.2f}")
        each(told["training_density"], f"0.05 at step 0, before training, and {best(k).mean():.2f} at step 500",
             f"0.05 and {best(v).mean():.2f}", f"random projections give {null:.2f}")
        joint = [one["tables"]["r2_pairwise"] for one in (k, v)]
        three = [one[~np.isnan(one[:, 2]), 2] for one in joint]  # the first layer's heads have but two sources
        of_three = 1 - (1 - 3 * 4 / 32) * (1 - 3 * 4 / 999)
        self.assertTrue(0 < np.mean(three[1] > of_three) < 1)
        each(told["references"], *(f"{np.median(one):.2f}" for one in three),
             f"3 random projections give {of_three:.2f}")
        each(told["mean_by_references"], *(f"{one[:, 0].mean():.2f} " for one in joint))
        each(told["distributions"], *(f"{100 * np.mean(one > of_three):.0f} %" for one in three))
        sources = [np.where(CAUSAL, one["tables"]["r2"], -1).argmax(axis=1) for one in (k, v)]
        within = [np.mean(LAYER[chosen] == LAYER) for chosen in sources]
        each(told["dominance"], *(f"{100 * share:.0f} %" for share in within), "random rankings give")
        for one, start in ((k, "Keys"), (v, "values")):
            head = int(best(one).argmax())
            each(told["heads"][told["heads"].index(start):], f"{np.sum(best(one) > null)} of 6",
                 f"layer {LAYER[head]} head {head % 3}", f"{best(one).max():.2f}")

    def test_percent_and_one_reference(self):
        sample = level_stream(.4, references=1)
        table = self.table((0, {"k": sample}))
        self.assertEqual(findings.mean_by_references(table), "Keys: mean R² is 0.40 from 1 reference at step 0; "
                         "a random projection gives 0.13")

    def test_near_and_far_layers(self):
        layer = layers(2, 2, 2, 2)
        sample = random_stream(layer, 5)
        r2, apart = sample["tables"]["r2"], layer[:, None] - layer[None, :]
        near, far = r2[(apart >= 1) & (apart <= 2)].mean(), r2[apart > 2].mean()
        self.assertEqual(findings.near_far(self.table((7, {"q": sample}))),
                         f"Queries: mean R² is {near:.2f} between layers up to 2 apart and {far:.2f} farther apart at "
                         "step 7; a random projection gives 0.13")
        self.assertIsNone(findings.near_far(self.over_steps((.1,))))  # of two layers

    def test_overlap_at_the_tolerance_farthest_from_its_null(self):
        streams = {"k": level_stream(.4)}
        dimension = np.zeros((1, 2, 2, 2))
        results = []
        for step in (0, 10):
            dimension[0, 0, 1] = step  # raw, 1e-2
            results.append((step, streams, {"overlap": make_overlap(["k"], dimension.copy(), np.full((1, 2, 3, 3), .2))}))
        self.assertRegex(findings.overlap(self.table(*results)), r"^Keys: overlap dimension at tolerance 1e-2 rises from "
                         r"0\.00 at step 0 to 10\.00 at step 10; random matrices give \d+\.\d\d$")

    def test_three_studies_side_by_side(self):
        rows = [self.over_steps((.1, last), hidden_size=size).isel(checkpoint=-1)
                for last, size in ((.2, 32), (.3, 32), (.4, 0))]
        null = float(rows[0].null_best.sel(stream="k", part="in_sample"))
        self.assertEqual(findings.side_by_side(rows, ["a", "b", "c"]),
                         "Keys: mean best-source R² is 0.20 in a at step 10, 0.30 in b at step 10 and 0.40 in c at step "
                         f"10; random projections give {null:.2f} in a, {null:.2f} in b and the null is unknown in c")
        self.assertRegex(findings.side_by_side(rows[:0:-1], ["c", "b"]), rf"unknown in c and random projections give "
                         rf"{null:.2f} in b$")

    def test_nothing_to_say(self):
        table = self.over_steps((.1, .2))
        for name in ("overlap", "ceilings", "alignment"):
            self.assertIsNone(getattr(findings, name)(table))


if __name__ == "__main__":
    unittest.main()
