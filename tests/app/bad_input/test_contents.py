"""Input files that were replaced: what was saved, finished or planned from the old ones is not mixed with the new.

usage: test_contents.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the checks whose name holds it
"""
import hashlib
import json
import os
import re
import shutil

import h5py
import numpy as np

from harness import expect, options, run_main
from samples import ACTIVATIONS, CONFIG, Sample, Weights, random_weights
from samples import KEYS as ALL_KEYS

KEYS = ALL_KEYS | {"predict.streams": "k", "overlap.enabled": "false", "ceiling.enabled": "false"}
STOP = {"run.time_limit": 1e-9, "run.batch_tokens": 64}  # minutes: over behind the first round
CHANGED = r"is not that of {} \([0-9a-f]{{12}}\), whose contents have changed since; choose another output\.directory or .+"


def tokens(seed, count=400):
    return np.random.default_rng(seed).integers(2, 32, count)


def fresh(program, folder, keys):
    """Returns {"k/r2": ...} of a separate study of the present inputs."""
    run = program.study(folder, keys | {"output.directory": "fresh"})
    expect(run.code == 0, f"exit code {run.code}", run)
    found = read(folder, "fresh")
    shutil.rmtree(folder / "fresh")
    return found


def read(folder, output):
    path, = (p for p in (folder / output).rglob("*.h5") if not p.name.endswith(".gram.h5"))
    with h5py.File(path) as file:
        return {name: file[name]["r2"][:] for name in "kqv" if name in file}


def starts_anew(program, folder, keys, spoil, reason, compare=False):
    """Stops a study, spoils its input, and runs it again; with `compare`, compares the result with a separate study."""
    run = program.study(folder, keys | STOP)
    expect(run.code == 3, f"exit code {run.code}, expected 3", run)
    spoil()
    run = program.study(folder, keys)
    expect(run.code == 0 and " resumed " not in run.stderr, f"exit code {run.code}", run)
    notices = [line for line in run.stderr.splitlines() if "starts anew" in line]
    expect(len(notices) == 1 and re.fullmatch(f"headspan: notice: \\w+ starts anew: {reason}", notices[0]), str(notices), run)
    for name, r2 in fresh(program, folder, keys).items() if compare else ():
        np.testing.assert_allclose(read(folder, keys["output.directory"])[name], r2, atol=1e-9)


def tokens_replaced_while_stopped(program, folder):
    sample = Sample(folder)
    starts_anew(program, folder, KEYS, lambda: sample.write_tokens(tokens(5)), "tokens changed since its state was saved",
                compare=True)


def tokens_grown_while_stopped(program, folder):
    sample = Sample(folder)
    starts_anew(program, folder, KEYS, lambda: sample.write_tokens(np.append(tokens(2), tokens(5, 300))),
                "tokens changed since its state was saved")


def documents_cut_otherwise_while_stopped(program, folder):
    """The tokens are the same, but the sidecar's end of text is not."""
    sample = Sample(folder)
    starts_anew(program, folder, KEYS, lambda: sample.write_sidecar(eos=7), "tokens changed since its state was saved")


def damaged_while_stopped(program, folder):
    Sample(folder)

    def damage():
        state, = (folder / "out").rglob("*.state")
        os.truncate(state, state.stat().st_size - 1)

    starts_anew(program, folder, KEYS, damage, "its saved state is not whole, or was changed since")


def job_changed_while_stopped(program, folder):
    Sample(folder)
    keys = dict(KEYS)
    starts_anew(program, folder, keys, lambda: keys.update({"predict.references": 2}), "its saved state is of another job")


def weights_replaced_while_stopped(program, folder):
    sample = Sample(folder)
    starts_anew(program, folder, KEYS, lambda: Weights(random_weights(CONFIG, seed=9)).write(sample.model / "model.safetensors"),
                "weights changed since its state was saved", compare=True)


def one_weight_replaced_while_stopped(program, folder):
    """The size and the sampled bytes are the same; only the modification time differs."""
    sample = Sample(folder)
    path = sample.model / "model.safetensors"
    os.utime(path, (1e9, 1e9))
    starts_anew(program, folder, KEYS, lambda: os.utime(path, (2e9, 2e9)), "weights changed since its state was saved")


def config_replaced_while_stopped(program, folder):
    sample = Sample(folder)
    starts_anew(program, folder, KEYS, lambda: sample.write_model(rope_theta=500.0),
                r"config\.json(, weights)? changed since its state was saved")


def activations_replaced_while_stopped(program, folder):
    sample = Sample(folder)
    draw = lambda seed: np.random.default_rng(seed).normal(size=(9000, 3, 2)).astype("f4")
    sample.write_activations(draw(1))
    starts_anew(program, folder, ACTIVATIONS, lambda: sample.write_activations(draw(2)),
                "activations changed since its state was saved", compare=True)


