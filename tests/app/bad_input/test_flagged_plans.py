"""What is odd about the Grams of a plan but no error: exit code 0 and a warning or a cost.

usage: test_flagged_plans.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the checks whose name holds it
"""
import h5py
import numpy as np

from gram_cases import draw, write_grams
from harness import expect, options, run_main
from samples import CONFIG, KEYS, Sample, Weights, random_weights

GRAMS = KEYS | {"model.dtype": "float64", "predict.streams": "k,v", "tokens.heldout": 0, "output.save_gram": "true",
                "overlap.enabled": "false", "ceiling.enabled": "false"}
PLAN = {"compress.effort": "quick", "compress.exact_first": 0, "compress.stored": 0.5, "compress.plan": "plan.h5"}


def save_gram(program, folder, keys=None):
    run = program.study(folder, GRAMS | (keys or {}))
    expect(run.code == 0, f"exit code {run.code}", run)
    path, = (folder / (keys or {}).get("output.directory", "out")).rglob("*.gram.h5")
    return path.relative_to(folder)


def calibrate(program, folder, keys):
    run = program.run(folder, ["calibrate", *options({key: value for key, value in (PLAN | keys).items() if value is not None})])
    expect(run.code == 0 and run.errors == [], f"exit code {run.code}", run)
    return run


def grams_of_other_weights(program, folder, spoil, keys, line):
    """Given with a checkpoint they cause a warning, which the plan keeps; alone, or if nothing is fitted, they do not."""
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


def plan_of(program, folder, drawn, stored):
    """Returns eigenvalues, band columns and bits of each block, and the expected loss of all."""
    write_grams(folder / "a.gram.h5", drawn)
    calibrate(program, folder, {"grams.paths": "a.gram.h5", "compress.stored": stored})
    with h5py.File(folder / "plan.h5") as plan:
        blocks = {f"{stream}/{layer}": plan[f"{stream}/{layer}"] for stream in "kv" for layer in range(len(drawn["scale"]))}
        return ({name: block["eigenvalues"][()] for name, block in blocks.items()},
                {name: list(zip(block.attrs["band_columns"], block.attrs["band_bits"])) for name, block in blocks.items()},
                plan.attrs["expected_loss"])


def beside(live, dead, axis):
    """Joins layers (axis 0) or heads (axis 1) of both."""
    both = {name: np.concatenate([live[name], dead[name]], axis + (name in "kv")) for name in ("k", "v", "query", "output")}
    return both | {"scale": np.concatenate([live["scale"], dead["scale"]]) if axis == 0 else live["scale"]}


def dead_among_live(program, folder, axis):
    """As many dead layers or heads as live ones: the live ones get the bits that they get alone, at the same loss, and the dead
    ones get none, however large their keys. (Directions that the metric does not see count as 1e-9 of it, here of 900 times
    the variance.)"""
    live, dead = (draw(d=8, tokens=200, seed=seed) for seed in (4, 9))
    for drawn in live, dead:
        drawn["query"] /= 3000
    dead["k"] *= 30
    expected, bands, loss = plan_of(program, folder, live, 0.25)
    expect(all(bands.values()) and loss > 0, f"{bands}, {loss}")
    for names in ("v",), ("output", "k"):
        silent = dead | {name: 0 * dead[name] for name in names}
        found, all_bands, total = plan_of(program, folder, beside(live, silent, axis), 0.125)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name][:len(values)], values, rtol=1e-5, err_msg=f"{names}: {name}")
        kept = {name: own for name, own in all_bands.items() if own}
        expect(kept == bands, f"without {names} the bands are {kept}, alone {bands}")
        expect(abs(total / loss - 1) < 1e-5, f"without {names} the loss is {total}, alone {loss}")


def dead_layers(program, folder):
    dead_among_live(program, folder, axis=0)


def dead_heads(program, folder):
    dead_among_live(program, folder, axis=1)


def singular_grams(program, folder):
    """Heads that are equal, dead or constant, with products of every precision: rounding below 0 is no damage."""
    sample = Sample(folder)
    tensors = random_weights(CONFIG)
    keys = tensors["model.layers.0.self_attn.k_proj.weight"]
    keys[4:] = keys[:4]
    tensors["model.layers.1.self_attn.k_proj.weight"][2:] = 0
    tensors["model.layers.1.self_attn.v_proj.weight"][:] = 0
    Weights(tensors).write(sample.model / "model.safetensors")
    for dtype, precision in (("float32", "float32"), ("bfloat16", "bfloat16")):
        gram = save_gram(program, folder, {"model.dtype": dtype, "predict.precision": precision, "tokens.heldout": 0.25,
                                           "output.directory": precision})
        run = program.run(folder, ["inspect", str(gram)])
        expect(run.code == 0 and run.errors == [], f"inspect: exit code {run.code}", run)
        for algorithm in "latent", "headspan":
            calibrate(program, folder, {"grams.paths": gram, "compress.algorithm": algorithm, "compress.references": 1})


CHECKS = [singular_grams, dead_layers, dead_heads, grams_of_random_weights, grams_that_do_not_know_their_weights]


run_main((check.__name__, check) for check in CHECKS)
