"""What `headspan-report` says of checkpoints and a reference model, by hand: from which heads a head of the reference is known,
whether the two models have the same heads, and what the page shows of it."""
import csv
import itertools
import tempfile
import unittest
from pathlib import Path

import numpy as np
import xarray
from samples import layers, make_cross, make_stream, run, write_result

from headspan_report import figures
from headspan_report.aggregate import aggregate
from headspan_report.reference import SHUFFLES, assigned

OWN, OTHER = layers(2, 2), layers(2, 3)
# Of the reference's heads (1.2 has no fellow) from the checkpoint's.
R2 = np.array([[.5, .6, .1, .1], [.3, .7, .1, .1], [.2, .2, .4, .6], [.1, .7, .4, .8], [.1, .1, .9, .2]])
LAYER = np.array([.8, .8, .9, .9, .95])


def cross_of(r2=R2, layer=LAYER, heldout=.01):
    return make_cross("k", OWN, OTHER, r2, layer, heldout)


def write(folder, name, step, cross, **attributes):
    attributes = {"reference_model": "final", "reference_weights_digest": "abc"} | attributes
    return write_result(folder, name, {"k": make_stream(OWN, np.full((4, 4), .5))}, step=step, cross=cross, **attributes)


class Reference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_reference_")
        cls.addClassCleanup(temporary.cleanup)
        cls.results = Path(temporary.name) / "results"
        for name, step, factor in (("step0", 0, .1), ("step9", 9, 1)):
            write(cls.results, name, step, cross_of(factor * R2, factor * LAYER))
        cls.out = Path(temporary.name) / "out"
        done = run("aggregate", cls.results, "--output", cls.out)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.table = xarray.load_dataset(f"{cls.out}.nc", engine="h5netcdf")

    def test_from_which_heads_the_references_are_known(self):
        found = self.table.isel(checkpoint=1).sel(stream="k")
        best = max(itertools.permutations(range(5), 4), key=lambda targets: sum(R2[t, s] for s, t in enumerate(targets)))
        matched = [np.mean([R2[t, s] for s, t in enumerate(best) if OTHER[t] == layer]) for layer in (0, 1)]
        expected = {"same": [(.5 + .7) / 2, (.4 + .8) / 2], "best": [(.6 + .7) / 2, (.6 + .8 + .9) / 3], "one_to_one": matched,
                    "layer": [.8, (.9 + .9 + .95) / 3]}
        for source, values in expected.items():
            np.testing.assert_allclose(found.reference_r2.sel(known_from=source, part="in_sample"), values, atol=1e-7)
            np.testing.assert_allclose(found.reference_r2.sel(known_from=source, part="heldout"), np.subtract(values, .01), atol=1e-7)
        back = found.checkpoint_r2.sel(part="in_sample")
        np.testing.assert_allclose(back.sel(known_from=["same", "best", "layer"]),
                                   [R2.T.diagonal().mean(), R2.max(0).mean(), LAYER[:4].mean()], atol=1e-7)
        np.testing.assert_allclose(found.reference_map, [[(.59 + .69) / 2, (.19 + .69 + .09) / 3], [.09, (.59 + .79 + .89) / 3]], atol=1e-7)
        np.testing.assert_allclose(found.reference_cka.sel(known_from=["same", "best"]), np.array([expected["same"], expected["best"]]) / 2,
                                   atol=1e-7)
        adjusted = 1 - (1 - LAYER[0]) * 999 / (1000 - 2 * 4 - 1)  # of both heads of layer 0, with 4 coordinates each
        np.testing.assert_allclose(found.reference_r2.sel(known_from="layer", part="adjusted", reference_layer=0), adjusted, atol=1e-7)

    def test_assignment_beats_every_other(self):
        values = np.random.default_rng(1).random((4, 5))
        chosen = assigned(values)
        self.assertEqual(len(set(chosen)), 4)
        most = max(sum(values[t, s] for t, s in enumerate(sources)) for sources in itertools.permutations(range(5), 4))
        self.assertAlmostEqual(values[np.arange(4), chosen].sum(), most)
        self.assertEqual(list(assigned(np.full((2, 2), np.nan))), [-1, -1])

    def test_null_of_the_assignment(self):
        """Heads that are the same in another order stand out from the null; equal values do not."""
        with tempfile.TemporaryDirectory() as folder:
            planted = np.full((5, 4), .2)
            planted[[0, 1, 3, 4], [1, 0, 2, 3]] = .9
            for name, step, r2 in (("planted", 1, planted), ("flat", 2, np.full((5, 4), .2))):
                write(folder, name, step, cross_of(r2, heldout=0))
            found = aggregate([folder]).table.sel(stream="k")
        match = found.reference_r2.sel(known_from="one_to_one", part="in_sample").mean("reference_layer")
        null = found.match_null.sel(part="in_sample")
        self.assertAlmostEqual(float(match.sel(checkpoint="planted")), .9, places=6)
        self.assertLess(float(null.sel(checkpoint="planted")), .85)
        self.assertGreater(float(null.sel(checkpoint="planted")), .2)
        np.testing.assert_allclose([float(each.sel(checkpoint="flat")) for each in (match, null)], .2)
        self.assertGreater(SHUFFLES, 1)
        self.assertTrue(np.isnan(null.sel(checkpoint="flat") * found.match_null.sel(part="heldout", checkpoint="flat")))

    def test_table(self):
        with open(f"{self.out}.csv", newline="") as file:
            row = list(csv.DictReader(file))[1]
        self.assertAlmostEqual(float(row["reference_r2_same_heldout_reference_layer1"]), .59)
        self.assertAlmostEqual(float(row["checkpoint_r2_layer_in_sample"]), LAYER[:4].mean())
        self.assertNotIn("reference_map", " ".join(row))

    def test_another_reference_is_another_study(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a", "b", "c"):
                write(folder, name, 1, cross_of(), **({"reference_weights_digest": "other"} if name == "c" else {}))
            found = aggregate([folder])
        self.assertEqual([str(error).count("reference_weights") for error in found.refused], [1])

    def test_figures(self):
        drawn = {drawing.name: drawing for drawing, _ in figures.draw_all(self.table)[0]}
        self.assertLessEqual({"reference_training", "reference_maps"}, set(drawn))
        self.assertEqual(drawn["reference_training"].find(self.table.assign(runs=("checkpoint", [1, 1]))),
                         "Keys: R² of the reference's heads from the same layer rises from 0.08 at step 0 to 0.85 at step 9; pure noise "
                         "gives 0 held-out")
        self.assertIn("matched one to one, the heads of the two models have R² 0.7", drawn["reference_maps"].find(self.table))
        image = next(axis for axis in figures.draw_all(self.table)[0][-2][1].axes if axis.images).images[0]
        np.testing.assert_allclose(image.get_array(), [[.05, .59], [.05, .59]], atol=1e-2)  # layer by step, from the same head

    def test_without_a_reference(self):
        with tempfile.TemporaryDirectory() as folder:
            write_result(folder, "alone", {"k": make_stream(OWN, np.full((4, 4), .5))})
            table = aggregate([folder]).table
        self.assertNotIn("reference_r2", table)
        absent = {drawing.name: reason for drawing, reason in figures.draw_all(table)[1]}
        self.assertIn("cross.model", absent["reference_training"])


if __name__ == "__main__":
    unittest.main()
