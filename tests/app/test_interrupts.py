"""A small study is interrupted many times, at random times by a random signal. No partial file ever has a final name,
the study can always be continued, and its results are always those of an undisturbed one. If the signal leaves it time,
no unfinished file is left, and no process crashes.

usage: test_interrupts.py HEADSPAN MPIEXEC INTERRUPTS RANKS
"""
import hashlib
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

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from compare import datasets, differences
from program import GOLDEN

DONE, MPIRUN_ENDED, STOPPED = 0, 1, 3
MPIRUN_CRASHED = -signal.SIGSEGV  # Open MPI 4.1.4's own, now and then when a signal meets its start or its end
# mpirun takes its ranks twice these seconds to end on SIGINT and SIGTERM: once before it passes SIGTERM on, once before it
# kills. It ends at once on SIGKILL, and is spared that: its ranks would go on for an instant.
PATIENCE = "1"
SIGNALS = {True: [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL],
           False: [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]}
TOKENS_ALONE = 6000  # where a signal reaches the ranks at once: without mpirun, and under srun
FEWEST_TOKENS, MOST_TOKENS = 120000, 960000  # under mpirun
LEAST_SECONDS = 3.0  # of a study under mpirun: a signal reaches its ranks PATIENCE later
MANY = 25  # interrupts of which each signal meets some run at work
CRASH = re.compile(r"corrupted|malloc\(\)|free\(\)|chunk|Process received signal|Assertion|terminate called")


def command(launcher, program, folder, output, tokens):
    """Returns the command of a study of so many tokens."""
    keys = {"model.manifest": folder / "rows.tsv", "tokens.path": folder / "ids.bin", "tokens.sequence_length": 60,
            "tokens.limit": tokens, "model.dtype": "float32", "run.batch_tokens": 60, "predict.references": 2,
            "run.save_minutes": 0.002, "output.directory": folder / output}
    return [*launcher, program, "study", *(f"--{key}={value}" for key, value in keys.items())]


def prepare(folder):
    np.random.default_rng(6).integers(0, 64, MOST_TOKENS).astype("<u2").tofile(folder / "ids.bin")
    rows = "".join(f"{name}\t0\t0\t{GOLDEN / name}\n" for name in ("olmo2_mha", "llama_gqa"))
    (folder / "rows.tsv").write_text("name\tstep\ttokens\tpath\n" + rows)


def check_files(output):
    """Every file with a .done matches it; every file with a final name that opens is complete."""
    for done in output.rglob("*.done"):
        path = done.with_suffix("")
        says = dict(line.split(" ", 1) for line in done.read_text().splitlines())
        assert path.exists(), f"{done} without its file"
        if hashlib.sha256(path.read_bytes()).hexdigest() != says["sha256"]:  # a newer one, its .done not yet there
            with h5py.File(path) as file:
                assert "identity" in file.attrs, path
    for path in [*output.rglob("*.h5"), *output.rglob("*.state")]:
        with h5py.File(path) as file:  # throws where it is partial
            assert "identity" in file.attrs, path


def unfinished_files(folder):
    return {str(path) for path in folder.rglob("*.tmp.*")}


def told_by_ranks(told, mpirun):
    """Returns the output without the lines in which mpirun, the process of this number, tells of its own crash."""
    return re.sub(rf"^\[[^]:]*:{mpirun}\] .*\n", "", told, flags=re.MULTILINE)


def states(told):
    """Returns the unit whose state is saved at the end of a run, judged by its output: a list, empty if there is none.
    """
    state = []
    for event, unit in re.findall(r" (saved|published) unit=(\w+) ", told):
        state = [unit] if event == "saved" else []
    return state


def results(output):
    return {path.name: datasets(path) for path in sorted(output.rglob("*.h5"))}


def interrupt(run, chance, seconds, signals):
    """Lets the run continue for a random part of its time, then sends a random signal. Returns the signal and the exit
    code."""
    time.sleep(chance.uniform(0, 1.1 * seconds))
    sent = chance.choice(signals)
    run.send_signal(sent)
    return sent, run.wait(timeout=60)


