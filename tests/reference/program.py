"""Runs the program as a user does: under mpiexec, in a folder of its own. For the tests of tests/app.

A test file is called with the program and mpiexec: `HEADSPAN MPIEXEC [unittest's arguments]`.
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
GOLDEN = TESTS / "data" / "golden"
TINY_OLMO2 = TESTS.parent / "checkpoints" / "tiny-olmo2"


class StudyTest(unittest.TestCase):
    """A class of tests that share a folder, which is removed afterwards."""

    program, mpiexec = "", ""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_study_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)

    @classmethod
    def run_program(cls, ranks, *arguments):
        """Returns the finished process, whatever its exit code."""
        command = [cls.mpiexec, "-n", str(ranks), cls.program, *map(str, arguments)]
        # mpiexec would wait two seconds for a single rank that has ended with an error
        environment = os.environ | {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)

    @classmethod
    def study(cls, ranks, output, keys):
        """Returns the results of a study with `keys`: {"section.key": value}; `output` is the name of the folder."""
        directory = cls.folder / output
        keys = {**keys, "output.directory": directory}
        run = cls.run_program(ranks, "study", *(f"--{key}={value}" for key, value in keys.items()))
        last = run.stdout.splitlines()[-1:] or [""]
        if run.returncode != 0 or not last[0].startswith("status=done"):
            raise AssertionError(f"exit code {run.returncode}: {run.args}\n{run.stdout}{run.stderr}")
        return sorted(p for p in directory.rglob("*.h5") if not p.name.endswith(".gram.h5"))

    @classmethod
    def write_activations(cls, name, z, layer, head, **more):
        """z: [token, head, coordinate]. more: the dataset `sequence`, the attributes `stream`, `hidden_size`."""
        path = cls.folder / name
        with h5py.File(path, "w") as file:
            file["activations"], file["layer"], file["head"] = z, layer, head
            for key, value in more.items():
                if key == "sequence":
                    file[key] = value
                else:
                    file.attrs[key] = value
        return path

    @classmethod
    def write_tokens(cls, name, ids):
        path = cls.folder / name
        np.asarray(ids, "<u2").tofile(path)
        return path


def main():
    StudyTest.program, StudyTest.mpiexec = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
