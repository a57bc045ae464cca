"""src/io/README.md names everything in the files that it describes: each group, dataset and attribute of a result, of
Grams and of two plans that the program writes is in the section of its kind.

usage: test_formats.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import re
import sys
from pathlib import Path

import h5py

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import TESTS, TINY_OLMO2, StudyTest, main

PAGE = TESTS.parent / "src" / "io" / "README.md"
# Attributes of HDF5's dimension scales and of CF, which every reader of netCDF-4 knows.
NETCDF = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_FillValue", "_Netcdf4Dimid", "_Netcdf4Coordinates",
          "_NCProperties", "coordinates", "long_name", "units", "flag_masks", "flag_meanings"}
LAYER = re.compile(r"^\d+$")


def section(title):
    """Returns the words in backticks of one section, with paths split."""
    text = PAGE.read_text()
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    return {word for code in re.findall(r"`([^`\n]+)`", found) for word in re.split(r"[/, ]+", code)}


def names(path):
    """Returns the names of all objects and attributes of an HDF5 file, except numbers of layers."""
    with h5py.File(path) as file:
        found = set(file.attrs)

        def visit(name, thing):
            found.add(name.split("/")[-1])
            found.update(thing.attrs)
        file.visititems(visit)
    return {name for name in found - NETCDF if not LAYER.match(name)}


class Formats(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = {"model.path": TINY_OLMO2 / "step30", "tokens.path": TINY_OLMO2 / "tokens" / "docs.fit.bin",
                     "tokens.sequence_length": 128, "tokens.limit": 3000}
        cls.result, = cls.study(1, "results", {**cls.model, "tokens.skip_first": 4, "output.save_gram": "true",
                                               "ceiling.scope": "both", "attention.scores": "true",
                                               "predict.similarity": "cka,cca,procrustes",
                                               "cross.streams": "q:k"})

    def calibrate(self, name, **keys):
        plan = self.folder / name
        words = {**self.model, "compress.plan": plan, **{f"compress.{key}": value for key, value in keys.items()}}
        run = self.run_program(1, "calibrate", *(f"--{key}={value}" for key, value in words.items()))
        self.assertEqual(run.returncode, 0, run.stderr)
        return plan

    def test_result(self):
        self.assertEqual(names(self.result) - section("Results"), set())

    def test_grams(self):
        found = names(self.result.with_suffix(".gram.h5")) - section("Grams")
        self.assertEqual(found - section("Results"), set())

    def test_plans(self):
        for algorithm in ("latent", "headspan"):
            with self.subTest(algorithm=algorithm):
                plan = self.calibrate(f"{algorithm}.h5", algorithm=algorithm, stored=0.5)
                self.assertEqual(names(plan) - section("Plans"), set())

    def test_summary(self):
        summary, plan = self.folder / "summary.json", self.calibrate("quantise.h5", algorithm="quantise", bits=8)
        run = self.run_program(1, "evaluate", f"--model.path={self.model['model.path']}", f"--evaluate.plan={plan}",
                               f"--evaluate.texts={self.model['tokens.path']}", "--tokens.sequence_length=128",
                               "--tokens.limit=300", f"--evaluate.summary={summary}")
        self.assertEqual(run.returncode, 0, run.stderr)
        told = json.loads(summary.read_text())
        text, = told["texts"].values()
        found = set(told) | set(text) | set(told["bytes_per_token"]) | set(told["tokens_per_second"])
        self.assertEqual(found - section("Summaries"), set())


if __name__ == "__main__":
    main()