def undisturbed_study(launcher, program, folder):
    """Runs the study that the others are compared with, under mpirun of so many tokens that it still computes when a
    signal reaches its ranks. Returns its tokens and its seconds."""
    tokens = FEWEST_TOKENS if launcher else TOKENS_ALONE
    while True:
        start = time.monotonic()
        subprocess.run(command(launcher, program, folder, "undisturbed", tokens), check=True, capture_output=True)
        seconds = time.monotonic() - start
        if not launcher or seconds >= LEAST_SECONDS or tokens == MOST_TOKENS:
            return tokens, seconds
        shutil.rmtree(folder / "undisturbed")
        tokens *= 2


def hit(codes, stopped, interrupts, ranks):
    """Returns whether signals met runs at work: some saved their state and, without mpirun, one was killed."""
    met = [sent for sent in SIGNALS[False] if stopped.get(sent, 0) > 0]
    return len(met) >= (len(SIGNALS[False]) if interrupts >= MANY else 1) and (
        ranks > 1 or codes.get(-signal.SIGKILL, 0) > 0)


def main():
    program, mpiexec, interrupts, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    os.environ["OMPI_MCA_odls_base_sigkill_timeout"] = PATIENCE
    launcher = [] if ranks == 1 else [mpiexec, "-n", str(ranks)]
    chance = random.Random(3)
    with tempfile.TemporaryDirectory(prefix="headspan_interrupts_") as name:
        folder = Path(name)
        prepare(folder)
        tokens, seconds = undisturbed_study(launcher, program, folder)
        expected = results(folder / "undisturbed")
        assert len(expected) == 2
        codes, finished, stopped, number, cut_short = {}, 0, {}, 0, 0
        while number < interrupts or not hit(codes, stopped, interrupts, ranks) and number < 5 * interrupts:
            number += 1
            stood = unfinished_files(folder)  # a killed run's, until one that gets so far removes them
            with open(folder / "log", "w+", encoding="utf-8") as log, \
                    subprocess.Popen(command(launcher, program, folder, "disturbed", tokens), stdout=log, stderr=log) as run:
                sent, code = interrupt(run, chance, seconds, SIGNALS[ranks == 1])
            told = (folder / "log").read_text()
            if code == MPIRUN_CRASHED and ranks > 1:
                told = told_by_ranks(told, run.pid)
            codes[code] = codes.get(code, 0) + 1
            of_mpirun = (MPIRUN_ENDED, MPIRUN_CRASHED, 128 + sent) if ranks > 1 else ()
            assert code in (DONE, STOPPED, -sent, *of_mpirun), (number, sent, code, told)
            assert not CRASH.search(told), (number, sent, code, told)
            check_files(folder / "disturbed")
            unfinished = unfinished_files(folder) - stood
            if unfinished and code == MPIRUN_ENDED and "status=" not in told:
                cut_short += 1  # mpirun killed it while it saved: a busy machine may need more than mpirun's patience
                assert cut_short <= interrupts // 4, (number, sent, code, unfinished, told)
            else:
                ended_at_once = sent == signal.SIGKILL or code == MPIRUN_CRASHED
                assert ended_at_once or not unfinished, (number, sent, code, unfinished, told)
            if "status=stopped" in told:
                assert "headspan: stopped by a signal: " in told and "the same command goes on" in told, told
                assert re.findall(r"saved is the state of (\w+);", told) == states(told), told
                stopped[sent] = stopped.get(sent, 0) + 1
            if code != DONE:
                continue
            finished += 1
            compare(results(folder / "disturbed"), expected)
            shutil.rmtree(folder / "disturbed")
        subprocess.run(command(launcher, program, folder, "disturbed", tokens), check=True, capture_output=True)
        compare(results(folder / "disturbed"), expected)
        left = [p.name for p in (folder / "disturbed").rglob("*") if p.is_file() and not p.name.endswith((".h5", ".h5.done"))]
        assert not left, left
        print(f"{number} interrupts of a study of {seconds:.1f} s on {ranks} ranks: exit codes {codes}, stopped by "
              f"{ {sent.name: n for sent, n in stopped.items()} }, finished {finished} times on the way")
        assert hit(codes, stopped, interrupts, ranks), f"of {number} interrupts too few hit: exit codes {codes}, stopped {stopped}"


def compare(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found = {variable: d for variable, d in differences(ours[name], expected).items() if d != 0}
        assert not found, (name, found)


if __name__ == "__main__":
    main()