def state_of_another_version(program, folder):
    Sample(folder)

    def age():
        state, = (folder / "out").rglob("*.state")
        with h5py.File(state, "r+") as file:
            for name in list(file.attrs):
                if name != "identity":
                    del file.attrs[name]
            del file["k/fit"].attrs["waiting_tokens"]
        mark(state)

    starts_anew(program, folder, KEYS, age, "its saved state is of another version of headspan")


def state_that_says_what_cannot_be(program, folder):
    def set_pass(file):
        file.attrs["pass"] = np.int64(7)

    def forget_rows(file):
        del file["k/fit"].attrs["waiting_tokens"]

    def take_rows(file):
        file["k/fit"].attrs["waiting_tokens"] = -1 - file["k/fit"].attrs["waiting_tokens"]

    def shorten(file):
        del file["done"]
        file["done"] = np.zeros(1, np.uint8)

    for number, spoil in enumerate((set_pass, forget_rows, take_rows, shorten)):
        place = folder / str(number)
        place.mkdir()
        Sample(place)

        def damage(place=place, spoil=spoil):
            state, = (place / "out").rglob("*.state")
            with h5py.File(state, "r+") as file:
                spoil(file)
            mark(state)

        starts_anew(program, place, KEYS, damage, "its saved state is damaged")


def mark(path):
    """Makes the .done of the file describe it as it is now."""
    done = path.with_name(path.name + ".done")
    data = path.read_bytes()
    text = re.sub(r"size \d+\nsha256 \w+", f"size {len(data)}\nsha256 {hashlib.sha256(data).hexdigest()}", done.read_text())
    done.write_text(text)


def unchanged_goes_on(program, folder):
    """The same tokens written again, with more after those that are run, count as the same."""
    sample = Sample(folder)
    keys = KEYS | {"tokens.limit": 400}
    expect(program.study(folder, keys | STOP).code == 3, "did not stop")
    sample.write_tokens(np.append(tokens(2), tokens(5, 50)))
    run = program.study(folder, keys)
    expect(run.code == 0 and " resumed " in run.stderr, f"exit code {run.code}", run)


def refused(program, folder, keys, line):
    run = program.study(folder, keys)
    expect(run.code == 2 and len(run.errors) == 1 and re.fullmatch(line, run.errors[0]), f"exit code {run.code}, {run.errors}", run)


def finished_from_other_contents(program, folder):
    """It is refused like the result of another job; with output.overwrite it is computed anew."""
    sample = Sample(folder)
    weights = sample.model / "model.safetensors"
    old = weights.read_bytes()
    expect(program.study(folder, KEYS).last.startswith("status=done units=1 skipped=0"), "the first run")

    sample.write_tokens(tokens(5))
    refused(program, folder, KEYS, r"out/.+/model\.h5: tokens_sha256 = \w{12}: " + CHANGED.format(r"tokens\.bin"))
    sample.write_tokens(tokens(2))
    Weights(random_weights(CONFIG, seed=9)).write(weights)
    refused(program, folder, KEYS, r"out/.+/model\.h5: weights_digest = \w{12}: " + CHANGED.format("model"))
    weights.write_bytes(old)
    expect(program.study(folder, KEYS).last.startswith("status=done units=0 skipped=1"), "the old contents again")
    sample.write_tokens(tokens(5))
    run = program.study(folder, KEYS | {"output.overwrite": "true"})
    expect(run.last.startswith("status=done units=1 skipped=0"), run.last, run)
    expect(program.study(folder, KEYS).last.startswith("status=done units=0 skipped=1"), "the new contents again")


def finished_from_tokens_cut_otherwise(program, folder):
    """The ids are the same, but what says where documents end has changed or is gone."""
    sample = Sample(folder)
    line = r"{}/.+/model\.h5: tokens_cut_digest = \w{{12}}: " + CHANGED.replace("{}", "what stands beside {}")
    sample.write_sidecar(dtype="uint16", eos=1)
    expect(program.study(folder, KEYS).code == 0, "the first run")
    sample.write_sidecar(eos=1, dtype="uint16", tokenizer="of no matter")
    expect(program.study(folder, KEYS).last.startswith("status=done units=0 skipped=1"), "cut as before")
    for spoil in (lambda: sample.write_sidecar(dtype="uint16", eos=7), sample.path("tokens.json").unlink):
        spoil()
        refused(program, folder, KEYS, line.format("out", r"tokens\.bin"))
    keys = KEYS | {"tokens.path": "m.bin", "output.directory": "megatron"}
    sample.write_megatron([0, 400])
    expect(program.study(folder, keys).code == 0, "the first run with an .idx")
    sample.write_megatron([0, 200], lengths=[100, 300])
    refused(program, folder, keys, line.format("megatron", r"m\.bin"))


