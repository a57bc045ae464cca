"""What is odd about the Grams of a plan but no error: exit 0, and what it costs is told.

usage: test_flagged_plans.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the checks whose name holds it
"""
import sys

import h5py

from harness import Program, expect, options, run_all
from samples import KEYS, Sample

GRAMS = KEYS | {"model.dtype": "float64", "predict.streams": "k,v", "tokens.heldout": 0, "output.save_gram": "true",
                "overlap.enabled": "false", "ceiling.enabled": "false"}
PLAN = {"compress.exact_first": 0, "compress.stored": 0.5, "compress.plan": "plan.h5"}


def save_gram(program, folder, keys=None):
    run = program.study(folder, GRAMS | (keys or {}))
    expect(run.code == 0, f"exit code {run.code}", run)
    path, = (folder / "out").rglob("*.gram.h5")
    return path.relative_to(folder)


def calibrate(program, folder, keys):
    run = program.run(folder, ["calibrate", *options({key: value for key, value in (PLAN | keys).items() if value is not None})])
    expect(run.code == 0 and run.told == [], f"exit code {run.code}", run)
    return run


def grams_of_other_weights(program, folder, spoil, keys, line):
    """Beside a checkpoint they are told, and the plan keeps it; alone, or where nothing is fitted, there is nothing to tell."""
    Sample(folder)
    gram = save_gram(program, folder, keys)
    spoil(folder / gram)
    gram = {"grams.paths": gram}
    for more, warned in (({"model.path": "model"}, [line]), ({}, []),
                         ({"model.path": "model", "compress.algorithm": "quantise", "compress.bits": 8, "compress.stored": None}, [])):
        run = calibrate(program, folder, gram | more)
        expect([text for text in run.warnings if ".done" not in text] == warned, f"{more}: {run.warnings}", run)
        with h5py.File(folder / "plan.h5") as plan:
            kept = [plan.attrs["weights_mismatch"].decode()] if "weights_mismatch" in plan.attrs else []
        expect(kept == warned, f"{more}: the plan says {kept}")


def grams_of_random_weights(program, folder):
    grams_of_other_weights(program, folder, lambda path: None, {"model.init": "random"},
                           "out/model/model.gram.h5: weights_digest: its Grams are of random weights, not of those of model")


def grams_that_do_not_know_their_weights(program, folder):
    def forget(path):
        with h5py.File(path, "r+") as file:
            del file.attrs["weights_digest"]
        path.with_name(path.name + ".done").unlink()

    grams_of_other_weights(program, folder, forget, {},
                           "out/model/model.gram.h5: weights_digest: is not there: its Grams may be of other weights than "
                           "those of model")


CHECKS = [grams_of_random_weights, grams_that_do_not_know_their_weights]


def main():
    program = Program(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    return run_all([(check.__name__, lambda folder, check=check: check(program, folder)) for check in CHECKS
                    if wanted in check.__name__])


sys.exit(main())
