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
COMPUTING = ("forward", "gram", "overlap", "pairs", "heads", "selection", "ceiling")
KEYS = {"model.manifest": "rows.tsv", "model.dtype": "float64", "tokens.path": "ids.bin", "tokens.sequence_length": 60,
        "tokens.limit": TOKENS, "predict.references": 2, "output.directory": "out"}


def prepare(folder, units):
    np.random.default_rng(6).integers(0, 64, TOKENS).astype("<u2").tofile(folder / "ids.bin")
    rows = "".join(f"unit{number}\t{number}\t0\t{GOLDEN / MODELS[number % len(MODELS)]}\n" for number in range(units))
    (folder / "rows.tsv").write_text("name\tstep\ttokens\tpath\n" + rows)


def status(process):
    """Returns (resident KiB, shared KiB, open files) of a process; None if it has ended."""
    try:
        told = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE))
        return int(told["VmRSS"]), int(told["RssShmem"]), len(os.listdir(f"/proc/{process}/fd"))
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
        """Runs the study. Returns samples [instant, rank, (resident, shared, open files)] after the first unit, and what it printed."""
        samples = []
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            run = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)
            while run.poll() is None:
                time.sleep(0.1)
                if " published unit=" in (self.folder / "log").read_text():
                    sample = [status(process) for process in self.processes(run)]
                    samples += [sample] if len(sample) == self.ranks and None not in sample else []
        told = (self.folder / "log").read_text()
        assert run.returncode == 0, told
        return np.array(samples, float), told

    def seconds_of_another(self):
        """Returns how long a study takes that finds everything finished."""
        begin = time.monotonic()
        told = subprocess.run(self.command, cwd=self.folder, check=True, capture_output=True, text=True).stdout
        assert "status=done units=0" in told, told
        return time.monotonic() - begin


def growth(values):
    """Returns by what part a straight line through the last half of the values rises."""
    last = values[len(values) // 2:]
    slope, _ = np.polyfit(np.arange(len(last)), last, 1)
    return slope * len(last) / max(last.mean(), 1)


def gained(values):
    """Returns how much higher the least of the last half is than that of the first."""
    half = len(values) // 2
    return max(0, values[half:].min() - values[:half].min())


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
    each = range(study.ranks)
    resident, shared, files = (samples[:, :, column] for column in range(3))
    grows = max(growth(resident[:, rank]) for rank in each)
    more_shared, more_files = (max(gained(column[:, rank]) for rank in each) for column in (shared, files))
    violations = (grows > GROWTH) + (more_shared > GROWTH * resident.max()) + (more_files > 0)
    times = [unit, sum(seconds[name] for name in COMPUTING), seconds["save"] + seconds["publish"],
             unit - sum(seconds.values()), study.seconds_of_another() / units]
    return violations, [f"{resident.max() / 1024:.1f} MiB", f"{100 * grows:+.2f} %", f"{more_files:.0f}", f"{more_shared / 1024:.1f} MiB",
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
