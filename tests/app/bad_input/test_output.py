"""The output folder: existing results, and folders and disks that cannot be written.

usage: test_output.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the checks whose name holds it
"""
import os
import re
import subprocess
import time

import h5py
import numpy as np

from harness import Program, expect, is_root, options, outcome, run_main, snapshot
from samples import KEYS, Sample

OTHER = r"out/[^/]+/model\.h5: is the result of another job \({}\); choose another output\.directory or set .+"
SMALL = KEYS | {"predict.streams": "k"}


def results(folder):
    return {name: data for name, data in snapshot(folder).items() if name.startswith("out")}


def changed_keys(changes):
    """Keys besides SMALL, as {"output__overwrite": "true"}; None removes one."""
    keys = SMALL | {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in keys.items() if value is not None}


def study(program, folder, **changes):
    return program.study(folder, changed_keys(changes))


def finished(run, units, skipped):
    expect(run.code == 0 and run.errors == [], f"exit code {run.code}", run)
    expect(run.last.startswith(f"status=done units={units} skipped={skipped} "), run.last, run)
    return run


def is_computed(run):
    return " headspan forward " in run.stderr


def skipped_when_of_this_job(program, folder):
    """On any number of ranks, and without reading the checkpoint again."""
    sample = Sample(folder)
    finished(study(program, folder), 1, 0)
    before = results(folder)
    (sample.model / "model.safetensors").write_bytes(b"")
    for again in (program, Program(program.path, program.mpiexec, 1)):
        run = finished(study(again, folder), 0, 1)
        expect(not is_computed(run) and run.seconds < 10, "a skipped unit was computed", run)
        expect(results(folder) == before, "a skipped unit was changed")


def refused_when_of_another_job(program, folder):
    Sample(folder)
    finished(study(program, folder), 1, 0)
    before = results(folder)
    run = study(program, folder, predict__references=3)
    line = OTHER.format(r"there predict\.references = 5, here predict\.references = 3")
    expect(run.code == 2 and len(run.errors) == 1 and re.fullmatch(line, run.errors[0]), str(run.errors), run)
    expect(not is_computed(run) and results(folder) == before, "the other job's result was touched", run)


def overwritten_when_asked(program, folder):
    Sample(folder)
    finished(study(program, folder), 1, 0)
    finished(study(program, folder, predict__references=3, output__overwrite="true"), 1, 0)
    with h5py.File(next(folder.glob("out/*/model.h5"))) as file:
        expect(file["k"].attrs["references"] == 3, "the old result stands")
    finished(study(program, folder, predict__references=3), 0, 1)


def computed_anew_without_done(program, folder):
    Sample(folder)
    finished(study(program, folder), 1, 0)
    next(folder.glob("out/*/model.h5.done")).unlink()
    finished(study(program, folder, predict__references=3), 1, 0)
    expect(len(results(folder)) == 2, "a result and its .done")


