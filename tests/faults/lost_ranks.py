"""A rank is lost at a random instant: it is killed, it is stopped, or an allocation fails there and throws. The job ends soon, the
cause is named once, no process stays, every file that is there is complete, and the same command then finishes with the files of
an undisturbed run. Prints a row of a table for each fault and command.

usage: lost_ranks.py HEADSPAN MPIEXEC FAILING_NEW KILLS [COMMAND...]     MPIEXEC: or srun, under the tests' Slurm, on two nodes
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slurm"))
from cluster import SlurmTest
from program import GOLDEN
from test_determinism import without_dates

RANKS = 4
SECONDS_TO_END = 30


class Fault(NamedTuple):
    name: str
    signal: int  # to one of the ranks
    told: str    # what the log says once
    keys: tuple = ()


FAULTS = [Fault("is killed", signal.SIGKILL, r"exited on signal 9|signal 9 \(Killed\)|Killed \(signal 9\)|task \d: Killed"),
          Fault("is stopped", signal.SIGSTOP, r"headspan: rank \d: rank \d on \S+ has given no sign of life for 2 s",
                ("--run.heartbeat_seconds=2",)),
          Fault("runs out of memory", signal.SIGRTMIN + 1, r"headspan: (rank \d: )?(out of memory|.*bad_alloc.*)")]
TOKENS = {"model.path": GOLDEN / "olmo2_mha", "model.dtype": "float32", "tokens.path": "ids.bin", "tokens.sequence_length": 60,
          "tokens.limit": 40000}
COMMANDS = {
    "study": {**TOKENS, "predict.references": 2, "output.directory": "out", "output.save_gram": "true", "run.save_minutes": 0.002},
    "calibrate": {**TOKENS, "compress.plan": "out/plan.h5", "tokens.limit": 8000},
    "evaluate": {"model.path": GOLDEN / "olmo2_mha", "model.dtype": "float32", "tokens.sequence_length": 60, "tokens.limit": 20000,
                 "evaluate.plan": "plan.h5", "evaluate.texts": "ids.bin", "evaluate.summary": "out/summary.json"},
    "archive calibrate": {**TOKENS, "archive.codec": "out/codec.h5", "tokens.limit": 8000, "archive.effort": "quick"},
}


def read(item):
    if isinstance(item, h5py.Dataset):
        item[...]


def check_files(out):
    """Every file with a final name is whole; a .done is that of its file, or of the one before it."""
    for path in [*out.rglob("*.h5"), *out.rglob("*.state")]:
        with h5py.File(path) as file:  # throws where it is partial
            file.visititems(lambda _, item: read(item))
    for done in out.rglob("*.done"):
        assert done.with_suffix("").exists(), f"{done} without its file"


def content(path):
    """Returns the bytes of a file that are the same in every run."""
    if path.suffix != ".json":
        return without_dates(path)
    return np.frombuffer(json.dumps(json.loads(path.read_text())["texts"]).encode(), "u1")  # beside speeds


def wait_for_ranks(run, log):
    """Waits until all ranks have said where they run, or the job is over."""
    while run.poll() is None and log.read_text().count(" headspan rank rank=") < RANKS:
        time.sleep(0.01)


class Job:
    def __init__(self, program, launcher, name, folder, failing_new):
        self.folder, self.slowest = folder, 0.0
        self.environment = {**os.environ, "LD_PRELOAD": failing_new}
        keys = [f"--{key}={value}" for key, value in COMMANDS[name].items()]
        self.program = program
        self.command = [*launcher, "-n", str(RANKS), program, *name.split(), "--verbose", *keys]

    def start(self, log, *keys):
        (self.folder / "out").mkdir(exist_ok=True)
        return subprocess.Popen([*self.command, *keys], stdout=log, stderr=log, cwd=self.folder, env=self.environment)

    def finish(self, *keys):
        """Runs to the end. Returns what was written, without dates, and removes it."""
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            code = self.start(log, *keys).wait()
        assert code == 0, (self.folder / "log").read_text()
        out = self.folder / "out"
        files = {str(path.relative_to(out)): content(path) for path in sorted(out.rglob("*"))
                 if path.is_file() and path.suffix != ".done"}
        shutil.rmtree(out)
        return files

    def left(self):
        """Returns {process that works in the folder: its program}."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd") == str(self.folder) and (process / "stat").read_text().split()[2] != "Z":
                    found[int(process.name)] = os.readlink(process / "exe")
            except OSError:
                continue
        return found

    def ranks(self):
        """Returns the processes of the ranks that have started."""
        return [process for process, program in self.left().items() if program == self.program]

    def lose(self, fault, chance, seconds):
        """Runs, and loses a rank at some time. Returns a violation, "" if there is none, or None if the run was over before."""
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            run = self.start(log, *fault.keys)
            if fault.signal != signal.SIGKILL:  # watched, and its own preloaded library, from here on
                wait_for_ranks(run, self.folder / "log")
                seconds /= 2  # half of the time it starts
            time.sleep(chance.uniform(0, seconds))
            ranks = self.ranks()
            if len(ranks) < RANKS:
                run.wait()
                return None
            lost = time.monotonic()
            os.kill(chance.choice(ranks), fault.signal)
            try:
                code = run.wait(timeout=SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                for rank in ranks:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rank, signal.SIGKILL)
                run.wait()
                told = (self.folder / "log").read_text()
                if fault.signal == signal.SIGSTOP and "status=done" in told:  # after its work: only the launcher waits for it
                    return None
                return f"goes on after {SECONDS_TO_END} s: {told}"
        told = (self.folder / "log").read_text()
        if code == 0:
            return None if "status=done" in told else "ends with exit code 0 and is not done"
        self.slowest = max(self.slowest, time.monotonic() - lost)
        if len(re.findall(fault.told, told.partition("Job step aborted")[0])) != 1:  # after which srun names those it ends itself
            return f"the lost rank is not named once: {told}"
        time.sleep(0.1)
        if self.left():
            return f"processes {self.left()} go on"
        try:
            check_files(self.folder / "out")
        except (AssertionError, OSError) as error:
            return f"a file is partial: {error}"
        return ""


