"""`headspan-report compare`: two studies side by side, matched by name or, for two models, by the last checkpoint."""
import csv
import tempfile
import unittest
from pathlib import Path

import numpy as np
from browser import Page
from samples import check_nothing_is_replaced, layers, make_stream, random_stream, run, write_result

from headspan_report.aggregate import aggregate
from headspan_report.compare import draw_both, matched, shown_of

LAYER = layers(2, 2)
R2 = np.array([[9, .5, .1, .1], [.3, 9, .1, .1], [.8, .2, 9, .6], [.1, .7, .4, 9]])  # best causal: .5 .3 .8 .7


class Compare(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_compare_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def compare(self, *words):
        done = run("compare", self.folder / "a", self.folder / "b", "--output", self.folder / "out.html", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.folder / "out.csv", newline="") as file:
            self.rows = list(csv.DictReader(file))
        return done

    def draw(self):
        """Returns the axes of the figure, each with its labelled lines: label -> (x, y)."""
        a, b = (aggregate([self.folder / name]).table for name in "ab")
        figure = draw_both(a, b, ("a", "b"), shown_of(a, b, matched(a, b)[0]))
        return [(axis, {line.get_label(): line.get_xydata() for line in axis.get_lines()}) for axis in figure.axes]

    def row(self, figure, stream="k", checkpoint=None):
        found = [row for row in self.rows if row["figure"] == figure and row["stream"] == stream
                 and checkpoint in (None, row["checkpoint_a"])]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_paper_beside_corrected(self):
        for step in (0, 100):
            write_result(self.folder / "a", f"step{step}", {"k": make_stream(LAYER, R2 / 2, n_fit=101, n_heldout=0)},
                         step=step, mode="paper", job="[tokens]\nlimit = 101\n[output]\ndirectory = a\n")
            write_result(self.folder / "b", f"step{step}", {"k": make_stream(LAYER, R2)}, step=step,
                         job="[tokens]\nlimit = 1000\n")

        self.compare("--names", "paper", "corrected")

        best = self.row("best source, in-sample", checkpoint="step100")
        self.assertAlmostEqual(float(best["a"]), .2875)
        self.assertAlmostEqual(float(best["b"]), .575)
        self.assertAlmostEqual(float(best["difference"]), .2875)
        pairs = self.row("all causal pairs", checkpoint="step0")
        self.assertAlmostEqual(float(pairs["null_a"]), 4 / 100 + (1 - 4 / 100) * 4 / 32)
        self.assertAlmostEqual(float(pairs["null_b"]), 4 / 999 + (1 - 4 / 999) * 4 / 32)
        heldout = self.row("best source, held-out", checkpoint="step0")
        self.assertEqual((heldout["a"], heldout["difference"]), ("", ""))
        self.assertAlmostEqual(float(heldout["b"]), .565)
        with Page(390, 844, mobile=True) as page:
            page.open(self.folder / "out.html")
            self.assertEqual(page.complaints(), [])
            self.assertEqual(page.requests(), [(self.folder / "out.html").resolve().as_uri()])
            told = page.text("#differences").splitlines()
            self.assertEqual(told[1:], ["model\ttiny\ttiny", "mode\tpaper\tcorrected", "n_fit\t101\t1000",
                                        "job: tokens.limit\t101\t1000"])
            self.assertRegex(page.text("h3"), r"^Keys: mean best-source R² is 0\.2[89] in paper at step 100 and 0\.5[78] in "
                             r"corrected at step 100; random projections give 0\.18 in paper and 0\.15 in corrected$")
            self.assertIn("best source, in-sample\t0.287", page.text("body").replace("0.288", "0.287"))
            self.assertEqual(page.evaluate("[document.documentElement.scrollWidth, innerWidth]"), [390, 390])

    def test_two_models(self):
        write_result(self.folder / "a", "final", {"k": make_stream(LAYER, R2)}, step=5)
        write_result(self.folder / "a", "first", {"k": random_stream(LAYER, 1)}, step=0)
        write_result(self.folder / "b", "main", {name: make_stream(layers(2, 2, 2), np.full((6, 6), .25), head_size=8)
                                                 for name in "kv"}, step=7, model_type="llama", model_name="other")

        done = self.compare()

        self.assertIn("pairs=1 ", done.stdout)
        self.assertEqual({(row["checkpoint_a"], row["checkpoint_b"], row["stream"]) for row in self.rows},
                         {("final", "main", "k")})
        best = self.row("best source, in-sample")
        self.assertAlmostEqual(float(best["b"]), .25)
        page = (self.folder / "out.html").read_text()
        self.assertIn("final of a, main of b.", page)
        self.assertIn("<td>final, step 5, 20.5k tokens</td><td>main, step 7, 28.7k tokens</td>", page)

    def test_the_checkpoint_of_both_is_shown(self):
        """b ends before a: figures of one checkpoint show the last one that both have."""
        for i, step in enumerate((0, 10, 30, 3000)):
            write_result(self.folder / "a", f"step{step}", {"k": make_stream(LAYER, R2 / (4 - i))}, step=step)
            if step < 3000:
                write_result(self.folder / "b", f"step{step}", {"k": make_stream(LAYER, R2 / 4)}, step=step)

        self.compare()

        best = self.row("best source, in-sample", checkpoint="step30")
        (_, counts), (_, heads) = drawn = self.draw()[1:]
        self.assertAlmostEqual(counts["a"][0, 1], float(best["a"]))
        self.assertAlmostEqual(counts["b"][0, 1], float(best["b"]))
        self.assertAlmostEqual(heads["a"][np.argmax(heads["a"][:, 1]), 0], .575 / 2, delta=.15)  # at step 3000 .575
        self.assertEqual([axis.get_ylabel().split("\n")[1] for axis, _ in drawn], ["step30"] * 2)
        page = (self.folder / "out.html").read_text()
        self.assertIn("checkpoints of the same name (3: step0 to step30).", page)
        self.assertIn("over heads:\nstep30 of both.", page)
        self.assertIn("Numbers at step30<", page)

    def test_one_axis_of_steps(self):
        for name, steps in {"a": (0, 10, 30, 3000), "b": (0, 20, 30)}.items():
            for step in steps:
                write_result(self.folder / name, f"step{step}", {"k": make_stream(LAYER, R2)}, step=step)
        axis, lines = self.draw()[0]
        whole = [line.get_xdata() for line in axis.get_lines() if line.get_marker() == "o"]
        zeros = [x[0] for x in whole if len(x) == 1]
        self.assertEqual(len(zeros), 2)
        self.assertEqual(*zeros)
        np.testing.assert_allclose(lines["a"][:, 0], np.log10([10, 30, 3000]))
        np.testing.assert_allclose(lines["b"][:, 0], np.log10([20, 30]))
        low, high = axis.get_xlim()
        for x in whole:
            self.assertTrue(low < x.min() and x.max() < high, (low, x, high))

    def test_without_steps_no_axes_are_empty(self):
        for name in "ab":
            write_result(self.folder / name, "main", {"k": make_stream(LAYER, R2)}, step=-1)
        self.assertEqual([sorted(lines) for _, lines in self.draw()],
                         [["a", "b", "null of a", "null of b"]] * 2)

    def test_one_name_for_two_steps(self):
        for name, step in {"a": 3000, "b": 10}.items():
            write_result(self.folder / name, "main", {"k": make_stream(LAYER, R2)}, step=step)
        self.compare()
        a, b = "main, step 3000, 12.3M tokens", "main, step 10, 41k tokens"
        page = (self.folder / "out.html").read_text()
        self.assertIn(f"over heads:\n{a} of a, {b} of b.", page)
        self.assertIn(f"Numbers at {a} and {b}<", page)
        self.assertEqual(page.count("<td>all causal pairs</td>"), 1)
        self.assertEqual([axis.get_ylabel().split("\n")[1:] for axis, _ in self.draw()],
                         [["main, step 3000", "main, step 10"]] * 2)

    def test_a_study_without_steps_beside_one_with(self):
        for step in (0, 10, 100):
            write_result(self.folder / "a", f"step{step}", {"k": make_stream(LAYER, R2)}, step=step)
        write_result(self.folder / "b", "main", {"k": make_stream(LAYER, R2 / 2)}, step=-1)
        self.compare()
        over_steps, *others = (lines.keys() for _, lines in self.draw())
        self.assertEqual([label for label in over_steps if not label.startswith("_")], ["a", "null of a"])
        self.assertEqual(list(map(sorted, others)), [["a", "b", "null of a", "null of b"]] * 2)
        told = "Over training steps {} is not drawn: its checkpoints tell no step."
        page = (self.folder / "out.html").read_text()
        self.assertEqual([told.format(name) in page for name in "ab"], [False, True])

    def test_random_weights_are_shown_last_of_all(self):
        for name in "ab":
            write_result(self.folder / name, "main", {"k": make_stream(LAYER, R2)}, step=-1)
            write_result(self.folder / name, "main-random", {"k": make_stream(LAYER, R2 / 2)}, step=-1, init="random")
        self.compare()
        self.assertIn("Numbers at main<", (self.folder / "out.html").read_text())
        for name in "ab":
            for path in (self.folder / name / "tiny").glob("main.h5*"):
                path.unlink()
        self.compare()
        self.assertIn("Numbers at main-random<", (self.folder / "out.html").read_text())

    def test_nothing_that_is_read_is_replaced(self):
        result = write_result(self.folder / "a", "x", {"k": random_stream(LAYER, 1)})
        run("aggregate", self.folder / "a", "--output", self.folder / "b")
        table, page = self.folder / "b.nc", self.folder / "out.html"
        page.with_suffix(".csv").symlink_to(table)
        for output, target, read in ((result, result, result), (table, table, table), (page, page.with_suffix(".csv"), table)):
            check_nothing_is_replaced(self, self.folder, f"{target}: would replace {read}, which is read", "compare",
                                      self.folder / "a", table, "--output", output)
        check_nothing_is_replaced(self, self.folder, ".: would replace what is no regular file", "compare",
                                  self.folder / "a", table, "--output", ".")

    def test_nothing_in_common(self):
        write_result(self.folder / "a", "x", {"k": random_stream(LAYER, 1)})
        write_result(self.folder / "b", "x", {"v": random_stream(LAYER, 1)})
        done = run("compare", self.folder / "a", self.folder / "b", "--output", self.folder / "out.html")
        self.assertEqual((done.returncode, (self.folder / "out.html").exists()), (2, False))
        self.assertIn("streams = k and v: have none in common", done.stderr)


if __name__ == "__main__":
    unittest.main()