def computed_anew_when_damaged(program, folder):
    """The .done has another size and hash."""
    Sample(folder)
    finished(study(program, folder), 1, 0)
    path = next(folder.glob("out/*/model.h5"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\1")
    finished(study(program, folder), 1, 0)
    with h5py.File(path) as file:
        expect(np.isfinite(file["k/r2"][0, 1]), "the damaged result stands")


def computed_anew_without_the_grams_it_asks_for(program, folder):
    """A unit is finished only if its Grams are, and if they are those of this job."""
    Sample(folder)
    finished(study(program, folder), 1, 0)
    finished(study(program, folder, output__save_gram="true"), 1, 0)
    finished(study(program, folder, output__save_gram="true"), 0, 1)
    done, = folder.glob("out/*/model.gram.h5.done")
    done.unlink()
    finished(study(program, folder, output__save_gram="true"), 1, 0)
    of_this_job = done.read_text()
    done.write_text(re.sub(r"job_digest [0-9a-f]{64}", "job_digest " + "0" * 64, of_this_job))
    expect(done.read_text() != of_this_job, "no digest in .done")
    finished(study(program, folder, output__save_gram="true"), 1, 0)


def leftovers_of_a_killed_run_go(program, folder):
    Sample(folder)
    (folder / "out" / "model").mkdir(parents=True)
    (folder / "out" / "model" / "model.h5.tmp.killed").write_bytes(b"half")
    finished(study(program, folder), 1, 0)
    expect(sorted(p.rsplit("/", 1)[1] for p in results(folder)) == ["model.h5", "model.h5.done"], str(list(results(folder))))


def units_of_a_sweep_are_skipped_one_by_one(program, folder):
    sample = Sample(folder)
    for name in ("step1", "step2"):
        sample.write_model(name)
    sample.write_manifest("step1\t1\t\tstep1", "step2\t2\t\tstep2")
    sweep = {"model__path": None, "model__manifest": "manifest.tsv"}
    finished(study(program, folder, model__select="step1", **sweep), 1, 0)
    finished(study(program, folder, model__init="pretrained,random", **sweep), 3, 1)
    expect(len(results(folder)) == 8, "four results")


def folder_of_a_long_path(program, folder):
    """Open MPI's shared file pointers would copy it into a buffer of 256 bytes."""
    Sample(folder)
    finished(study(program, folder, output__directory="/".join(["d" * 200] * 10)), 1, 0)


def job_of_a_strange_name(program, folder):
    """Without Slurm the variable may hold anything."""
    Sample(folder)
    os.environ["SLURM_JOB_ID"] = "../a/b\nc"
    try:
        finished(study(program, folder), 1, 0)
    finally:
        del os.environ["SLURM_JOB_ID"]
    done = next(folder.glob("out/*/model.h5.done")).read_text()
    expect("job_id .._a_b_c\n" in done, done)


def fails(run, line, code=1):
    expect(run.code == code, f"exit code {run.code}, expected {code}", run)
    expect(len(run.errors) == 1 and re.fullmatch(line, run.errors[0]), f"printed {run.errors}, expected {line}", run)


def file_in_place_of_the_folder(program, folder):
    Sample(folder)
    (folder / "out").write_text("mine")
    run = study(program, folder)
    fails(run, r"rank 0: cannot make the folder: out/.+: .+/out is a file")
    expect(not is_computed(run) and results(folder) == {"out": b"mine"}, "found before work begins", run)


def file_in_place_of_the_model_folder(program, folder):
    Sample(folder)
    (folder / "out").mkdir()
    (folder / "out" / "model").write_text("mine")
    run = study(program, folder)
    fails(run, r"rank 0: cannot make the folder: out/.+ is a file")
    expect(not is_computed(run), "found before work begins", run)


def on_mount(program, folder, mount_options, **changes):
    """Runs a study whose out/ is a separate mount; returns the files left there, or nothing if mounting is not permitted."""
    unshare = ["unshare", "--mount"] if is_root() else ["unshare", "--mount", "--map-root-user"]
    (folder / "out").mkdir()
    script = f"mount -t tmpfs -o {mount_options} none out || exit 99; \"$@\"; code=$?; find out -type f >left; exit $code"
    start = time.monotonic()
    command = program.command(["study", *options(changed_keys(changes))])
    run = subprocess.run([*unshare, "sh", "-c", script, "sh", *command], cwd=folder, capture_output=True,
                         text=True, timeout=60, check=False)
    if not (folder / "left").exists():
        return None, []
    found = outcome(run.returncode, run.stdout, run.stderr, time.monotonic() - start)
    return found, (folder / "left").read_text().split()


def read_only_file_system(program, folder):
    Sample(folder)
    run, left = on_mount(program, folder, "ro")
    if run is None:
        return "mounting is not permitted here"
    fails(run, r"rank 0: cannot write to the folder: .+/out: Read-only file system")
    expect(not left and not is_computed(run), "found before work begins", run)


def read_only_folder(program, folder):
    if is_root():
        return "root may write everywhere"
    Sample(folder)
    (folder / "out").mkdir(mode=0o555)
    fails(study(program, folder), r"rank 0: cannot write to the folder: .+/out: Permission denied")


def disk_full(program, folder):
    Sample(folder)
    run, left = on_mount(program, folder, "size=16k")
    if run is None:
        return "mounting is not permitted here"
    fails(run, r"rank 0: .+: No space left on device")
    expect(not left, f"left behind: {left}", run)
    expect(run.seconds < 30, f"took {run.seconds:.1f} s")


CHECKS = [folder_of_a_long_path, job_of_a_strange_name, skipped_when_of_this_job, refused_when_of_another_job,
          overwritten_when_asked, computed_anew_without_done, computed_anew_when_damaged,
          computed_anew_without_the_grams_it_asks_for, leftovers_of_a_killed_run_go,
          units_of_a_sweep_are_skipped_one_by_one, file_in_place_of_the_folder, file_in_place_of_the_model_folder,
          read_only_file_system, read_only_folder, disk_full]


run_main((check.__name__, check) for check in CHECKS)
