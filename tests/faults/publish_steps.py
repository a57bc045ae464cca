"""A rank is killed before every step of publishing: each call with which a command makes, closes, synchronises, locks, renames or
removes a file of its output, on each of its ranks. What must hold is what storage.py says. Prints a row of a table for each
command.

usage: publish_steps.py HEADSPAN MPIEXEC FAILING_DISK [COMMAND...]
"""
import os
import sys
import tempfile
from pathlib import Path

from storage import COMMANDS, KILLED, Call, Commands, Fault, Instant

STEPS = ("create", "reserve", "sync", "close", "rename", "remove", "lock", "await")


def steps(fault):
    """Returns every call that is a step."""
    return [Call(rank, kind, path, nth + 1) for (rank, kind, path), count in sorted(fault.made.items())
            if kind in STEPS and path.startswith(f"*{fault.commands.out}") for nth in range(count)]


def main():
    program, mpiexec, library = map(os.path.abspath, sys.argv[1:4])
    status = 0
    print("| a rank is killed before a step of | ranks | steps | violations |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="headspan_steps_") as temporary:
        folder = str(Path(temporary).resolve())
        commands = Commands(program, mpiexec, library, Path(folder))
        for name in sys.argv[4:] or list(COMMANDS):
            for ranks in (1, 2):
                fault = Fault(commands, name, ranks)
                found = {call: list(fault.meet(Instant(KILLED, call))) for call in steps(fault)}
                print(f"| {name} | {ranks} | {len(found)} | {sum(map(bool, found.values()))} |", flush=True)
                for call, violations in found.items():
                    for violation in violations:
                        print(f"{name}, {ranks} ranks, {call}: {violation}".replace(folder, ""), file=sys.stderr)
                        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
