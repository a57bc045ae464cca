"""Measures of similarity, attention scores, and runs of several seeds in `headspan-report aggregate`: means and standard
deviations by hand, and the nulls of similarity against their integral."""
import csv
import tempfile
import unittest
from pathlib import Path

import numpy as np
import xarray
from samples import layers, make_scores, make_similarity, make_stream, run, write_result
from scipy import integrate

from headspan import nulls
from headspan_report import figures
from headspan_report.aggregate import aggregate
from headspan_report.seeds import has_seeds, over_seeds

LAYER = layers(2, 2)
R2 = np.array([[9, .5, .1, .1], [.3, 9, .1, .1], [.8, .2, 9, .6], [.1, .7, .4, 9]])  # best causal: .5 .3 .8 .7, mean .575
SCORES = np.array([[.1, .2, .3, .7], [0, 0, 0, .5], [.9, .1, 0, 0], [0, .4, 0, 0], [1, 2, 3, 5.]])


class Seeds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_seeds_")
        cls.addClassCleanup(temporary.cleanup)
        cls.results = Path(temporary.name) / "results"
        for seed, factor in ((1, 1), (2, .8), (3, .6)):
            for step, level in ((0, .1), (10, .4)):
                stream = make_stream(LAYER, factor * (1 if step else .5) * R2, **make_similarity(LAYER, level * factor))
                write_result(cls.results, f"seed{seed}-step{step}", {"k": stream}, step=step, training_seed=seed,
                             scores=make_scores(LAYER, factor * SCORES), validation_loss=2. + seed)
        write_result(cls.results, "alone", {"k": make_stream(LAYER, R2)}, step=20)
        cls.out = Path(temporary.name) / "out"
        done = run("aggregate", cls.results, "--output", cls.out)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.table = aggregate([cls.results]).table

    def test_rows_of_a_step_have_a_mean_and_a_standard_deviation(self):
        found = xarray.load_dataset(f"{self.out}.nc", engine="h5netcdf", group="seeds")
        self.assertEqual(found.checkpoint.values.tolist(), ["step0", "step10", "alone"])
        self.assertEqual(found.runs.values.tolist(), [3, 3, 1])
        self.assertEqual(found.training_seed.values.tolist(), [-1, -1, -1])
        np.testing.assert_allclose(found.validation_loss.values[:2], 4)
        best = {"stream": "k", "scope": "best", "part": "in_sample", "statistic": "mean"}
        np.testing.assert_allclose(found.r2.sel(**best), [.575 * .4, .575 * .8, .575])
        np.testing.assert_allclose(found.r2_sd.sel(**best), [.575 * .1, .575 * .2, np.nan])
        np.testing.assert_allclose(found.similarity.sel(stream="k", measure="cka", statistic="mean"), [.08, .32, np.nan])
        np.testing.assert_allclose(found.layer_score_sd.sel(score="induction")[:2], np.outer([1, 1], [.04, .14]))
        np.testing.assert_allclose(found.head_best.sel(stream="k", part="in_sample")[1], [.5, .3, .8, .7])  # of seed 1

    def test_table_has_all_rows(self):
        with open(f"{self.out}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["training_seed"] for row in rows], ["1", "2", "3"] * 2 + ["-1"])
        self.assertAlmostEqual(float(rows[0]["similarity_procrustes_mean"]), .1)
        self.assertEqual(rows[-1]["similarity_cka_mean"], "")
        self.assertAlmostEqual(float(rows[1]["layer_score_induction_layer1"]), .56)
        self.assertAlmostEqual(float(rows[0]["layer_score_entropy_layer1"]), 4)  # the mean of 3 and 5
        self.assertEqual(float(rows[0]["uniform_score_entropy"]), 5)
        np.testing.assert_allclose(self.table.r2_layer.sel(stream="k")[3],
                                   [[.4, .1], [.45, .5]])  # (.5 + .3) / 2, (.8 + .2 + .1 + .7) / 4, ...

    def test_without_seeds_nothing_changes(self):
        alone = self.table.isel(checkpoint=[0, 6])
        self.assertFalse(has_seeds(alone))
        xarray.testing.assert_identical(over_seeds(alone).drop_vars("runs"), alone)

    def test_figures_show_the_mean_and_its_spread(self):
        drawn, _ = figures.draw_all(self.table)
        emergence = next(figure for drawing, figure in drawn if drawing.name == "emergence").axes[0]
        self.assertIn("± 1 standard deviation over 3 seeds", emergence.get_legend_handles_labels()[1])
        mean = next(line for line in emergence.get_lines() if line.get_label() == "mean, in-sample")
        np.testing.assert_allclose(mean.get_ydata(), [.575 * .8, .575])

    def test_finding_of_the_scores(self):
        told = next(drawing for drawing in figures.DRAWINGS if drawing.name == "scores").find(over_seeds(self.table))
        self.assertEqual(told, "the largest induction score is 0.56, in layer 1, at step 10; half of it is there at step 0; "
                         "uniform attention gives 0.01")


def wachter(x, share, power):
    """Returns x^power times the density of squared cosines between random subspaces with this share of the dimensions."""
    return x ** power * np.sqrt((4 * share * (1 - share) - x) / x) / (2 * np.pi * share * (1 - x))


class Nulls(unittest.TestCase):
    def test_of_similarity_is_wachters_integral(self):
        for share in (.02, .25, .5, .7):
            edge, least = 4 * share * (1 - share), max(0, 2 - 1 / share)
            mass, mean = (integrate.quad(wachter, 0, edge, (share, power))[0] for power in (0, .5))
            self.assertAlmostEqual(mass + least, 1, places=6)
            self.assertAlmostEqual(nulls.similarity("procrustes", share), 1 - least - mean, places=6)
            self.assertEqual(nulls.similarity("cka", share), share)
        self.assertEqual([nulls.similarity(measure, 1.5) for measure in ("cka", "cca", "procrustes")], [1, 1, 0])
        self.assertTrue(np.isnan(nulls.similarity("cka", np.nan)))


if __name__ == "__main__":
    unittest.main()