def finished_before_the_cut_was_told(program, folder):
    sample = Sample(folder)
    expect(program.study(folder, KEYS).code == 0, "the first run")
    path, = (folder / "out").rglob("*.h5")
    with h5py.File(path, "r+") as file:
        del file.attrs["tokens_cut_digest"]
    mark(path)
    sample.write_sidecar(eos=7)
    expect(program.study(folder, KEYS).last.startswith("status=done units=0 skipped=1"), "the second run")


def finished_from_other_activations(program, folder):
    sample = Sample(folder)
    draw = lambda seed: np.random.default_rng(seed).normal(size=(640, 3, 2)).astype("f4")
    sample.write_activations(draw(1))
    expect(program.study(folder, ACTIVATIONS).code == 0, "the first run")
    expect(program.study(folder, ACTIVATIONS).last.startswith("status=done units=0 skipped=1"), "the second run")
    sample.write_activations(draw(2))
    refused(program, folder, ACTIVATIONS, r"out/.+\.h5: input_digest = \w{12}: " + CHANGED.format(r"z\.h5"))


def finished_and_its_inputs_gone(program, folder):
    sample = Sample(folder)
    expect(program.study(folder, KEYS).code == 0, "the first run")
    shutil.rmtree(sample.model)
    sample.path("tokens.bin").unlink()
    expect(program.study(folder, KEYS).last.startswith("status=done units=0 skipped=1"), "the second run")


def finished_and_its_inputs_damaged(program, folder):
    """A notice says what can no longer be read; the unit still counts as finished."""
    sample = Sample(folder)
    weights, result = sample.model / "model.safetensors", r"out/model/model\.h5"
    expect(program.study(folder, KEYS).code == 0, "the first run")
    whole = weights.read_bytes()
    for damaged, why in ((whole[:-100], r"model/model\.safetensors: .+"), (b"\xff" * 100, r"model/model\.safetensors: .+"),
                         (whole, None)):
        weights.write_bytes(damaged)
        run = program.study(folder, KEYS)
        notices = [line for line in run.stderr.splitlines() if line.startswith("headspan: ")]
        line = rf"headspan: notice: {result} is finished; what it was made from can no longer be read: {why}"
        expect(run.last.startswith("status=done units=0 skipped=1"), run.last, run)
        expect(len(notices) == (why is not None) and all(re.fullmatch(line, text) for text in notices), str(notices), run)


def evaluate(program, folder, model):
    keys = {"model.path": model, "evaluate.plan": "plan.h5", "evaluate.texts": "tokens.bin", "evaluate.summary": "s.json",
            "tokens.sequence_length": 500}
    run = program.run(folder, ["evaluate", *options(keys)])
    expect(run.code == 0, f"exit code {run.code}", run)
    return run, json.loads((folder / "s.json").read_text())


def plan_of_other_weights(program, folder):
    """A plan recognises its weights, also in copies and shards. (The text is a single sequence, which has no standard error.)"""
    sample = Sample(folder)
    keys = {"model.path": "model", "tokens.path": "tokens.bin", "compress.plan": "plan.h5", "compress.stored": 0.5}
    run = program.run(folder, ["calibrate", *options(keys)])
    expect(run.code == 0, f"exit code {run.code}", run)
    shutil.copytree(sample.model, folder / "copy")
    sample.write_shards()
    digests = set()
    for model in ("model", "copy"):
        run, summary = evaluate(program, folder, model)
        expect("other weights" not in run.stderr and summary["weights"]["same"] is True, str(summary["weights"]), run)
        digests.add(summary["weights"]["digest"])
    Weights(random_weights(CONFIG, seed=9)).write(folder / "copy" / "model.safetensors")
    run, summary = evaluate(program, folder, "copy")
    expect(len(digests) == 1 and summary["weights"]["plan"] in digests, str(digests))
    expect(summary["weights"]["same"] is False and summary["weights"]["digest"] not in digests, str(summary["weights"]))
    expect(any(re.fullmatch(r"plan\.h5 was made for other weights \(\w{12}\) than those of copy \(\w{12}\)", line)
               for line in run.warnings), str(run.warnings), run)
    text = summary["texts"]["tokens"]
    expect(text["sequences"] == 1 and text["kl_se"] is None, str(text))
    expect("tokens: standard errors are null: they are over sequences" in run.stderr, "says not why", run)


CHANGED_FILE = r"is not the file that its \.done speaks of: it was changed or cut short; make it anew, or .+"


