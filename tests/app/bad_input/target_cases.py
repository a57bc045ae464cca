"""Outputs that would replace an input of the command, or something that is not a file."""
import os
import stat

import numpy as np

from evaluate_cases import GENERATED, SCORED
from harness import Case, is_root
from samples import ACTIVATIONS

CALIBRATE = ["calibrate", "--model.path=model", "--tokens.path=tokens.bin", "--tokens.sequence_length=16"]
EVALUATE = ["evaluate", "--model.path=model", "--evaluate.plan=plan.h5", "--evaluate.texts=tokens.bin",
            "--evaluate.requests=scored.jsonl", "--evaluate.generate=generated.jsonl", "--tokens.sequence_length=16"]
JOB = "[model]\npath = model\n[tokens]\npath = tokens.bin\nsequence_length = 16\n[compress]\nplan = job.ini\n"


def prepared(sample):
    sample.write_plan()
    sample.write_lines("scored.jsonl", SCORED)
    sample.write_lines("generated.jsonl", GENERATED)


def prepared_and(make):
    """Calls make(path of `target`, sample)."""
    def spoil(sample):
        prepared(sample)
        make(sample.path("target"), sample)
    return spoil


def symlink(name):
    return prepared_and(lambda target, sample: target.symlink_to(name))


def hard_link(name):
    return prepared_and(lambda target, sample: target.hardlink_to(sample.path(name)))


