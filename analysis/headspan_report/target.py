"""Checks, before work begins, that a command will not overwrite a file that it reads."""
import os
from pathlib import Path

from headspan.error import InputError


def check_targets(targets, inputs):
    """Refuses a target that is one of the inputs, through any link, or that exists and is not a regular file."""
    inputs = [Path(path) for path in inputs if path is not None]
    for target in filter(os.path.exists, map(Path, targets)):
        for path in inputs:
            if path.exists() and os.path.samefile(target, path):
                raise InputError("", "--output", target, f"would replace {path}, which is read", "choose another place")
        if not target.is_file():
            raise InputError("", "--output", target, "would replace what is no regular file", "choose another place")
