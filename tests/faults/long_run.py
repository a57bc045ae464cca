"""One study of many units, undisturbed: its memory, its open files and its shared memory do not grow. Prints what it measured, and how
long a unit takes besides computing.

usage: long_run.py HEADSPAN MPIEXEC UNITS RANKS [RANKS...]
"""
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN

MODELS = ("olmo2_mha", "llama_gqa", "qwen3")
TOKENS = 20_000
GROWTH = 0.02  # of memory over the last half, at most
WINDOWS = 20
COMPUTING = ("forward", "gram", "overlap", "pairs", "heads", "selection", "ceiling")
KEYS = {"model.manifest": "rows.tsv", "model.dtype": "float64", "tokens.path": "ids.bin", "tokens.sequence_length": 60,
        "tokens.limit": TOKENS, "predict.references": 2, "output.directory": "out"}


def prepare(folder, units):
    np.random.default_rng(6).integers(0, 64, TOKENS).astype("<u2").tofile(folder / "ids.bin")
    rows = "".join(f"unit{number}\t{number}\t0\t{GOLDEN / MODELS[number % len(MODELS)]}\n" for number in range(units))
    (folder / "rows.tsv").write_text("name\tstep\ttokens\tpath\n" + rows)


def status(process):
    """Returns (the most resident KiB since it was last asked, shared KiB, {open files}) of a process; None if it has ended."""
    folder = Path(f"/proc/{process}")
    try:
        told = dict(re.findall(r"^(\w+):\s+(\d+) kB", (folder / "status").read_text(), re.MULTILINE))
        (folder / "clear_refs").write_text("5")  # VmHWM begins again
        files = {(file.name, os.readlink(file)) for file in (folder / "fd").iterdir()}
        return int(told["VmHWM"]), int(told["RssShmem"]), files
    except (KeyError, OSError):
        return None


class Study:
    def __init__(self, program, mpiexec, ranks, folder):
        self.ranks, self.folder = ranks, folder
        launcher = [mpiexec, "-n", str(ranks)] if ranks > 1 else []
        self.command = [*launcher, program, "study", *(f"--{key}={value}" for key, value in KEYS.items())]

    def processes(self, run):
        if self.ranks == 1:
            return [run.pid]
        return Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()

    def watch(self):
        """Runs the study. Returns samples [instant][rank] of status() after the first unit, and what it printed."""
        samples = []
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            run = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)
            while run.poll() is None:
                time.sleep(0.02)
                sample = [status(process) for process in self.processes(run)]
                told = (self.folder / "log").read_text()
                if " published unit=" in told and "status=done" not in told and len(sample) == self.ranks and None not in sample:
                    samples.append(sample)
        told = (self.folder / "log").read_text()
        assert run.returncode == 0, told
        return samples, told

    def seconds_of_another(self):
        """Returns how long a study takes that finds everything finished."""
        begin = time.monotonic()
        told = subprocess.run(self.command, cwd=self.folder, check=True, capture_output=True, text=True).stdout
        assert "status=done units=0" in told, told
        return time.monotonic() - begin


def over_time(samples):
    """Returns the most resident memory, the most shared memory and the number of files that were open all the time, in each of WINDOWS
    parts of a rank's samples. A part is some units long: what one of them opens and takes for itself does not count as growth."""
    parts = [samples[len(samples) * part // WINDOWS:len(samples) * (part + 1) // WINDOWS] for part in range(WINDOWS)]
    columns = [tuple(zip(*part, strict=True)) for part in parts]
    return tuple(np.array(values, float) for values in zip(
        *((max(resident), max(shared), len(set.intersection(*files))) for resident, shared, files in columns), strict=True))


def growth(values):
    """Returns by how much the last half of the values rises: the median slope between two of them, times their number."""
    last = values[len(values) // 2:]
    first, second = np.triu_indices(len(last), 1)
    return np.median((last[second] - last[first]) / (second - first)) * len(last)


def phases(told):
    """Returns {phase: the mean of its seconds over the units}."""
    lines = re.findall(r" headspan seconds unit=\S+ (.*)$", told, re.MULTILINE)
    units = [{name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", line)} for line in lines]
    return {name: np.mean([unit[name] for unit in units]) for name in units[0]}


def measure(study, units):
    """Runs the study, twice. Returns how many rules it broke and the cells of its row."""
    samples, told = study.watch()
    seconds = phases(told)
    unit = float(re.search(r"^status=done units=\d+ .* seconds=(\S+)", told, re.MULTILINE)[1]) / units
    ranks = [over_time([sample[rank] for sample in samples]) for rank in range(study.ranks)]
    most = max(resident.max() for resident, _, _ in ranks)
    grows, more_shared, more_files = (max(growth(rank[column]) for rank in ranks) for column in range(3))
    violations = (grows > GROWTH * most) + (more_shared > GROWTH * most) + (more_files >= 1)
    times = [unit, sum(seconds[name] for name in COMPUTING), seconds["save"] + seconds["publish"],
             unit - sum(seconds.values()), study.seconds_of_another() / units]
    return violations, [f"{most / 1024:.1f} MiB", f"{100 * grows / most:+.2f} %", f"{more_files:.0f}", f"{more_shared / 1024:.1f} MiB",
                        *(f"{1000 * time:.1f} ms" for time in times)]


def main():
    program, mpiexec, units = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    print("| study of | memory of a rank | it grows by | open files gained | shared memory gained | a unit takes | computing | "
          "saving and publishing | between units | if it is finished |\n" + "| --- " * 10 + "|")
    violations = 0
    for ranks in map(int, sys.argv[4:]):
        with tempfile.TemporaryDirectory(prefix="headspan_long_") as temporary:
            prepare(Path(temporary), units)
            found, cells = measure(Study(program, mpiexec, ranks, Path(temporary)), units)
        violations += found
        print(f"| {units} units on {ranks} rank{'s' * (ranks > 1)} | {' | '.join(cells)} |", flush=True)
    sys.exit(int(violations > 0))


if __name__ == "__main__":
    main()
