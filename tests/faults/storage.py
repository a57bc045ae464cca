"""Storage fails: a call that a command makes on a file, on one of its ranks, fails with an error that the system may give there;
or the rank is killed at it, reads are slow, or a file is replaced while it is read. The command ends soon with one message
that names the file and the cause, files with a final name are whole, old or new, no unfinished one is left, and the same command
then writes the files of an undisturbed run. Prints a row of a table for each fault.

usage: storage.py HEADSPAN MPIEXEC FAILING_DISK INSTANTS [COMMAND...]     INSTANTS: of each command on 1 and on 2 ranks
"""
import errno
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import read_safetensors, write_safetensors
from lost_ranks import content, same
from program import GOLDEN

SECONDS = 40  # until the end of a command
ERRORS = {"open": "EACCES EIO ESTALE", "create": "EACCES ENOSPC EDQUOT EROFS", "read": "EIO ESTALE", "write": "ENOSPC EDQUOT EIO",
          "reserve": "ENOSPC EDQUOT", "sync": "EIO ENOSPC EDQUOT", "close": "EIO EDQUOT", "rename": "ESTALE EACCES EIO",
          "remove": "EACCES EIO", "lock": "ENOLCK EAGAIN", "await": "ENOLCK"}
PERSISTENT = ", persistent"  # after the name of an error: it does not pass
KILLED, REPLACED, SLOW = "the rank is killed", "the file is replaced", "reads take 10 ms each"
EFFECTS = {KILLED: "kill", REPLACED: "replace", SLOW: "wait=10"}
MODEL = {"model.path": "model", "model.dtype": "float32", "tokens.sequence_length": 40}
TOKENS = {**MODEL, "tokens.path": "ids.bin"}
COMMANDS: dict[str, dict] = {
    "study": {**TOKENS, "predict.references": 2, "output.directory": "out", "output.save_gram": "true", "output.overwrite": "true",
              "run.save_minutes": 0.0002},
    "calibrate": {**TOKENS, "compress.plan": "out/plan.h5", "compress.effort": "quick"},
    "evaluate": {**MODEL, "evaluate.plan": "plan.h5", "evaluate.texts": "ids.bin", "evaluate.summary": "out/summary.json"},
    "evaluate requests": {**MODEL, "evaluate.plan": "plan.h5", "evaluate.requests": "requests.jsonl",
                          "evaluate.answers": "out/answers.jsonl"},
    "archive calibrate": {**TOKENS, "archive.codec": "out/codec.h5", "archive.effort": "quick"},
    "archive encode": {"archive.codec": "codec.h5", "archive.input": "kv.safetensors", "archive.bits": 4,
                       "archive.output": "out/kv.hsa"},
    "archive decode": {"archive.codec": "codec.h5", "archive.input": "kv.hsa", "archive.output": "out/kv.safetensors"},
    "archive decode hdf5": {"archive.codec": "codec.h5", "archive.input": "kv.hsa", "archive.output": "out/kv.h5"},
}
INPUTS = ("ids.bin", "requests.jsonl", "kv.safetensors", "plan.h5", "codec.h5", "kv.hsa")
WEIGHTS = "model/model.safetensors"
OLD, NEW = "old", "new"  # seeds of inputs


@dataclass(frozen=True)
class Call:
    """The nth call of its kind on this file that a rank makes, or each rank."""

    rank: int | None
    kind: str
    path: str  # a pattern
    nth: int


@dataclass(frozen=True)
class Instant:
    fault: str
    call: Call

    def rule(self):
        effect = EFFECTS.get(self.fault) or self.error()
        return f"{self.call.kind} {self.call.path} {effect} {self.call.nth}{'+' if self.persists() else ''}"

    def error(self):
        return getattr(errno, self.fault.removesuffix(PERSISTENT))

    def persists(self):
        return self.fault == SLOW or PERSISTENT in self.fault


@dataclass
class Outcome:
    code: int | None  # None: it did not end
    errors: list
    notices: list
    stderr: str


