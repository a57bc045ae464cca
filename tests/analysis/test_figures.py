"""The figures of `headspan-report plot`: they show what the table holds, each has its null, and figures without data
are named and not drawn.

    test_figures.py [--pictures FOLDER] [unittest's arguments]
"""
import shutil
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from samples import (
    check_nothing_is_replaced, layers, make_cross, make_overlap, make_scores,
    make_similarity, random_stream, run, write_result)
from scipy import stats

from headspan_report import figures
from headspan_report.figures import axes
from headspan_report.aggregate import aggregate, read_netcdf

PICTURES = None
STEPS = (0, 30, 1000, 20000)
LAYER = layers(3, 3, 3, 3)
SHAPE = (len(LAYER),)


def write_study(folder, whole):
    """Writes four checkpoints; `whole`: with ceilings and overlap."""
    for i, step in enumerate(STEPS):
        streams = {}
        for s, name in enumerate("kqv"):
            more = {"ceiling_layer": np.full(SHAPE, .3 + .1 * i), "ceiling_causal": np.full(SHAPE, .5 + .1 * i),
                    "canonical_layer": np.full((4, 3, 3), .1 + .1 * i),
                    **make_similarity(LAYER, .2 + .1 * i)} if whole else {}
            streams[name] = random_stream(LAYER, 10 * i + s, references=3, **more)
        dimension = np.full((3, 2, 2, 4), i * 2.0) + np.array([[0, 10], [1, 11]])[None, ..., None]
        overlap = make_overlap(["k", "q", "v"], dimension, np.full((3, 4, 3, 3), .2)) if whole else None
        scores = make_scores(LAYER, np.full((5, len(LAYER)), .1 * i + .01 * LAYER)) if whole else None
        cross = {}
        for name in "kqv" if whole else "":
            cross |= make_cross(name, LAYER, LAYER, np.full((len(LAYER), len(LAYER)), .1 + .2 * i), np.full(SHAPE, .2 + .2 * i))
        write_result(folder, f"step{step}", streams, step=step, overlap=overlap, scores=scores, validation_loss=9.0 - i, cross=cross,
                     reference_model="end")


def labels(axis):
    return axis.get_legend_handles_labels()[1]


def line(axis, label):
    """Returns the y values of the first line with this label."""
    return next(found for found in axis.get_lines() if found.get_label() == label).get_ydata()


