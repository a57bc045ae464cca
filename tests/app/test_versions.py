"""Files that earlier versions of headspan wrote (tests/data/versions) are read as they were meant, and files of a newer schema
are refused by name.

usage: test_versions.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import json
import shutil
import sys
import tarfile
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import read_safetensors
from program import GOLDEN, TESTS, StudyTest, main

VERSIONS = sorted((TESTS / "data" / "versions").glob("*.tar.xz"))
SCHEMAS = {"result.h5": "headspan_schema", "gram.h5": "headspan_schema", "plan.h5": "headspan_schema", "codec.h5": "headspan_codec"}


class Versions(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folders = []
        for path in VERSIONS:
            with tarfile.open(path) as archive:
                archive.extractall(cls.folder)
            cls.folders.append(cls.folder / path.name.removesuffix(".tar.xz"))

    def run_headspan(self, *arguments, code=0):
        run = self.run_program(1, *arguments)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def each(self, name):
        """Yields this file of every version that has it."""
        found = [folder / name for folder in self.folders if (folder / name).exists()]
        self.assertGreater(len(found), 0)
        for path in found:
            with self.subTest(version=path.parent.name):
                yield path

    def test_inspect(self):
        for name in (*SCHEMAS, "kv.hsa"):
            for path in self.each(name):
                self.assertRegex(self.run_headspan("inspect", path), r"schema +1\.\d+\b")

    def test_a_gram_gives_the_result_of_its_version(self):
        for path in self.each("gram.h5"):
            output = self.folder / f"from-{path.parent.name}"
            self.run_headspan("study", f"--grams.paths={path}", f"--output.directory={output}")
            found, = (p for p in output.rglob("*.h5") if not p.name.endswith(".gram.h5"))
            with h5py.File(found) as ours, h5py.File(path.with_name("result.h5")) as theirs:
                for stream in "kqv":
                    for table in ("r2", "r2_heldout"):
                        np.testing.assert_allclose(ours[stream][table][...], theirs[stream][table][...], atol=1e-6)

    def test_a_plan_loses_what_its_version_said(self):
        for path in self.each("plan.h5"):
            summary = path.with_name("now.json")
            self.run_headspan("evaluate", f"--model.path={GOLDEN / 'olmo2_gqa'}", "--model.dtype=float32",
                              "--tokens.sequence_length=40", f"--evaluate.plan={path}",
                              f"--evaluate.texts={path.with_name('tokens.bin')}", f"--evaluate.summary={summary}")
            ours, theirs = (json.loads(p.read_text())["texts"]["tokens"] for p in (summary, path.with_name("summary.json")))
            for field in ("loss", "full_loss"):
                self.assertAlmostEqual(ours[field], theirs[field], delta=1e-4)

    def test_an_archive(self):
        """Its values are those of its version, but for the rounding of coefficients, which decoders choose (src/io/README.md)."""
        for path in self.each("kv.hsa"):
            output = path.with_name("now.safetensors")
            self.run_headspan("archive", "decode", f"--archive.codec={path.with_name('codec.h5')}", f"--archive.input={path}",
                              f"--archive.output={output}")
            ours, theirs = read_safetensors(output), read_safetensors(path.with_name("decoded.safetensors"))
            for stream in "kv":
                self.assertLess(np.linalg.norm(ours[stream] - theirs[stream]), 0.02 * np.linalg.norm(theirs[stream]))

    def test_a_state(self):
        """It is resumed, or the run says why not; the result is that of its version."""
        for path in self.each("state.h5"):
            target = path.parent / "results" / "olmo2_gqa" / "olmo2_gqa.h5.state"
            target.parent.mkdir(parents=True)
            shutil.copy(path, target)
            shutil.copy(path.with_name("state.done"), f"{target}.done")
            shutil.copytree(GOLDEN / "olmo2_gqa", path.with_name("olmo2_gqa"))
            with contextlib.chdir(path.parent):  # jobs are the same if their words are
                told = self.run_headspan("study", "--model.path=olmo2_gqa", "--model.dtype=float32", "--tokens.path=tokens.bin",
                                         "--tokens.sequence_length=40", "--predict.streams=k", "--output.directory=results")
            self.assertRegex(told, "resumed unit=olmo2_gqa|olmo2_gqa starts anew: ")
            with h5py.File(target.with_suffix("")) as ours, h5py.File(path.with_name("result.h5")) as theirs:
                np.testing.assert_allclose(ours["k/r2"][...], theirs["k/r2"][...], atol=1e-6)

    def test_newer_schemas_are_refused(self):
        newest = self.folders[-1]
        for name, attribute in SCHEMAS.items():
            with self.subTest(name=name):
                newer = shutil.copy(newest / name, self.folder / f"newer-{name}")
                with h5py.File(newer, "r+") as file:
                    file.attrs[attribute] = np.bytes_("2.0")
                self.assertIn(f"{attribute} = 2.0: is not known; this headspan reads 1.x", self.run_headspan("inspect", newer, code=2))
        self.run_headspan("study", f"--grams.paths={self.folder / 'newer-gram.h5'}", f"--output.directory={self.folder / 'n'}", code=2)


if __name__ == "__main__":
    main()
