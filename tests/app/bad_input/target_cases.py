"""Files that a command would write where something stands that it reads, or that is no file."""
import os
import stat

from evaluate_cases import GENERATED, SCORED
from harness import Case, is_root

CALIBRATE = ["calibrate", "--model.path=model", "--tokens.path=tokens.bin", "--tokens.sequence_length=16"]
EVALUATE = ["evaluate", "--model.path=model", "--evaluate.plan=plan.h5", "--evaluate.texts=tokens.bin",
            "--evaluate.requests=scored.jsonl", "--evaluate.generate=generated.jsonl", "--tokens.sequence_length=16"]
JOB = "[model]\npath = model\n[tokens]\npath = tokens.bin\nsequence_length = 16\n[compress]\nplan = job.ini\n"


def prepared(sample):
    sample.write_plan()
    sample.write_lines("scored.jsonl", SCORED)
    sample.write_lines("generated.jsonl", GENERATED)


def prepared_and(make):
    """make(path of `target`, sample)."""
    def spoil(sample):
        prepared(sample)
        make(sample.path("target"), sample)
    return spoil


def symlink(name):
    return prepared_and(lambda target, sample: target.symlink_to(name))


def hard_link(name):
    return prepared_and(lambda target, sample: target.hardlink_to(sample.path(name)))


def no_file(target, _):
    """The node of a device, which only root can make, or else a pipe."""
    if is_root():
        os.mknod(target, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        os.mkfifo(target)


def replaces(name, what, arguments, key, target, spoil=prepared):
    line = rf"{key} = {target}: would replace {what}, which .+; choose another place"
    return Case(name, line.replace(".jsonl", r"\.jsonl"), spoil, arguments=[*arguments, f"--{key}={target}"])


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
    evaluation("the weights", "model/model.safetensors", "evaluate.summary", "model/model.safetensors"),
    evaluation("the plan behind a link", "plan.h5", "evaluate.summary", "target", symlink("plan.h5")),
    Case("summary in place of the answers", r"evaluate\.summary = \./both: is the file for the answers too; .+", prepared,
         arguments=[*EVALUATE, "--evaluate.answers=both", "--evaluate.summary=./both"]),
    Case("answers whose part is among the requests", r"evaluate\.answers = a: would replace a\.part, which the job reads; .+",
         lambda sample: [prepared(sample), sample.path("scored.jsonl").rename(sample.path("a.part"))],
         arguments=[word.replace("scored.jsonl", "a.part") for word in EVALUATE] + ["--evaluate.answers=a"]),
    Case("result in place of no file", r"output\.directory = out: would replace out/.+/model\.h5, which is no regular file; .+",
         lambda sample: [(sample.folder / "out" / "model").mkdir(parents=True),
                         no_file(sample.folder / "out" / "model" / "model.h5", sample)]),
]