def same(ours, theirs):
    """Four bytes may differ: HDF5's checksum of the dates."""
    return ours.keys() == theirs.keys() and all(
        len(ours[name]) == len(theirs[name]) and np.count_nonzero(ours[name] != theirs[name]) <= 4 for name in ours)


def launched_with(mpiexec):
    """Returns the words of the launcher, and starts a Slurm for srun."""
    if mpiexec != "srun":
        return [mpiexec]
    SlurmTest.start_cluster(24 * 3600)
    os.environ.update(SlurmTest.environment)
    return [mpiexec, "--mpi=pmix", "--wait=10", "--nodes=2"]


def prepare(program, folder):
    np.random.default_rng(6).integers(0, 64, 40000).astype("<u2").tofile(folder / "ids.bin")
    keys = {**COMMANDS["calibrate"], "compress.plan": "plan.h5", "compress.effort": "quick"}
    subprocess.run([program, "calibrate", *(f"--{key}={value}" for key, value in keys.items())], cwd=folder, check=True,
                   capture_output=True)


def test(fault, job, kills, chance):
    """Returns how often a rank was lost, and the violations."""
    began = time.monotonic()
    expected = job.finish(*fault.keys)
    seconds = time.monotonic() - began
    violations, met, tries = [], 0, 0
    while met < kills and tries < 5 * kills:
        tries += 1
        found = job.lose(fault, chance, seconds)
        if found is None:  # it has finished
            shutil.rmtree(job.folder / "out")
        met += found is not None
        violations += [found] if found else []
        if met % 5 == 4 and found is not None and not same(job.finish(*fault.keys), expected):
            violations.append("the command that follows writes other files")
    if not same(job.finish(*fault.keys), expected):
        violations.append("the last command writes other files")
    return met, violations


def main():
    program, failing_new, kills = os.path.realpath(sys.argv[1]), os.path.abspath(sys.argv[3]), int(sys.argv[4])
    launcher = launched_with(sys.argv[2])
    os.environ["OMPI_MCA_odls_base_sigkill_timeout"] = "1"
    chance, status = random.Random(7), 0
    print("| fault | command | instants | violations | slowest end |\n| --- | --- | --- | --- | --- |")
    for name in sys.argv[5:] or list(COMMANDS):
        with tempfile.TemporaryDirectory(prefix="headspan_lost_") as temporary:
            folder = Path(temporary).resolve()
            prepare(program, folder)
            job = Job(program, launcher, name, folder, failing_new)
            for fault in FAULTS:
                job.slowest = 0.0
                met, violations = test(fault, job, kills, chance)
                print(f"| a rank of {RANKS} {fault.name} | {name} | {met} | {len(violations)} | {job.slowest:.1f} s |", flush=True)
                for violation in violations:
                    print(violation, file=sys.stderr)
                    status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
