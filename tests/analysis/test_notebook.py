"""The notebook analysis/results.ipynb runs after a small quickstart, cell by cell in its own folder, and finds what h5py
reads from the same files. It is kept without outputs.

usage: test_notebook.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import io
import json
import os
import sys
from pathlib import Path

import h5py
import matplotlib
import numpy as np
from samples import ANALYSIS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import TINY_OLMO2, StudyTest, main

NOTEBOOK = json.loads((ANALYSIS / "results.ipynb").read_text(encoding="utf-8"))
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


class Notebook(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = cls.study(1, "results/quickstart", {
            "model.manifest": TINY_OLMO2 / "manifest.tsv", "model.select": "step0,step3000",
            "tokens.path": TINY_OLMO2 / "tokens" / "docs.fit.bin", "tokens.sequence_length": 128, "tokens.limit": 4000})
        (cls.folder / "analysis").mkdir()

    def run_cells(self):
        """Returns the names that the cells define, and what they print."""
        names, printed, before = {}, io.StringIO(), os.getcwd()
        matplotlib.use("Agg")
        os.chdir(self.folder / "analysis")
        try:
            with contextlib.redirect_stdout(printed):
                for number, cell in enumerate(CELLS, 1):
                    exec(compile("".join(cell["source"]), f"cell {number} of results.ipynb", "exec"), names)
        finally:
            os.chdir(before)
        return names, printed.getvalue()

    def test_cells_run_in_order(self):
        names, printed = self.run_cells()
        expected = {}
        for path in self.results:
            with h5py.File(path) as file:
                chosen = file["k/references_pairwise"][:, 0]  # the largest R², as the program found
                found = file["k/r2_heldout"][...][np.arange(len(chosen)), chosen][chosen >= 0]
                expected[int(file.attrs["step"])] = found.mean()
                curve = np.nanmean(file["k/r2_forward_heldout"][...], axis=0)
        self.assertEqual(list(names["means"]), [0, 3000])
        for step, mean in expected.items():
            self.assertAlmostEqual(names["means"][step], mean)
        self.assertRegex(printed, rf"from their best source: {expected[3000]:.3f}; random projections: 0\.\d+\n")
        lines = {line.get_label(): line.get_ydata() for line in names["axes"].get_lines()}
        self.assertEqual(list(lines), ["pairwise", "forward", "random projections"])
        np.testing.assert_allclose(lines["forward"], curve)

    def test_is_kept_without_outputs(self):
        self.assertEqual(NOTEBOOK["nbformat"], 4)
        for cell in CELLS:
            self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))


if __name__ == "__main__":
    main()
