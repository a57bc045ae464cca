"""`headspan-report compare`: two studies laid beside each other, by name or, of two models, the last of each."""
import csv
import tempfile
import unittest
from pathlib import Path

import numpy as np
from browser import Page
from samples import layers, make_stream, random_stream, run, write_result

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

    def test_nothing_in_common(self):
        write_result(self.folder / "a", "x", {"k": random_stream(LAYER, 1)})
        write_result(self.folder / "b", "x", {"v": random_stream(LAYER, 1)})
        done = run("compare", self.folder / "a", self.folder / "b", "--output", self.folder / "out.html")
        self.assertEqual((done.returncode, (self.folder / "out.html").exists()), (2, False))
        self.assertIn("have none in common", done.stderr)


if __name__ == "__main__":
    unittest.main()
