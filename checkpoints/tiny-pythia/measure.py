#!/usr/bin/env python3
"""Writes manifest.tsv of the checkpoints seedN-stepS, and prints how far induction heads have formed in each.

    python3 measure.py CORPUS FOLDER

CORPUS is the folder of train.py, FOLDER the one that it wrote to. The losses are means over the first 64 windows of
valid.bin, with the stored weights in float32. The induction score of a head is the mean attention, on a sequence of
random ids that is repeated once, that a token of the second copy gives to the token after its first occurrence.
Needs numpy, torch and transformers.
"""
import argparse
import hashlib
import re
from pathlib import Path

import numpy as np
import torch
from train import BATCH_TOKENS, CONFIG, LONGEST, next_token_loss
from transformers import GPTNeoXForCausalLM

WINDOWS = 64
IDS = 100  # of a copy, all different
SEQUENCES = 16


def checkpoints(folder):
    """(seed, step, path) of each, in order."""
    found = (re.fullmatch(r"seed(\d+)-step(\d+)", path.name) for path in folder.iterdir())
    return sorted((int(name[1]), int(name[2]), folder / name[0]) for name in found if name)


def validation_loss(model, corpus):
    tokens = np.fromfile(corpus / "valid.bin", np.uint16)[:WINDOWS * (LONGEST + 1)]
    windows = torch.from_numpy(tokens.astype(np.int64)).view(WINDOWS, LONGEST + 1)
    return next_token_loss(model, windows).item()


def repeated_ids():
    """Random ids without id 0, each sequence twice in a row. Returns [SEQUENCES, 2 IDS]."""
    generator = np.random.default_rng(0)
    once = np.stack([1 + generator.permutation(CONFIG.vocab_size - 1)[:IDS] for _ in range(SEQUENCES)])
    return torch.from_numpy(np.concatenate([once, once], 1))


def induction_scores(model):
    """The score of each head. Returns [layer, head]."""
    attentions = torch.stack(model(repeated_ids(), output_attentions=True).attentions)
    # [layer, sequence, head, query, key]; the diagonal begins with the query at IDS - 1, the last of the first copy
    return attentions.diagonal(1 - IDS, -2, -1)[..., 1:].mean((1, 3))


def row(seed, step, path, loss):
    weights = path / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    return [path.name, step, step * BATCH_TOKENS, path.name, digest, weights.stat().st_size, f"{loss:.4g}", seed]


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder with valid.bin")
    parser.add_argument("folder", type=Path, help="folder with the checkpoints")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    rows = [["name", "step", "tokens", "path", "sha256", "bytes", "validation_loss", "seed"]]
    for seed, step, path in checkpoints(arguments.folder):
        model = GPTNeoXForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
        rows.append(row(seed, step, path, validation_loss(model, arguments.corpus)))
        scores = induction_scores(model)
        layer, head = divmod(int(scores.argmax()), scores.shape[1])
        print(*rows[-1][:2], f"loss {rows[-1][6]} induction {scores.max():.3f} in layer {layer} head {head}", flush=True)
    text = "".join("\t".join(map(str, cells)) + "\n" for cells in rows)
    (arguments.folder / "manifest.tsv").write_text(text)


if __name__ == "__main__":
    main()
