"""Two runs of the same job in the same folder: the second names the first, and does not touch its files.

usage: test_locks.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the checks whose name holds it
"""
import os
import re
import signal
import subprocess
import time

import numpy as np

from harness import expect, options, run_main
from samples import KEYS, Sample

SMALL = KEYS | {"predict.streams": "k", "overlap.enabled": "false", "ceiling.enabled": "false", "run.batch_tokens": 16}
AT_WORK = r"{}: job \S+ \(process \d+ on \S+, since \S+Z\) is at work on it; wait for its end, or end it"


def start(program, folder, arguments, lock):
    """Returns a run that has taken `lock`, and the process that holds it."""
    run = subprocess.Popen(program.command(arguments), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = next(folder.glob(lock), None)
        holder = found and re.search(r"^process \S+ (\d+) ", found.read_text(), re.MULTILINE)
        if holder:
            return run, int(holder[1])
        time.sleep(0.001)
    raise AssertionError(f"no lock: {run.communicate()}")


def sample_of(folder):
    sample = Sample(folder)
    sample.write_tokens(np.random.default_rng(2).integers(2, 32, 20000))
    return sample


def files(folder, output="out"):
    return sorted(p.name for p in (folder / output).rglob("*") if p.is_file())


def study_twice(program, folder):
    """The first is suspended while the second looks at its lock, and then finishes normally."""
    sample_of(folder)
    first, holder = start(program, folder, ["study", *options(SMALL)], "out/*/model.h5.lock")
    os.kill(holder, signal.SIGSTOP)
    try:
        path, = (folder / "out").rglob("model.h5.lock")
        (path.parent / "model.h5.tmp.open").write_bytes(b"of the first")
        second = program.study(folder, SMALL)
        left = files(folder)
    finally:
        os.kill(holder, signal.SIGCONT)
    printed = first.communicate(timeout=100)[1]
    expect(second.code == 1 and len(second.errors) == 1, f"exit code {second.code}, {second.errors}", second)
    expect(re.fullmatch("rank 0: " + AT_WORK.format(r"out/.+/model\.h5"), second.errors[0]), second.errors[0], second)
    expect("model.h5.tmp.open" in left, f"the second took {left}")
    expect(first.returncode == 0, f"the first: exit code {first.returncode}\n{printed}")
    expect(files(folder) == ["model.h5", "model.h5.done"], str(files(folder)))


def two_units_of_a_sweep(program, folder):
    """Runs of other units in the same folder, as in a Slurm array, do not affect each other."""
    sample = sample_of(folder)
    for name in ("step1", "step2"):
        sample.write_model(name)
    sample.write_manifest("step1\t1\t\tstep1", "step2\t2\t\tstep2")
    keys = {name: value for name, value in SMALL.items() if name != "model.path"} | {"model.manifest": "manifest.tsv"}
    first, holder = start(program, folder, ["study", *options(keys | {"model.select": "step1"})], "out/*/step1.h5.lock")
    os.kill(holder, signal.SIGSTOP)
    try:
        second = program.study(folder, keys | {"model.select": "step2"})
        both = program.study(folder, keys)
    finally:
        os.kill(holder, signal.SIGCONT)
    printed = first.communicate(timeout=100)[1]
    expect((first.returncode, second.code) == (0, 0), f"exit codes {first.returncode}, {second.code}\n{printed}", second)
    expect(both.code == 1 and len(both.errors) == 1 and "step1" in both.errors[0], str(both.errors), both)
    expect(files(folder) == ["step1.h5", "step1.h5.done", "step2.h5", "step2.h5.done"], str(files(folder)))


def a_killed_run_is_in_nobodys_way(program, folder):
    sample_of(folder)
    first, holder = start(program, folder, ["study", *options(SMALL)], "out/*/model.h5.lock")
    os.kill(holder, signal.SIGKILL)
    first.communicate(timeout=100)
    expect("model.h5.lock" in files(folder), f"left: {files(folder)}")
    run = program.study(folder, SMALL)
    expect(run.code == 0, f"exit code {run.code}", run)
    expect(files(folder) == ["model.h5", "model.h5.done"], str(files(folder)))


def a_run_killed_behind_its_result_is_tidied_up(program, folder):
    """The next run finds the result complete and removes lock and state, unless the run that made it is still finishing."""
    sample_of(folder)
    first, holder = start(program, folder, ["study", *options(SMALL)], "out/*/model.h5.lock")
    lock, = (folder / "out").rglob("model.h5.lock")
    of_the_first = lock.read_text()
    expect(first.wait(timeout=100) == 0, f"exit code {first.returncode}")
    first.communicate()
    with subprocess.Popen(["sleep", "100"]) as alive:
        stat = open(f"/proc/{alive.pid}/stat", encoding="utf-8").read().rsplit(")", 1)[1].split()
        of_the_living = re.sub(rf" {holder} \d+ ", f" {alive.pid} {stat[19]} ", of_the_first)
        for text, left in ((of_the_living, ["model.h5.lock", "model.h5.state"]), (of_the_first, [])):
            lock.write_text(text)
            lock.with_suffix(".state").write_bytes(b"of the first")
            run = program.study(folder, SMALL)
            expect(run.code == 0, f"exit code {run.code}", run)
            expect(files(folder) == ["model.h5", "model.h5.done", *left], f"{files(folder)}, lock {text}")
        alive.kill()


def calibrate_and_evaluate_twice(program, folder):
    sample = sample_of(folder)
    sample.write_lines("requests.jsonl", *({"id": str(i), "context": [2, 3], "continuation": [4]} for i in range(50)))
    calibrate = {"model.path": "model", "tokens.path": "tokens.bin", "compress.plan": "out/plan.h5", "compress.stored": 0.5,
                 "tokens.sequence_length": 16, "run.batch_tokens": 16}
    evaluate = {"model.path": "model", "evaluate.requests": "requests.jsonl", "evaluate.answers": "out/answers.jsonl",
                "evaluate.cache": "full", "evaluate.batch": 1}
    for command, keys, made in (("calibrate", calibrate, "plan.h5"), ("evaluate", evaluate, "answers.jsonl")):
        first, holder = start(program, folder, [command, *options(keys)], f"out/{made}.lock")
        os.kill(holder, signal.SIGSTOP)
        try:
            second = program.run(folder, [command, *options(keys)])
        finally:
            os.kill(holder, signal.SIGCONT)
        printed = first.communicate(timeout=100)[1]
        expect(second.code == 1 and len(second.errors) == 1, f"exit code {second.code}, {second.errors}", second)
        expect(re.fullmatch("rank 0: " + AT_WORK.format(f"out/{made}"), second.errors[0]), second.errors[0], second)
        expect(first.returncode == 0, f"the first: exit code {first.returncode}\n{printed}")
    expect(files(folder) == ["answers.jsonl", "plan.h5", "plan.h5.done"], str(files(folder)))


def a_signal_is_not_kept_waiting(program, folder):
    """A signal comes while the run checks whether another one, on another machine, is alive."""
    sample = sample_of(folder)
    sample.write_lines("requests.jsonl", {"id": "0", "context": [2, 3], "continuation": [4]})
    runs = {"study": (SMALL | {"output.directory": "out"}, None, 3, "0 of 1 units are done, nothing had to be saved; "),
            "calibrate": ({"model.path": "model", "tokens.path": "tokens.bin", "compress.plan": "out/plan.h5",
                           "compress.stored": 0.5, "tokens.sequence_length": 16}, "out/plan.h5.lock", 1, "begins anew"),
            "evaluate": ({"model.path": "model", "evaluate.requests": "requests.jsonl", "evaluate.answers": "out/a.jsonl",
                          "evaluate.cache": "full"}, "out/a.jsonl.lock", 1, "nothing of this run is kept; ")}
    for command, (keys, lock, code, words) in runs.items():
        if lock is None:
            made = program.study(folder, keys)
            expect(made.code == 0, f"exit code {made.code}", made)
            result, = (folder / "out").rglob("model.h5")
            result.unlink()
            lock = f"{result.relative_to(folder)}.lock"
        (folder / lock).write_text("job_id 7\nsince 2026-01-01T00:00:00Z\nprocess n01 4711 99 0-0 pid:[1]\n")
        run = subprocess.Popen(program.command([command, *options(keys)]), cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        for line in run.stderr:
            if "looking for up to 120 s whether that still runs" in line:
                break
        begin = time.monotonic()
        run.send_signal(signal.SIGTERM if program.ranks == 1 else signal.SIGUSR1)  # mpirun passes that on, and waits
        printed = run.communicate(timeout=100)[1]
        expect(time.monotonic() - begin < 20, f"{command} stopped after {time.monotonic() - begin:.0f} s")
        expect("stopped by a signal" in printed and words in printed, f"{command} says {printed}")
        expect(run.returncode == code, f"{command}: exit code {run.returncode}\n{printed}")
        expect((folder / lock).exists(), f"{command} took the lock of a run that may live")


CHECKS = [study_twice, a_signal_is_not_kept_waiting, two_units_of_a_sweep, a_killed_run_is_in_nobodys_way,
          a_run_killed_behind_its_result_is_tidied_up, calibrate_and_evaluate_twice]


run_main((check.__name__, check) for check in CHECKS)
