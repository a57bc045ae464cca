"""Summaries of archives in `headspan-report compression`: which plans they stand beside, and which are refused."""
import tempfile
import unittest
from pathlib import Path

from plans import on_both, write_run, write_summary
from samples import run

from headspan_report.compression.page import archived_of
from headspan_report.compression.plan import read_archives, read_folder
from headspan_report.figures import compression as compression_figures


class TestArchives(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_archives_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.path = self.folder / "out.html"

    def test_archives(self):
        """Their summaries need no plan; they belong to the plans of the same weights."""
        folder, weights = self.folder / "archives", {"weights": {"digest": "d1"}}
        write_run(folder, "latent", "latent", 0.2, on_both(0.01, 0.001, 0.02, 0.001), ((8, 4),), summary=weights)
        for name, algorithm, bits, digest in (("a4", "headspan", 4, "d1"), ("a1", "headspan", 1, "d1"), ("k2", "kvtc", 2, "d1"),
                                              ("foreign", "headspan", 3, "d2")):
            write_summary(folder, name, 0, on_both(bits / 100, 0.001, 0.02, 0.001), plan="", prefill="exact",
                          weights={"digest": digest}, archive={"codec": "c.codec", "algorithm": algorithm, "bits": bits})
        runs, refused = read_folder(folder)
        self.assertEqual(([run.plan.path.stem for run in runs], refused), (["latent"], []))
        archives = archived_of(runs, read_archives([folder]))
        axes = compression_figures.draw_text(runs + archives, "docs.heldout", False).axes
        drawn = {one.get_label(): one.lines[0].get_xydata().tolist() for one in axes[0].containers}
        self.assertEqual(drawn, {"latent": [[0.2, 0.01]], "archive, exact prefill": [[1 / 16, 0.01], [0.25, 0.04]],
                                 "KVTC, exact prefill": [[0.125, 0.02]]})
        done = run("compression", folder, "--output", self.path, "--figures", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Archives are not read in place", self.path.read_text())
        write_summary(folder, "a1", 0, on_both(0.1, 0.001, 0.02, 0.001), plan="", archive={"algorithm": "zip", "bits": 1})
        done = run("compression", folder, "--output", self.path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a1.json: is no summary of headspan evaluate with texts", done.stderr)


if __name__ == "__main__":
    unittest.main()
