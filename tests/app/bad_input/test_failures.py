"""Failures during a run: a rank is killed or runs out of resources, or one of several units fails.

usage: test_failures.py HEADSPAN MPIEXEC [NAME]     NAME: only the checks whose name holds it
"""
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from harness import expect, options, outcome, run_all, snapshot
from samples import CONFIG, KEYS, Sample, Weights, random_weights

RANKS = 4
SECONDS = 30  # within which no rank is left waiting
SWEEP = KEYS | {"model.manifest": "manifest.tsv", "tokens.limit": 10**6}
del SWEEP["model.path"]


def long_sample(folder, **second):
    """Two units, the first of which runs for seconds. `second`: changes of the config of the other."""
    sample = Sample(folder)
    sample.write_tokens(np.random.default_rng(2).integers(2, 32, 600_000))
    sample.write_model("second", **second)
    sample.write_manifest("first\t0\t\tmodel", "second\t1\t\tsecond")
    return sample


class Running:
    """A study running on four ranks, from the moment the weights of its first unit are loaded."""

    def __init__(self, program, mpiexec, folder, keys=None):
        self.mark = f"HEADSPAN_TEST={os.getpid()}.{time.monotonic_ns()}"
        self.log = open(folder / "log", "w+", encoding="utf-8")
        environment = os.environ | dict([self.mark.split("=")])
        self.process = subprocess.Popen([mpiexec, "-n", str(RANKS), program, "study", *options(keys or SWEEP)], cwd=folder,
                                        env=environment, stderr=self.log, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while " headspan loaded unit=first" not in (folder / "log").read_text():
            expect(self.process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text())
            time.sleep(0.01)

    def ranks(self):
        """Returns {rank: process id} of the ranks that are still running."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                variables = (entry / "environ").read_text().split("\0") if entry.name.isdigit() else []
            except OSError:  # it ended meanwhile
                continue
            if self.mark in variables:
                found |= {int(v.split("=")[1]): int(entry.name) for v in variables if re.match("(OMPI_COMM_WORLD|PMI)_RANK=", v)}
        return found

    def end(self):
        """Waits for the end, after which no rank may be left."""
        start = time.monotonic()
        try:
            stdout = self.process.communicate(timeout=2 * SECONDS)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            for rank in self.ranks().values():
                os.kill(rank, signal.SIGKILL)
            stdout = self.process.communicate()[0]
        self.log.seek(0)
        found = outcome(self.process.returncode, stdout, self.log.read(), time.monotonic() - start)
        self.log.close()
        expect(not self.ranks(), f"ranks are left: {self.ranks()}", found)
        return found


def finished_files(folder):
    """Removes what a killed run leaves: a file that it had open, and its lock."""
    names = snapshot(folder / "out") if (folder / "out").exists() else {}
    return {name for name in names if ".tmp." not in name and not name.endswith(".lock")}


def one_rank_killed(program, mpiexec, folder):
    long_sample(folder)
    running = Running(program, mpiexec, folder)
    os.kill(running.ranks()[2], signal.SIGKILL)
    found = running.end()
    last_words = ("", "Please see the FAQ page for debugging suggestions")  # of headspan; of MPICH's launcher
    expect(found.code != 0 and found.last in last_words and found.seconds < SECONDS, f"{found.code} after {found.seconds} s", found)
    expect(not finished_files(folder), f"published: {finished_files(folder)}", found)


def one_rank_out_of_memory(program, mpiexec, folder):
    """The random embedding of the second model does not fit in what rank 2 has left."""
    long_sample(folder, vocab_size=1 << 20)
    running = Running(program, mpiexec, folder, SWEEP | {"model.init": "random", "tokens.dtype": "uint16"})
    victim = running.ranks()[2]
    used = int(Path(f"/proc/{victim}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(victim, resource.RLIMIT_AS, (used + (16 << 20), used + (16 << 20)))
    found = running.end()
    expect(found.code == 1 and found.seconds < SECONDS, f"{found.code} after {found.seconds} s", found)
    expect(len(found.errors) == 1 and re.fullmatch(r"rank 2: .*memory.*", found.errors[0]), str(found.errors), found)
    expect(not any("second" in name for name in finished_files(folder)), str(finished_files(folder)), found)


def one_rank_cannot_open_files(program, mpiexec, folder):
    """Otherwise the other ranks would wait in MPI_File_open when the result is written."""
    long_sample(folder)
    running = Running(program, mpiexec, folder, SWEEP | {"model.select": "first"})
    resource.prlimit(running.ranks()[2], resource.RLIMIT_NOFILE, (3, 3))
    found = running.end()
    expect(found.code == 1 and found.seconds < SECONDS, f"{found.code} after {found.seconds} s", found)
    expect(len(found.errors) == 1 and re.fullmatch(r"rank 2: .*Too many open files", found.errors[0]), str(found.errors), found)
    expect(finished_files(folder) == set(), str(finished_files(folder)), found)


def weights_cut_short_meanwhile(program, mpiexec, folder):
    """The failing unit is reported; the result of the other is there."""
    sample = long_sample(folder)
    running = Running(program, mpiexec, folder)
    os.truncate(sample.path("second") / "model.safetensors", 4000)
    found = running.end()
    expect(found.code == 2 and found.last == "", f"exit code {found.code}", found)
    expect(len(found.errors) == 1 and found.errors[0].startswith("second/model.safetensors: "), str(found.errors), found)
    expect({Path(name).name for name in finished_files(folder)} == {"first.h5", "first.h5.done"}, str(finished_files(folder)))


def failing_units_do_not_stop_the_others(program, mpiexec, folder):
    """Five units on two groups, of which two hold NaN: both are reported, three results are there, and a second run skips them."""
    sample = Sample(folder)
    for step in range(5):
        sample.write_model(f"step{step}")
        if step in (1, 3):
            weights = random_weights(CONFIG)
            weights["model.norm.weight"] = weights["model.layers.0.input_layernorm.weight"] = np.full(16, np.nan)
            Weights(weights).write(sample.path(f"step{step}") / "model.safetensors")
    sample.write_manifest(*(f"step{step}\t{step}\t\tstep{step}" for step in range(5)))
    keys = SWEEP | {"run.groups": 2}
    for skipped in (0, 3):
        run = subprocess.run([mpiexec, "-n", str(RANKS), program, "study", *options(keys)], cwd=folder, capture_output=True,
                             text=True, timeout=60, check=False)
        found = outcome(run.returncode, run.stdout, run.stderr, 0)
        expect(found.code == 2 and found.last == "", f"exit code {found.code}", found)
        expect(sorted(found.errors) == [f"step{step}/model.safetensors: model.layers.0.input_layernorm.weight: holds NaN or "
                                      "infinity; fetch or save the checkpoint again" for step in (1, 3)], str(found.errors))
        expect(f"skipped={skipped}" in found.stderr, "skipped units", found)
        expect({Path(name).name for name in finished_files(folder) if name.endswith(".h5")} ==
               {"step0.h5", "step2.h5", "step4.h5"}, str(finished_files(folder)))


def one_rank_sees_no_file(program, mpiexec, folder):
    """As on a node without the file system: rank 3 works in another folder, which lacks the job file or the tokens."""
    sample = Sample(folder)
    other = folder / "elsewhere"
    other.mkdir()
    (other / "model").symlink_to(sample.model)
    sample.path("job.ini").write_text("")
    for arguments, missing in ((["job.ini"], "job.ini"), ([], "tokens.bin")):
        command = [program, "study", *arguments, *options(KEYS)]
        run = subprocess.run([mpiexec, "-n", "3", *command, ":", "-n", "1", "-wdir", other, *command], cwd=folder,
                             capture_output=True, text=True, timeout=60, check=False)
        found = outcome(run.returncode, run.stdout, run.stderr, 0)
        expect(found.code == 2 and len(found.errors) == 1, str(found.errors), found)
        expect(found.errors[0].startswith(f"{missing}: cannot be opened: No such file"), found.errors[0])
        expect(not finished_files(folder), "nothing published")


CHECKS = [one_rank_killed, one_rank_out_of_memory, one_rank_cannot_open_files, weights_cut_short_meanwhile,
          failing_units_do_not_stop_the_others, one_rank_sees_no_file]


def main():
    program, mpiexec = sys.argv[1:3]
    wanted = sys.argv[3] if len(sys.argv) > 3 else ""
    return run_all([(check.__name__, lambda folder, check=check: check(program, mpiexec, folder)) for check in CHECKS
                    if wanted in check.__name__])


sys.exit(main())