class Commands:
    """The commands, in a folder with their inputs, which are made from a seed."""

    def __init__(self, program, mpiexec, library, folder):
        self.program, self.mpiexec, self.library, self.folder, self.out = program, mpiexec, library, folder, folder / "out"
        shutil.copytree(GOLDEN / "olmo2_gqa", folder / "model")
        for seed in (OLD, NEW):
            self.write_inputs(seed)

    def write_inputs(self, seed):
        chance = np.random.default_rng(list(seed.encode()))
        weights = read_safetensors(GOLDEN / "olmo2_gqa" / "model.safetensors")
        write_safetensors(self.folder / WEIGHTS, {name: (w * chance.uniform(0.9, 1.1)).astype("<f4") for name, w in weights.items()})
        chance.integers(3, 60, 1200).astype("<u2").tofile(self.folder / "ids.bin")
        write_safetensors(self.folder / "kv.safetensors", {s: chance.normal(size=(2, 2, 200, 8)).astype("<f4") for s in "kv"})
        lines = [json.dumps({"id": i, "context": [3, int(chance.integers(3, 60))], "continuation": [5]}) for i in range(20)]
        (self.folder / "requests.jsonl").write_text("".join(f"{line}\n" for line in lines))
        for name, product in (("calibrate", "plan.h5"), ("archive calibrate", "codec.h5"), ("archive encode", "kv.hsa")):
            self.finish(name, 1)
            for suffix in ("", ".done"):
                shutil.move(self.out / (product + suffix), self.folder / (product + suffix))
        (self.folder / seed).mkdir()
        for path in (*INPUTS, *(f"{path}.done" for path in INPUTS[3:]), WEIGHTS):
            shutil.copy(self.folder / path, self.folder / seed / Path(path).name)

    def choose_inputs(self, seed):
        """Lays out the inputs of this seed."""
        for path in (self.folder / seed).iterdir():
            shutil.copy(path, self.folder / ("model" if path.name == Path(WEIGHTS).name else "") / path.name)

    def run(self, name, ranks, **rules):
        words = name.split()
        command = words[:2] if words[0] == "archive" else words[:1]
        keys = {key: self.folder / value if value in (*INPUTS, "model", "out") or str(value).startswith("out/") else value
                for key, value in COMMANDS[name].items()}
        launcher = [self.mpiexec, "-n", str(ranks)] if ranks > 1 else []
        environment = {**os.environ, "SLURM_JOB_ID": "1", "OMPI_MCA_odls_base_sigkill_timeout": "0", **rules}
        if rules:
            environment["LD_PRELOAD"] = self.library
        run = subprocess.Popen([*launcher, self.program, *command, *(f"--{key}={value}" for key, value in keys.items())],
                               cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            stderr = run.communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            run.terminate()  # mpiexec then ends its ranks
            run.communicate()
            return Outcome(None, [], [], "")
        told = [line for line in stderr.splitlines() if line.startswith("headspan: ")]
        notices = [line for line in told if re.match("headspan: (notice|warning|next): ", line)]
        return Outcome(run.returncode, [line for line in told if line not in notices], notices, stderr)

    def finish(self, name, ranks):
        """Runs a command without a fault, and returns what it wrote: {file: what is the same in every run}."""
        run = self.run(name, ranks)
        assert run.code == 0, f"{name}: {run.stderr}"
        return self.written()

    def written(self):
        return {str(path.relative_to(self.out)): stable(path)
                for path in sorted(self.out.rglob("*"))
                if path.is_file() and path.suffix not in (".done", ".state", ".part") and not is_unfinished(path)}

    def unfinished(self):
        return {path.name for path in self.out.rglob("*") if is_unfinished(path)}

    def trace(self, name, ranks):
        """Returns the calls of an undisturbed run, {(rank, kind, path): how often}, and what it wrote."""
        trace = self.folder / "trace"
        trace.write_text("")
        run = self.run(name, ranks, FAILING_DISK=f"* *{self.folder}/* trace={trace} 1+")
        assert run.code == 0, run.stderr
        made = Counter()
        for line in trace.read_text().splitlines():
            rank, kind, path = line.split(" ", 2)
            if not (path + "/").startswith(f"{self.folder}/trace/") and kind in ERRORS:
                made[int(rank), kind, "*" + re.sub(r"(?<=\.tmp\.)\d\d+$", "*", path).replace(" ", "?")] += 1
        return made, self.written()


def is_unfinished(path):
    return re.search(r"\.tmp\b", path.name) or path.suffix == ".lock"


def stable(path):
    """Returns what is the same in every run: of answers, not the last digits, which depend on what is answered at once."""
    if path.name == "kv.h5":  # without dates
        return np.frombuffer(path.read_bytes(), "u1")
    if path.suffix != ".jsonl":
        return content(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return np.array([[line["id"], round(line["loglikelihood"], 3), line["greedy"]] for line in lines])


def is_one_of(written, file, files):
    return file in files and same({file: written[file]}, {file: files[file]})


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sample(instants, count):
    """Chooses instants: as many of each fault and kind of call as there are of others."""
    groups, chance = defaultdict(list), random.Random(11)
    for instant in instants:
        groups[instant.fault, instant.call.kind].append(instant)
    for group in groups.values():
        chance.shuffle(group)
    ordered = list(groups.values())
    chance.shuffle(ordered)
    chosen = []
    while len(chosen) < min(count, len(instants)):
        chosen += [group.pop() for group in ordered if group]
    return chosen[:count]


class Fault:
    """A command on some ranks, which is to replace the files of an earlier run with other inputs."""

    def __init__(self, commands, name, ranks):
        self.commands, self.name, self.ranks = commands, name, ranks
        self.earlier = commands.folder / "earlier"
        for folder in (commands.out, self.earlier):
            shutil.rmtree(folder, ignore_errors=True)
        commands.choose_inputs(OLD)
        self.old = commands.finish(name, ranks)
        shutil.move(commands.out, self.earlier)
        commands.choose_inputs(NEW)
        self.restore()
        self.made, self.new = commands.trace(name, ranks)
        self.of_others = {}  # what is written where one input is another
        assert not any(is_one_of(self.new, file, self.old) for file in self.new), "the earlier files are the same"

    def restore(self):
        shutil.rmtree(self.commands.out, ignore_errors=True)
        shutil.copytree(self.earlier, self.commands.out)

    def instants(self):
        """Yields instants of all faults."""
        inputs = [self.commands.folder / path for path in (*INPUTS, WEIGHTS)]
        yield Instant(SLOW, Call(None, "read", f"*{self.commands.folder}/*", 1))
        for kind in ("lock", "await"):  # the file system has no locks
            yield Instant("ENOLCK" + PERSISTENT, Call(None, kind, f"*{self.commands.out}/*.tmp.*", 1))
        for call in self.calls():
            yield Instant(KILLED, call)
            if call.kind in ("open", "read") and Path(call.path[1:]) in inputs:
                yield Instant(REPLACED, call)
            for error in ERRORS[call.kind].split():
                yield Instant(error, call)
                if call.kind in ("read", "write") and call.nth == 1:
                    yield Instant(error + PERSISTENT, call)

    def calls(self):
        """Returns of each rank, kind and file the first two calls, one in the middle and the last."""
        return [Call(rank, kind, path, nth) for (rank, kind, path), count in self.made.items()
                for nth in sorted({1, min(2, count), (count + 1) // 2, count})]

    def meet(self, instant):
        """Yields what is violated."""
        self.restore()
        with self.other_input(instant):
            only = {} if instant.call.rank is None else {"FAILING_RANK": str(instant.call.rank)}
            run = self.commands.run(self.name, self.ranks, FAILING_DISK=instant.rule(), **only)
        if run.code is None:
            yield f"no end after {SECONDS} s"
        yield from self.wrong_files(instant, run)
        if instant.fault != KILLED:
            yield from self.wrong_end(instant, run)
        after = self.commands.run(self.name, self.ranks)
        if after.code != 0:
            yield f"the command that follows ends with {after.code}: {after.errors}"
        elif not same(self.commands.written(), self.new):
            yield "the command that follows writes other files"
        elif self.commands.unfinished():
            yield f"the command that follows leaves {self.commands.unfinished()}"

    @contextmanager
    def other_input(self, instant):
        """Lays out the file that is to replace an input, and restores the input afterwards."""
        if instant.fault != REPLACED:
            yield
            return
        path = Path(instant.call.path[1:])
        kept = path.with_name("kept")
        shutil.copy(path, kept)
        shutil.copy(self.commands.folder / OLD / path.name, path)
        if path.name not in self.of_others:
            run = self.commands.run(self.name, self.ranks)
            self.of_others[path.name] = self.commands.written() if run.code == 0 else {}
            self.restore()
        shutil.copy(kept, path)
        shutil.copy(self.commands.folder / OLD / path.name, f"{path}.other")
        yield
        shutil.move(kept, path)
        Path(f"{path}.other").unlink(missing_ok=True)

    def wrong_files(self, instant, run):
        written, out = self.commands.written(), self.commands.out
        whole = [self.old, self.new, self.of_others.get(Path(instant.call.path).name, {})]
        for file in written:
            if not any(is_one_of(written, file, files) for files in whole):
                yield f"{file} is partial"
            done = out / f"{file}.done"
            if done.exists() and not any(digest(path) in done.read_text() for path in (out / file, self.earlier / file)):
                yield f"{done.name} is of no file"
        if lost := self.old.keys() - written.keys():
            yield f"{sorted(lost)} are lost"
        left = {name for name in self.commands.unfinished() if not name.endswith(".part.tmp")}  # which the next run replaces
        if run.code == 1 and instant.call.kind in ("write", "close", "reserve", "sync", "await") or ".lock" in instant.call.path:
            # HDF5 cannot go on after such an error, and the job is aborted: as after a kill its lock stays
            left = {name for name in left if ".tmp." in name or not name.endswith(".lock")}
        if left and instant.fault != KILLED and instant.call.kind != "remove":
            yield f"{sorted(left)} are left"

    def wrong_end(self, instant, run):
        call = instant.call
        cause = "" if instant.fault in EFFECTS else os.strerror(instant.error())
        subject = re.split(r"\.(?:tmp|lock|done|part)\b", Path(call.path).name)[0].strip("*")

        def names(line):
            return subject in line and cause in line

        if run.code == 0:
            if call.kind == "read" and cause and not (any(map(names, run.notices)) and PERSISTENT not in instant.fault):
                yield "goes on without a notice"
            if call.kind in ("write", "sync", "rename"):
                yield "goes on"
            if instant.fault != REPLACED and not same(self.commands.written(), self.new):
                yield "is done without its files"
            return
        may_be_input = call.kind == "open" and instant.fault == "EACCES" or instant.fault == REPLACED
        if run.code != 1 and not (run.code == 2 and may_be_input) or instant.fault == SLOW:
            yield f"exit code {run.code}"
        if len(run.errors) != 1:
            yield f"{len(run.errors)} messages: {run.errors or run.stderr[-600:]}"
        elif not names(run.errors[0]):
            yield f"the message does not say {subject} and {cause}: {run.errors[0]}"


def main():
    program, mpiexec, library = map(os.path.abspath, sys.argv[1:4])
    count, names = int(sys.argv[4]), sys.argv[5:] or list(COMMANDS)
    tried, violated = Counter(), Counter()
    with tempfile.TemporaryDirectory(prefix="headspan_storage_") as temporary:
        folder = str(Path(temporary).resolve())
        commands = Commands(program, mpiexec, library, Path(folder))
        for name in names:
            for ranks in (1, 2):
                fault = Fault(commands, name, ranks)
                for instant in sample(list(fault.instants()), count):
                    found = list(fault.meet(instant))
                    tried[instant.fault] += 1
                    violated[instant.fault] += bool(found)
                    for violation in found:
                        at = f"{name}, {ranks} ranks, {instant.rule()} on rank {instant.call.rank}"
                        print(f"{at}: {violation}".replace(folder, ""), file=sys.stderr, flush=True)
    print("| fault | instants | violations |\n| --- | --- | --- |")
    for name in sorted(tried):
        print(f"| {name} | {tried[name]} | {violated[name]} |")
    sys.exit(1 if violated.total() else 0)


if __name__ == "__main__":
    main()
