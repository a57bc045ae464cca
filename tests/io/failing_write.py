"""A write that fails on one rank during a collective call ends the whole job with one message, and leaves no file.

usage: failing_write.py FAILING_WRITE MPIEXEC RANKS [blocked]    blocked: with an MPI_Abort that does not return
"""
import os
import re
import subprocess
import sys
import tempfile


def main():
    program, mpiexec, ranks, *how = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file.h5")
        run = subprocess.run([mpiexec, "-n", ranks, program, path, *how], capture_output=True, text=True, timeout=30)
        told = [line for line in run.stderr.splitlines() if line.startswith("headspan: ")]
        assert run.returncode == 1, run
        assert len(told) == 1 and re.match(rf"headspan: rank \d: {path}: values: HDF5", told[0]), run.stderr
        assert not os.listdir(folder), os.listdir(folder)
        print(told[0])


main()
