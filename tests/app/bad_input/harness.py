"""Runs the program in a sample's folder and compares what it does with a table of cases."""
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from samples import KEYS, Sample

SECONDS = 20  # the contract says 10; the machine of a test may be busy


@dataclass
class Outcome:
    code: int
    errors: list  # lines "headspan: ..." without notices and warnings
    warnings: list
    last: str  # of standard output
    seconds: float
    stderr: str


@dataclass
class Program:
    path: str
    mpiexec: str
    ranks: int

    def command(self, arguments):
        """A single rank runs without a launcher, as on a laptop."""
        launcher = [self.mpiexec, "-n", str(self.ranks)] if self.ranks > 1 else []
        return launcher + [self.path, *arguments]

    def run(self, folder, arguments):
        start = time.monotonic()
        # mpiexec would wait two seconds for the other ranks when one has ended with an error
        environment = os.environ | {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
        run = subprocess.run(self.command(arguments), cwd=folder, capture_output=True, text=True, timeout=120, env=environment)
        return outcome(run.returncode, run.stdout, run.stderr, time.monotonic() - start)

    def study(self, folder, keys):
        return self.run(folder, ["study", *options(keys)])


def outcome(code, stdout, stderr, seconds):
    lines = [line[len("headspan: "):] for line in stderr.splitlines() if line.startswith("headspan: ")]
    errors = [line for line in lines if not line.startswith(("notice: ", "warning: "))]
    warnings = [line[len("warning: "):] for line in lines if line.startswith("warning: ")]
    return Outcome(code, errors, warnings, (stdout.splitlines() or [""])[-1], seconds, stderr)


def options(keys):
    return [f"--{key}={value}" for key, value in keys.items()]


@dataclass
class Case:
    """`spoil(sample)` makes the input bad; `line` matches the whole error line."""
    name: str
    line: str
    spoil: Callable = lambda sample: None
    keys: dict = field(default_factory=dict)  # changed or added ones; None removes one
    code: int = 2
    base: dict = field(default_factory=lambda: KEYS)
    arguments: list | None = None  # in place of `study` and keys

    def check(self, program, folder):
        sample = Sample(folder)
        self.spoil(sample)
        before = snapshot(folder)
        keys = {key: value for key, value in (self.base | self.keys).items() if value is not None}
        found = program.run(folder, self.arguments or ["study", *options(keys)])
        expect(found.code == self.code, f"exit code {found.code}, expected {self.code}", found)
        expect(len(found.errors) == 1, f"{len(found.errors)} error lines", found)
        expect(re.fullmatch(self.line, found.errors[0]), f"printed: {found.errors[0]}\n  expected: {self.line}", found)
        expect(found.seconds < SECONDS, f"took {found.seconds:.1f} s", found)
        expect(found.last == "", f"standard output ends with {found.last}", found)
        changed = sorted(set(before.items()) ^ set(snapshot(folder).items()))
        expect(not changed, f"files were left behind or changed: {[name for name, _ in changed]}", found)


def expect(holds, what, found=None):
    if not holds:
        raise AssertionError(what + (f"\n{found.stderr}" if found else ""))


def snapshot(folder):
    """Returns {path: contents} of every file below the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def run_all(checks):
    """checks: [(name, function of a fresh folder)]. Returns the exit code; a function that returns a text is skipped."""
    failed, skipped = [], []
    for name, check in checks:
        with tempfile.TemporaryDirectory(prefix="headspan_bad_") as folder:
            try:
                why = check(Path(folder))
                if why:
                    skipped.append(name)
                    print(f"SKIPPED {name}: {why}")
            except Exception as error:  # a failing check must not hide the others
                failed.append(name)
                text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
                print(f"FAILED {name}: {text}\n", flush=True)
    print(f"{len(checks) - len(failed) - len(skipped)} passed, {len(skipped)} skipped, {len(failed)} failed: "
          f"{' '.join(failed)}")
    return 1 if failed else 0


def run_main(checks):
    """Runs a test file on its arguments, HEADSPAN MPIEXEC RANKS [NAME], and ends the process with its exit code. NAME: only
    the checks with names that hold it. checks: (name, function of the program and a fresh folder)."""
    program = Program(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    sys.exit(run_all([(name, functools.partial(check, program)) for name, check in checks if wanted in name]))


def is_root():
    return os.geteuid() == 0
