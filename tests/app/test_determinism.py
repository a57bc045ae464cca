"""The same inputs on the same ranks give the same files, to the byte: only the date of a file differs, in its attributes
date_created and history, and HDF5's checksum of these. HEADSPAN_REPEATS: how often each command runs [2].

usage: test_determinism.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import write_safetensors
from program import GOLDEN, StudyTest, main

REPEATS = int(os.environ.get("HEADSPAN_REPEATS", "2"))
DATED = ("date_created", "history")
CHECKSUM = 4  # bytes, of the part of the file that holds the attributes of "/"


def without_dates(path):
    """Returns the bytes of a file, zeros in place of the values of its dated attributes."""
    data = path.read_bytes()
    if data[:8] == b"\x89HDF\r\n\x1a\n":
        with h5py.File(path) as file:
            for name in DATED:
                data = data.replace(bytes(file.attrs[name]), bytes(len(file.attrs[name])))
    return np.frombuffer(data, "u1")


class Determinism(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = np.random.default_rng(5)
        cls.tokens = {"model.path": GOLDEN / "olmo2_gqa", "model.dtype": "float32", "tokens.sequence_length": 40,
                      "tokens.path": cls.write_tokens("ids.bin", random.integers(3, 60, 1500))}
        cls.kv = cls.folder / "kv.safetensors"
        write_safetensors(cls.kv, {stream: random.normal(size=(2, 2, 300, 8)).astype("<f4") for stream in "kv"})

    def assert_same_files(self, ranks, command, keys, outputs):
        """Runs a command again and again; `outputs` are its files, in the folder of the test."""
        first = None
        for _ in range(REPEATS):
            for output in outputs:  # what is there would not be made again
                for path in (self.folder / output, self.folder / f"{output}.done"):
                    path.unlink(missing_ok=True)
            run = self.run_program(ranks, *command.split(), *(f"--{key}={value}" for key, value in keys.items()))
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            found = {output: without_dates(self.folder / output) for output in outputs}
            first = first or found
            for output, ours in found.items():
                self.assertEqual(len(ours), len(first[output]), output)
                places = np.flatnonzero(ours != first[output])
                self.assertLessEqual(len(places) and places[-1] - places[0] + 1, CHECKSUM, f"{command}: {output}: {places}")

    def test_on_every_number_of_ranks(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.assert_same_files(ranks, "study", {
                    **self.tokens, "output.directory": self.folder, "output.save_gram": "true", "predict.streams": "k,q,v,z",
                    "predict.references": 3, "cross.streams": "q:k", "predict.precision": "float32" if ranks == 2 else "auto",
                }, ["olmo2_gqa/olmo2_gqa.h5", "olmo2_gqa/olmo2_gqa.gram.h5"])
                self.assert_same_files(ranks, "calibrate", {**self.tokens, "compress.plan": self.folder / "plan.h5"}, ["plan.h5"])
                codec = {"archive.codec": self.folder / "codec.h5"}
                self.assert_same_files(ranks, "archive calibrate", {**self.tokens, **codec}, ["codec.h5"])
                self.assert_same_files(ranks, "archive encode", {
                    **codec, "archive.input": self.kv, "archive.bits": 2, "archive.output": self.folder / "kv.hsa"}, ["kv.hsa"])


if __name__ == "__main__":
    main()
