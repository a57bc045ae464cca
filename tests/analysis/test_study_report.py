"""A real study through headspan-report, and through the snippets of analysis/README.md, both against the table of
`headspan inspect`, which computes the same in C++.

usage: test_study_report.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import csv
import io
import re
import sys
from pathlib import Path

from samples import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import TESTS, TINY_OLMO2, StudyTest, main

CHECKPOINTS = ("step0", "step30", "step3000")
COLUMNS = ("r2_best_in_sample_mean", "r2_best_in_sample_median", "share_above_pairs_0.1", "share_above_pairs_0.5",
           "r2_best_heldout_mean", "effective_rank_mean")
NULLS = ("null_best_in_sample", None, "null_share_above_0.1", "null_share_above_0.5", "null_best_heldout")


class StudyReport(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = cls.study(1, "results", {
            "model.manifest": TINY_OLMO2 / "manifest.tsv", "model.select": ",".join(CHECKPOINTS),
            "tokens.path": TINY_OLMO2 / "tokens" / "docs.fit.bin", "tokens.sequence_length": 128, "tokens.limit": 4000})
        done = run("aggregate", cls.folder / "results", "--output", cls.folder / "emergence")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        with open(cls.folder / "emergence.csv", newline="") as file:
            cls.rows = list(csv.DictReader(file))

    def inspected(self):
        """Returns the rows of inspect's table: step -> words."""
        told = self.run_program(1, "inspect", *self.results).stdout.splitlines()
        return {words[0]: words for words in map(str.split, told) if words and len(words) >= 16}

    def snippet(self, words, path):
        """Runs the code that follows `words` in analysis/README.md on a result. Returns its output."""
        page = (TESTS.parent / "analysis" / "README.md").read_text()
        code = re.search(re.escape(words) + r":\n\n<!-- run by: .* -->\n```python\n((?:.*\n)+?)```\n", page).group(1)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {"path": path})
        return printed.getvalue().split()

    def test_snippets_of_the_page_give_the_held_of_the_table(self):
        by_step = self.inspected()
        for path in self.results:
            held = float(by_step[path.stem.removeprefix("step")][2 + COLUMNS.index("r2_best_heldout_mean")])
            for words in ("With `headspan.open`", "With h5py"):
                checkpoint, mean = self.snippet(words, path)
                self.assertEqual(checkpoint, path.stem)
                self.assertAlmostEqual(float(mean), held, delta=0.00051)
            numbers = [float(word.strip("[]")) for word in self.snippet("With xarray", path) if word.strip("[]")]
            self.assertEqual(len(numbers), 6 + 5)  # layers, references
            self.assertAlmostEqual(sum(numbers[:6]) / 6, held, delta=0.00051)
            self.assertAlmostEqual(numbers[6], held, delta=0.00051)  # the first that forward selection takes

    def test_as_inspect_says(self):
        by_step = self.inspected()

        for row in self.rows:
            words = by_step[row["step"]]
            at = 2 + 6 * "kqv".index(row["stream"])
            for name, word in zip(COLUMNS, words[at:at + 6]):
                digits = len(word.partition(".")[2])
                self.assertAlmostEqual(float(row[name]), float(word), delta=0.51 * 10**-digits, msg=name)
        self.assertEqual(len(self.rows), 9)

    def test_nulls_as_inspect_says(self):
        told = self.run_program(1, "inspect", *self.results).stdout.splitlines()
        words = next(words for words in map(str.split, told) if words[:1] == ["null"] and words[1][:2] == "0.")
        for name, word in zip(NULLS, words[1:]):
            if name:
                self.assertAlmostEqual(float(self.rows[0][name]), float(word), delta=0.00051, msg=name)

    def test_what_the_manifest_knows_arrives(self):
        self.assertEqual([row["validation_loss"] for row in self.rows[::3]], ["7.654", "6.89", "4.166"])
        self.assertEqual([row["training_tokens"] for row in self.rows[::3]], ["0", "122880", "12288000"])

    def test_page_of_a_real_study(self):
        done = run("report", self.folder / "results", "--output", self.folder / "report.html")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("manifest = ", (self.folder / "report.html").read_text())


if __name__ == "__main__":
    main()
