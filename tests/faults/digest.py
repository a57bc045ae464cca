"""Prints a digest of what a study, a calibration and a codec of fixed inputs hold, beside the processor that computed it, as a row of a
table. Processors with the same instructions and kernels of BLAS must give the same digest: the exit code is 1 if two rows disagree.

usage: digest.py HEADSPAN MPIEXEC [EMULATED...]

EMULATED: processors that QEMU emulates, a row each; `qemu-x86_64 -cpu help` lists them.
"""
import hashlib
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest

RANKS = (1, 2, 4)


class Digest(StudyTest):
    @classmethod
    def of_files(cls):
        """Returns the digest of all datasets that the commands write on each number of ranks."""
        cls.setUpClass()
        tokens = {"model.path": GOLDEN / "olmo2_gqa", "model.dtype": "float32", "tokens.sequence_length": 40,
                  "tokens.path": cls.write_tokens("ids.bin", np.arange(1500) * 17 % 57 + 3)}
        digest = hashlib.sha256()
        for ranks in RANKS:
            out = cls.folder / str(ranks)
            commands = {"study": {"output.directory": out, "output.save_gram": "true", "predict.streams": "k,q,v,z",
                                  "predict.references": 3, "predict.precision": "split"},
                        "calibrate": {"compress.plan": out / "plan.h5"}, "archive calibrate": {"archive.codec": out / "codec.h5"}}
            for command, keys in commands.items():
                run = cls.run_program(ranks, *command.split(), *(f"--{key}={value}" for key, value in {**tokens, **keys}.items()))
                assert run.returncode == 0, run.stderr
            for path in sorted(out.rglob("*.h5")):
                with h5py.File(path) as file:
                    names = []
                    file.visititems(lambda name, item, names=names: names.append(name) if isinstance(item, h5py.Dataset) else None)
                    for name in sorted(names):
                        values = np.asarray(file[name][...])
                        held = repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
                        digest.update(f"{path.name} {name} ".encode() + held)
        cls.doClassCleanups()
        return digest.hexdigest()[:16]


def write_emulator(path, processor, program):
    """Writes a program that runs another one on an emulated processor, and returns its path."""
    path.write_text(f'#!/bin/sh\nexec qemu-x86_64 -cpu {shlex.quote(processor)} {shlex.quote(program)} "$@"\n')
    path.chmod(0o755)
    return str(path)


def row(processor):
    """Returns what the table says of the processor on which the program of Digest runs."""
    told = subprocess.run([Digest.program, "--version"], capture_output=True, text=True, check=True).stdout
    blas, instructions = re.search(r"^(OpenBLAS.*)$", told, re.MULTILINE)[1], re.search(r"^instructions: (.*)$", told, re.MULTILINE)[1]
    return processor, instructions, blas, Digest.of_files()


def main():
    program = str(Path(sys.argv[1]).resolve())
    Digest.program, Digest.mpiexec = program, sys.argv[2]
    found = [row(re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1])]
    with tempfile.TemporaryDirectory(prefix="headspan_digest_") as folder:
        for i, processor in enumerate(sys.argv[3:]):
            Digest.program = write_emulator(Path(folder) / str(i), processor, program)
            found.append(row(f"{processor}, emulated"))
    print(f"| processor | instructions | BLAS | digest on {', '.join(map(str, RANKS))} ranks |\n| --- | --- | --- | --- |")
    for cells in found:
        print(f"| {' | '.join(cells)} |")
    digests = {}
    for _, instructions, blas, digest in found:
        digests.setdefault((instructions, blas), set()).add(digest)
    return int(any(len(of_kind) > 1 for of_kind in digests.values()))


if __name__ == "__main__":
    sys.exit(main())
