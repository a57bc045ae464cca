"""A small study is interrupted fifty times, at random instants by a random signal: no partial file ever stands under
a final name, the study can always be taken up again, and its results are always those of an undisturbed one.

usage: test_interrupts.py HEADSPAN MPIEXEC INTERRUPTS
"""
import hashlib
import random
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
from compare import datasets, differences  # noqa: E402
from program import GOLDEN  # noqa: E402

DONE, STOPPED = 0, 3


def command(program, folder, output):
    keys = {"model.manifest": folder / "rows.tsv", "tokens.path": folder / "ids.bin", "tokens.sequence_length": 60,
            "tokens.limit": 6000, "model.dtype": "float64", "run.batch_tokens": 60, "predict.references": 2,
            "run.save_minutes": 0.002, "output.directory": folder / output}
    return [program, "study", *(f"--{key}={value}" for key, value in keys.items())]


def prepare(folder):
    np.random.default_rng(6).integers(0, 64, 6000).astype("<u2").tofile(folder / "ids.bin")
    rows = "".join(f"{name}\t0\t0\t{GOLDEN / name}\n" for name in ("olmo2_mha", "llama_gqa"))
    (folder / "rows.tsv").write_text("name\tstep\ttokens\tpath\n" + rows)


def check_files(output):
    """Whatever has a .done is what that says; whatever opens under a final name is whole."""
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


def results(output):
    return {path.name: datasets(path) for path in sorted(output.rglob("*.h5"))}


def interrupt(run, chance, seconds):
    """Lets the run go for a random share of its time, then sends a random signal; the exit code."""
    time.sleep(chance.uniform(0, 1.1 * seconds))
    run.send_signal(chance.choice([signal.SIGKILL, signal.SIGUSR1, signal.SIGTERM]))
    return run.wait(timeout=60)


def main():
    program, interrupts = sys.argv[1], int(sys.argv[3])
    chance = random.Random(3)
    with tempfile.TemporaryDirectory(prefix="headspan_interrupts_") as name:
        folder = Path(name)
        prepare(folder)
        start = time.monotonic()
        subprocess.run(command(program, folder, "undisturbed"), check=True, capture_output=True)
        seconds = time.monotonic() - start
        expected = results(folder / "undisturbed")
        assert len(expected) == 2
        codes, finished = {}, 0
        for number in range(interrupts):
            with subprocess.Popen(command(program, folder, "disturbed"), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) as run:
                code = interrupt(run, chance, seconds)
                told = run.stderr.read()
            codes[code] = codes.get(code, 0) + 1
            assert code in (DONE, STOPPED, -signal.SIGKILL, -signal.SIGUSR1, -signal.SIGTERM), (number, code, told)
            check_files(folder / "disturbed")
            if code != DONE:
                continue
            finished += 1
            compare(results(folder / "disturbed"), expected)
            shutil.rmtree(folder / "disturbed")
        subprocess.run(command(program, folder, "disturbed"), check=True, capture_output=True)
        compare(results(folder / "disturbed"), expected)
        left = [p.name for p in (folder / "disturbed").rglob("*") if p.is_file() and not p.name.endswith((".h5", ".h5.done"))]
        assert not left, left
        print(f"{interrupts} interrupts of a study of {seconds:.1f} s: exit codes {codes}, finished {finished} times on the way")
        assert codes.get(STOPPED, 0) > 0 and codes.get(-signal.SIGKILL, 0) > 0, "an interrupt never hit"


def compare(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found = {variable: d for variable, d in differences(ours[name], expected).items() if d != 0}
        assert not found, (name, found)


if __name__ == "__main__":
    main()
