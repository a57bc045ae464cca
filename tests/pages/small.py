"""Replaces headspan in the copy of test_blocks.py: runs the real program on few tokens and few checkpoints.

usage: small.py PROGRAM WORD...
"""
import os
import sys
from pathlib import Path

# The most that a command reads; longer runs would find no other mistakes in a page.
SMALL = {"study": {"tokens.limit": 1500, "tokens.sequence_length": 128},
         "calibrate": {"tokens.limit": 1500, "tokens.sequence_length": 128},
         "evaluate": {"tokens.limit": 400, "tokens.sequence_length": 128},
         "theory": {"theory.trials": 1, "theory.hidden_size": 512}}


def shortened(words):
    """Returns the arguments of a command with smaller numbers. Jobs without a token file are unchanged."""
    limits = dict(SMALL.get(words[0] if words else "", {}))
    text = " ".join(words) + "".join(Path(word).read_text() for word in words if word.endswith(".ini"))
    if "activations" in text or "grams.paths" in text or "--help" in words:
        return words
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if "jobs/quickstart.ini" in words:
        words += ["--model.select", "step30,step3000"]
    for place, word in enumerate(words):
        if word.removeprefix("--") in limits:
            words[place + 1] = str(min(int(words[place + 1]), limits.pop(word.removeprefix("--"))))
    return words + [f"--{key}={value}" for key, value in limits.items()]


if __name__ == "__main__":
    program, *given = sys.argv[1:]
    os.execv(program, [program, *shortened(given)])