def flip(path, at):
    """Flips a bit."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def grams_with_a_flipped_bit(program, folder):
    Sample(folder)
    keys = KEYS | {"output.save_gram": "true"}
    expect(program.study(folder, keys).code == 0, "the first run")
    path, = (folder / "out").rglob("*.gram.h5")
    merge = {"grams.paths": path.relative_to(folder), "output.directory": "merged", "overlap.enabled": "false"}
    with h5py.File(path) as file:
        at = file["k/fit/tiles"].id.get_offset() + 6  # of a double's exponent
    flip(path, at)
    refused(program, folder, merge, r"out/.+\.gram\.h5: " + CHANGED_FILE)
    path.with_name(path.name + ".done").unlink()
    run = program.study(folder, merge)
    expect(run.code == 0 and len(run.warnings) == 1 and "gram.h5 has no .done beside it" in run.warnings[0], str(run.warnings), run)


def plan_with_a_flipped_bit(program, folder):
    sample = Sample(folder)
    sample.write_plan()
    plan = folder / "plan.h5"
    keys = {"model.path": "model", "evaluate.plan": "plan.h5", "evaluate.texts": "tokens.bin"}
    run = program.run(folder, ["evaluate", *options(keys)])
    expect(run.code == 0 and any("plan.h5 has no .done beside it" in line for line in run.warnings), str(run.warnings), run)
    data = plan.read_bytes()
    (folder / "plan.h5.done").write_text(
        f"size {len(data)}\nsha256 {hashlib.sha256(data).hexdigest()}\njob_id 1\njob_digest 2\n")
    run = program.run(folder, ["evaluate", *options(keys)])
    expect(run.code == 0 and not run.warnings, str(run.warnings), run)
    with h5py.File(plan) as file:
        at = file["k/0/lift"].id.get_offset()
    flip(plan, at)
    run = program.run(folder, ["evaluate", *options(keys)])
    expect(run.code == 2 and len(run.errors) == 1 and re.fullmatch(r"plan\.h5: " + CHANGED_FILE, run.errors[0]), str(run.errors), run)


def result_with_a_flipped_bit(program, folder):
    Sample(folder)
    expect(program.study(folder, KEYS).code == 0, "the first run")
    path, = (folder / "out").rglob("*.h5")
    theory = ["theory", "--theory.hidden_size=96", "--theory.head_size=6", "--theory.trials=2",
              f"--theory.results={path.relative_to(folder)}"]
    run = program.run(folder, theory)
    expect(run.code == 0 and not run.warnings, str(run.warnings), run)
    with h5py.File(path) as file:
        at = file["k/r2"].id.get_offset() + 8
    flip(path, at)
    run = program.run(folder, theory)
    expect(run.code == 2 and len(run.errors) == 1 and re.fullmatch(r"out/.+\.h5: " + CHANGED_FILE, run.errors[0]), str(run.errors), run)
    path.with_name(path.name + ".done").unlink()
    run = program.run(folder, theory)
    expect(run.code == 0 and len(run.warnings) == 1, str(run.warnings), run)
    expect("model.h5 has no .done beside it" in run.warnings[0], str(run.warnings), run)


def done_that_is_no_file(program, folder):
    """A FIFO is neither read nor replaced."""
    Sample(folder)
    expect(program.study(folder, KEYS).code == 0, "the first run")
    done, = (folder / "out").rglob("*.done")
    done.unlink()
    os.mkfifo(done)
    run = program.run(folder, ["inspect", str(done.relative_to(folder))[:-len(".done")]])
    expect(run.code == 2 and run.errors and re.fullmatch(r"out/.+\.h5: " + CHANGED_FILE, run.errors[0]), str(run.errors), run)
    refused(program, folder, KEYS, r"output\.directory = out: would replace out/.+\.h5\.done, which is no regular file; .+")


CHECKS = [tokens_replaced_while_stopped, tokens_grown_while_stopped, documents_cut_otherwise_while_stopped,
          damaged_while_stopped, job_changed_while_stopped, weights_replaced_while_stopped,
          one_weight_replaced_while_stopped, config_replaced_while_stopped,
          activations_replaced_while_stopped, state_of_another_version,
          state_that_says_what_cannot_be, unchanged_goes_on, finished_from_other_contents,
          finished_from_tokens_cut_otherwise, finished_before_the_cut_was_told, finished_from_other_activations,
          finished_and_its_inputs_gone,
          finished_and_its_inputs_damaged, plan_of_other_weights,
          grams_with_a_flipped_bit, plan_with_a_flipped_bit, result_with_a_flipped_bit, done_that_is_no_file]


run_main((check.__name__, check) for check in CHECKS)
