#!/usr/bin/env python3
"""Writes manifests of families whose revisions follow a rule: Pythia, PolyPythias and Amber.

    python3 checkpoints/families.py                 # all, into checkpoints/families
    python3 checkpoints/families.py pythia-70m      # prints one

Whether a revision exists, `fetch.py MANIFEST --list` tells. Families without such a rule (OLMo 1 and 3, SmolLM2 and 3):
`fetch.py ORG/NAME --all-revisions` lists what the hub has.
"""
import argparse
import sys
from pathlib import Path

COLUMNS = ("name", "step", "tokens", "path", "repository", "revision", "seed", "commit", "bytes", "sha256")
PYTHIA_STEPS = (0, *(2**i for i in range(10)), *range(1000, 144_000, 1000))
PYTHIA_BATCH = 1024 * 2048  # tokens of a step
SIZES = ("14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
DEDUPED = SIZES[2:]
SEVERAL_SEEDS = SIZES[:5]
SEEDS = range(1, 10)
AMBER_CHECKPOINTS = 360


def pythia(model):
    """Returns the rows of one run."""
    return [(f"step{step}", step, step * PYTHIA_BATCH, f"{model}/step{step}", f"EleutherAI/{model}", f"step{step}", "")
            for step in PYTHIA_STEPS]


def polypythias(size):
    """Returns the rows of the nine further runs of a size, which differ in their seed."""
    return [(f"seed{seed}-{name}", step, tokens, path, repository, revision, seed) for seed in SEEDS
            for name, step, tokens, path, repository, revision, _ in pythia(f"pythia-{size}-seed{seed}")]


def amber():
    """Returns the rows of LLM360's Amber; how many steps lie between two checkpoints is not published."""
    return [(f"ckpt{i:03}", i, "", f"amber/ckpt_{i:03}", "LLM360/Amber", f"ckpt_{i:03}", "") for i in range(AMBER_CHECKPOINTS)]


def families():
    """Returns name -> rows."""
    return {**{f"pythia-{size}": pythia(f"pythia-{size}") for size in SIZES},
            **{f"pythia-{size}-deduped": pythia(f"pythia-{size}-deduped") for size in DEDUPED},
            **{f"polypythias-{size}": polypythias(size) for size in SEVERAL_SEEDS}, "amber": amber()}


def manifest_text(rows):
    return "".join("\t".join(map(str, cells)) + "\n" for cells in (COLUMNS, *((*row, "", "", "") for row in rows)))


def main():
    known = families()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="?", choices=known, metavar="FAMILY", help=", ".join(known))
    family = parser.parse_args().family
    if family:
        sys.stdout.write(manifest_text(known[family]))
        return
    folder = Path(__file__).resolve().parent / "families"
    folder.mkdir(exist_ok=True)
    for name, rows in known.items():
        (folder / f"{name}.tsv").write_text(manifest_text(rows))


if __name__ == "__main__":
    main()