def no_file(target, _):
    """Creates a device node, which only root can, or else a pipe."""
    if is_root():
        os.mknod(target, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        os.mkfifo(target)


def replaces(name, what, arguments, key, target, spoil=prepared):
    line = rf"{key} = {target}: would replace {what}, which .+; choose another place"
    return Case(name, line.replace(".jsonl", r"\.jsonl"), spoil, arguments=[*arguments, f"--{key}={target}"])


def result(name, line, make, **more):
    """Calls make(folder of the results of `model`, sample)."""
    def spoil(sample):
        folder = sample.folder / "out" / "model"
        folder.mkdir(parents=True)
        make(folder, sample)
    return Case(f"result {name}", rf"output\.directory = out: would {line}; choose another place", spoil, **more)


def results_among_activations(sample):
    sample.write_activations(np.random.default_rng(1).standard_normal((40, 3, 2)))
    (sample.folder / "out").mkdir()
    (sample.folder / "out" / "activations").symlink_to(sample.folder)


def plan(name, what, target, spoil=prepared):
    return replaces(f"plan in place of {name}", what, CALIBRATE, "compress.plan", target, spoil)


def evaluation(name, what, key, target, spoil=prepared):
    more = [] if key == "evaluate.answers" else ["--evaluate.answers=answers.jsonl"]
    return replaces(f"{key} in place of {name}", what, EVALUATE + more, key, target, spoil)


CASES = [
    plan("the weights", "model/model.safetensors", "model/model.safetensors"),
    plan("the config", "model/config.json", "./model/../model/config.json"),
    plan("the tokens", "tokens.bin", "tokens.bin"),
    plan("the tokens' sidecar", "tokens.json", "tokens.json", lambda sample: sample.write_sidecar(count=400)),
    plan("the weights behind a link", "model/model.safetensors", "target", symlink("model/model.safetensors")),
    plan("the tokens' other name", "tokens.bin", "target", hard_link("tokens.bin")),
    plan("no file", "target", "target", prepared_and(no_file)),
    plan("a folder", "model", "model"),
    Case("plan in place of its job", r"compress\.plan = job\.ini: would replace job\.ini, .+; .+",
         lambda sample: sample.path("job.ini").write_text(JOB), arguments=["calibrate", "job.ini"]),
    evaluation("the requests", "scored.jsonl", "evaluate.answers", "scored.jsonl"),
    evaluation("what to continue", "generated.jsonl", "evaluate.answers", "generated.jsonl"),
    evaluation("no file", "target", "evaluate.answers", "target", prepared_and(no_file)),
    evaluation("a text", "tokens.bin", "evaluate.summary", "tokens.bin"),
    Case("summary in place of a text's sidecar, which is not there", r"evaluate\.summary = \./tokens\.json: would become "
         r"tokens\.json, which the job reads if it is there; choose another place", prepared,
         arguments=[*EVALUATE, "--evaluate.answers=a", "--evaluate.summary=./tokens.json"]),
    evaluation("the weights", "model/model.safetensors", "evaluate.summary", "model/model.safetensors"),
    evaluation("the plan behind a link", "plan.h5", "evaluate.summary", "target", symlink("plan.h5")),
    Case("summary in place of the answers", r"evaluate\.summary = \./both: is the file for the answers too; .+", prepared,
         arguments=[*EVALUATE, "--evaluate.answers=both", "--evaluate.summary=./both"]),
    Case("answers whose part is among the requests", r"evaluate\.answers = a: would replace a\.part, which the job reads; .+",
         lambda sample: [prepared(sample), sample.path("scored.jsonl").rename(sample.path("a.part"))],
         arguments=[word.replace("scored.jsonl", "a.part") for word in EVALUATE] + ["--evaluate.answers=a"]),
    Case("summary in place of the answers so far", r"evaluate\.summary = a\.part: is the file for the answers too; .+", prepared,
         arguments=[*EVALUATE, "--evaluate.answers=a", "--evaluate.summary=a.part"]),
    evaluation("the plan's .done", r"plan\.h5\.done", "evaluate.answers", "plan.h5.done",
               lambda sample: [prepared(sample), sample.path("plan.h5.done").write_text("size 1\n")]),
    Case("answers whose lock is a folder", r"evaluate\.answers = a: would replace a\.lock, which is no regular file; .+",
         lambda sample: [prepared(sample), sample.path("a.lock").mkdir()], arguments=[*EVALUATE, "--evaluate.answers=a"]),
    replaces("plan in place of the Grams' .done", r"a\.gram\.h5\.done", ["calibrate", "--grams.paths=a.gram.h5"], "compress.plan",
             "a.gram.h5.done", lambda sample: sample.path("a.gram.h5.done").write_text("size 1\n")),
    Case("plan whose unfinished files the tokens count among",
         r"compress\.plan = t: would remove t\.tmp\.bin, which the job reads, as unfinished; choose another place",
         lambda sample: sample.path("tokens.bin").rename(sample.path("t.tmp.bin")),
         arguments=[*(word.replace("tokens.bin", "t.tmp.bin") for word in CALIBRATE), "--compress.plan=t"]),
    result("in place of no file", r"replace out/.+/model\.h5, which is no regular file",
           lambda folder, sample: no_file(folder / "model.h5", sample)),
    *(result(f"whose {suffix} is a folder", rf"replace out/.+/model\.h5\{suffix}, which is no regular file",
             lambda folder, _, suffix=suffix: (folder / f"model.h5{suffix}").mkdir()) for suffix in (".lock", ".state")),
    result("in place of the tokens behind a link", r"replace tokens\.bin, which the job reads",
           lambda folder, sample: (folder / "model.h5").symlink_to(sample.path("tokens.bin"))),
    result("in place of the weights' other name", r"replace model/model\.safetensors, which the job reads",
           lambda folder, sample: (folder / "model.h5").hardlink_to(sample.model / "model.safetensors")),
    result("whose unfinished files the tokens count among",
           r"remove out/model/model\.h5\.tmp\.bin, which the job reads, as unfinished",
           lambda folder, sample: sample.path("tokens.bin").rename(folder / "model.h5.tmp.bin"),
           keys={"tokens.path": "out/model/model.h5.tmp.bin"}),
    Case("result in place of the activations", r"output\.directory = out: would replace z\.h5, which the job reads; .+",
         results_among_activations, base=ACTIVATIONS),
]