def draw_one(name, table):
    return next(drawing for drawing in figures.DRAWINGS if drawing.name == name).draw(table)


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_figures_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        for name in ("whole", "partly"):
            write_study(cls.folder / name, name == "whole")
        cls.table = aggregate([cls.folder / "whole"]).table
        cls.drawn, cls.absent = figures.draw_all(cls.table)
        cls.by_name = {drawing.name: figure for drawing, figure in cls.drawn}

    def test_all_are_drawn(self):
        self.assertEqual((len(self.drawn), self.absent), (len(figures.DRAWINGS), []))

    def test_each_has_its_null(self):
        for drawing, figure in self.drawn:
            with self.subTest(figure=drawing.name):
                words = [label for axis in figure.axes for label in labels(axis)]
                words += [text.get_text() for axis in figure.axes for text in axis.texts]
                self.assertTrue(any(word.startswith("null") for word in words), words)

    def test_emergence_draws_the_table(self):
        top, k = self.by_name["emergence"].axes[0], self.table.sel(stream="k")
        best = k.r2.sel(scope="best", statistic="mean")
        np.testing.assert_array_equal(line(top, "mean, in-sample"), best.sel(part="in_sample")[1:])  # step 0 is apart
        np.testing.assert_array_equal(line(top, "mean, held-out"), best.sel(part="heldout")[1:])
        self.assertEqual(line(top, "null: best of random projections")[0], float(k.null_best.sel(part="in_sample")))
        self.assertEqual(line(top, "noise floor p/(n-1) = 0.004")[0], 4 / 999)
        zero = [found for found in top.get_lines() if len(found.get_xdata()) == 1]
        self.assertIn(float(best.sel(part="in_sample")[0]), [found.get_ydata()[0] for found in zero])

    def test_emergence_tells_the_heldout_mean_from_the_null(self):
        drawn = {found.get_label(): found for found in self.by_name["emergence"].axes[0].get_lines()}
        heldout, null = drawn["mean, held-out"], drawn["null: best of random projections"]
        self.assertEqual((heldout.get_linestyle(), heldout.get_marker(), heldout.get_color()), ("-", "o", "black"))
        self.assertEqual((null.get_linestyle(), null.get_marker()), ("--", "None"))

    def test_what_is_below_zero_is_inside(self):
        for step in (0, 10, 100):
            sample = random_stream(LAYER, step, references=3, ceiling_layer=np.full(SHAPE, .5),
                                   ceiling_layer_heldout=np.full(SHAPE, -.3))
            for name in ("r2_heldout", "r2_pairwise_heldout", "r2_forward_heldout"):
                sample["tables"][name] = sample["tables"][name] - 1.2
            write_result(self.folder / "below", f"step{step}", {"k": sample}, step=step)
        table = aggregate([self.folder / "below"]).table
        for name, place in {"emergence": 0, "references": 0, "mean_by_references": 1, "ceilings": 0}.items():
            with self.subTest(figure=name):
                axis = draw_one(name, table).axes[place]
                lowest = min(np.nanmin(found.get_ydata()) for found in axis.get_lines() if len(found.get_ydata()))
                self.assertLess(lowest, 0)
                self.assertLess(axis.get_ylim()[0], min(lowest, axis.dataLim.y0))
        self.assertEqual(self.by_name["emergence"].axes[0].get_ylim(), (0, 1))  # where nothing is below

    def test_mean_by_references_draws_the_table(self):
        inside = self.by_name["mean_by_references"].axes[0]
        last = self.table.isel(checkpoint=-1).sel(stream="q")
        values = last.top_r2.sel(rule="pairwise", part="in_sample", statistic="mean")
        np.testing.assert_array_equal(line(inside, "Queries, best pairwise"), values)
        null = next(patch for patch in inside.patches if patch.get_label() == "null: N random projections")
        floor, random = np.arange(1, 4) * 4 / 999, np.arange(1, 4) * 4 / 32
        np.testing.assert_allclose(null.get_data().values, floor + (1 - floor) * random)

    def test_dominance_draws_the_table_in_percent(self):
        for place, rule, links in ((0, "caption", 1), (1, "caption", 5), (2, "code", 1), (3, "code", 5)):
            axis = self.by_name["dominance"].axes[place]
            one = self.table.sel(stream="v", dominance_rule=rule, links=links)
            np.testing.assert_array_equal(line(axis, "Values"), 100 * one.dominance[1:])
            self.assertEqual(line(axis, "null: random rankings, ± 2 standard deviations")[0],
                             100 * float(one.null_dominance))

    def test_overlap_draws_the_table(self):
        for axis, shift in zip(self.by_name["overlap"].axes, (0, 10)):
            np.testing.assert_array_equal(line(axis, "Keys"), np.array([2, 4, 6]) + shift)
            np.testing.assert_array_equal(line(axis, "Keys, norm gain folded in"), np.array([3, 5, 7]) + shift)
            self.assertEqual(len([found for found in axis.get_lines() if found.get_label() == "Keys"]), 1)

    def test_a_dashed_line_of_a_legend_is_not_a_solid_one(self):
        ink = {}
        with matplotlib.rc_context(axes.STYLE):
            figure = draw_one("mean_by_references", self.table)
            legend = figure.legends[0]
            legend.set_bbox_to_anchor((0.5, 1))  # files are cropped around it, a canvas is not
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
        picture = np.asarray(canvas.buffer_rgba())[::-1, :, :3].min(axis=2) < 128
        for handle, text in zip(legend.get_lines(), legend.get_texts()):
            box = handle.get_window_extent()
            y = round((box.y0 + box.y1) / 2)
            ink[text.get_text()] = picture[y, round(box.x0):round(box.x1)]
        dashes = {label: np.count_nonzero(np.diff(pixels.astype(int)) == 1) for label, pixels in ink.items()}
        for stream in ("Keys", "Queries", "Values"):
            self.assertLessEqual(dashes[f"{stream}, best pairwise"], 1)
            self.assertGreaterEqual(dashes[f"{stream}, forward selection"], 3)  # the marker hides one gap

    def test_narrow_figures_have_one_panel_in_a_row(self):
        drawn, _ = figures.draw_all(self.table, axes.NARROW)
        for drawing, figure in drawn:
            with self.subTest(figure=drawing.name):
                FigureCanvasAgg(figure).draw()
                boxes = [axis.get_position() for axis in figure.axes]
                for above, below in zip(boxes, boxes[1:]):
                    self.assertLess(below.y1, above.y0 + 1e-9)
                self.assertTrue(all(axis.get_ylabel() for axis in figure.axes if axis.get_label() != "<colorbar>"))
        titles = [axis.get_title() for axis in {one.name: figure for one, figure in drawn}["distributions"].axes]
        self.assertEqual(titles, ["Keys", "Queries", "Values"] * 2)

    def test_step_axis(self):
        steps = axes.StepAxis([0, 10, 100, 1000])
        np.testing.assert_allclose(np.diff(steps.x[1:]), 1)
        self.assertLess(steps.x[0], steps.x[1])
        with self.assertRaises(axes.Absent):
            axes.StepAxis([-1, -1])

    def test_density(self):
        x, values = np.linspace(0, 1, 2001), np.random.default_rng(0).beta(2, 5, 300)
        found = axes.density(values, x)
        for near_an_end in (values, values / 5, 1 - values / 5):  # nothing is lost beyond the ends
            y = axes.density(near_an_end, x)
            self.assertAlmostEqual(np.sum((y[1:] + y[:-1]) / 2) * (x[1] - x[0]), 1, places=4)
        peer = stats.gaussian_kde(values, bw_method="silverman")
        inner = (x > .3) & (x < .7)
        np.testing.assert_allclose(found[inner], peer(x[inner]), rtol=.1)

    def test_what_is_not_there_is_said(self):
        table = aggregate([self.folder / "partly"]).table
        for name, reason in {"overlap": "the results hold no overlap dimension (job section [overlap])",
                             "ceilings": "the results hold no ceilings (job section [ceiling])",
                             "alignment": "the results hold neither alignment nor canonical correlations"}.items():
            with self.assertRaises(axes.Absent) as caught:
                draw_one(name, table)
            self.assertEqual(str(caught.exception), reason)

    def test_files_of_the_table(self):
        run("aggregate", self.folder / "whole", "--output", self.folder / "emergence")
        done = run("plot", self.folder / "emergence.nc", "--output", self.folder / "figures")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        files = sorted((self.folder / "figures").iterdir())
        self.assertEqual([path.name for path in files],
                         sorted(f"{drawing.name}.{kind}" for drawing, _ in self.drawn for kind in ("svg", "png")))
        for path in files:
            if path.suffix == ".svg":
                self.assertEqual(xml.etree.ElementTree.parse(path).getroot().tag, "{http://www.w3.org/2000/svg}svg")
            else:
                self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
            if PICTURES:
                shutil.copy(path, PICTURES)

    def test_nothing_that_is_read_is_replaced(self):
        result = next((self.folder / "partly").rglob("step0.h5"))
        run("aggregate", self.folder / "partly", "--output", self.folder / "partly")
        figures_here = self.folder / "taken"
        figures_here.mkdir()
        target = figures_here / "emergence.png"
        for read, source in ((result, self.folder / "partly"), (self.folder / "partly.nc", self.folder / "partly.nc")):
            target.symlink_to(read)
            check_nothing_is_replaced(self, self.folder, f"{target}: would replace {read}, which is read", "plot", source,
                                      "--output", figures_here)
            target.unlink()
        target.mkdir()
        check_nothing_is_replaced(self, self.folder, f"{target}: would replace what is no regular file", "plot", source,
                                  "--output", figures_here)

    def test_the_same_results_give_the_same_picture(self):
        again = draw_one("dominance", aggregate([self.folder / "whole"]).table)
        self.assertEqual(axes.to_svg(again), axes.to_svg(draw_one("dominance", self.table)))

    def test_bad_sources(self):
        (self.folder / "bad.nc").write_text("x")
        done = run("plot", self.folder / "bad.nc", "--output", self.folder / "none")
        self.assertEqual((done.returncode, (self.folder / "none").exists()), (2, False))
        self.assertIn("bad.nc: cannot be read", done.stderr)
        self.table.drop_vars("dominance").to_netcdf(self.folder / "less.nc", engine="h5netcdf")
        with self.assertRaisesRegex(Exception, "dominance: is missing; give an emergence.nc"):
            read_netcdf(self.folder / "less.nc")


if __name__ == "__main__":
    if "--pictures" in sys.argv:
        at = sys.argv.index("--pictures")
        PICTURES = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
