#!/usr/bin/env python3
"""Prints a manifest of OLMo-2's pretraining checkpoints (stage 1), from the rule that their revisions are named by.

    python3 checkpoints/olmo2.py MODEL STEP... > checkpoints/olmo-2-7b/manifest.tsv

MODEL is 1b, 1b-early, 7b, 13b or 32b. A revision is named stage1-step{S}-tokens{T}B, where T is the number of tokens
trained on in 1e9, rounded up. Whether there is such a revision, `fetch.py MANIFEST --list` tells.
"""
import argparse

# repository, tokens of a step (sequences of 4096)
MODELS = {
    "1b": ("allenai/OLMo-2-0425-1B", 512 * 4096),
    "1b-early": ("allenai/OLMo-2-0425-1B-early-training", 512 * 4096),
    "7b": ("allenai/OLMo-2-1124-7B", 1024 * 4096),
    "13b": ("allenai/OLMo-2-1124-13B", 2048 * 4096),
    "32b": ("allenai/OLMo-2-0325-32B", 2048 * 4096),
}
COLUMNS = ("name", "step", "tokens", "path", "repository", "revision", "commit", "bytes", "sha256")


def row(model, step):
    """The cells of a checkpoint; fetch.py fills the last three."""
    repository, tokens_per_step = MODELS[model]
    tokens = step * tokens_per_step
    revision = f"stage1-step{step}-tokens{-(-tokens // 10**9)}B"
    return (f"step{step}", step, tokens, f"step{step}", repository, revision, "", "", "")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("step", type=int, nargs="+")
    arguments = parser.parse_args()

    for cells in (COLUMNS, *(row(arguments.model, step) for step in arguments.step)):
        print(*cells, sep="\t")


if __name__ == "__main__":
    main()
