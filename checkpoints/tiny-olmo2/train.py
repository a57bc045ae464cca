#!/usr/bin/env python3
"""The training run behind tiny-olmo2: OLMo-2 architecture, 1.8 M parameters, 3000 steps of 4096 tokens.

    python3 train.py CORPUS OUT

CORPUS is the folder that make_corpus.py wrote. OUT gets step0, step10, ... step3000 (Hugging Face folders in
float32; the checkpoints beside this script are stored in bfloat16). The validation loss of each is printed.
About 1.5 hours on one CPU thread. Needs numpy, torch and transformers.
"""
import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import Olmo2Config, Olmo2ForCausalLM

STEPS = 3000
SAVED_STEPS = {0, 10, 30, 100, 200, 400, 800, 1500, STEPS}
BATCH = 16  # sequences
LENGTH = 256  # tokens of a sequence
PEAK_RATE = 3e-3
WARMUP_STEPS = 100

CONFIG = Olmo2Config(
    vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=6, num_attention_heads=16,
    num_key_value_heads=16, max_position_embeddings=512, rope_theta=10000.0, rms_norm_eps=1e-6,
    tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=0)


def learning_rate(step):
    """Linear warm-up, then half a cosine down to a tenth of the peak."""
    warmup = min(1, (step + 1) / WARMUP_STEPS)
    return PEAK_RATE * warmup * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))


def next_token_loss(model, tokens):
    """Mean cross entropy of tokens[:, 1:] given what stands before them. tokens: [sequence, LENGTH + 1]."""
    return cross_entropy(model(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten())


def random_batch(data, generator):
    """BATCH windows of the token stream. Returns [BATCH, LENGTH + 1]."""
    starts = generator.integers(0, len(data) - LENGTH - 1, BATCH)
    return torch.from_numpy(np.stack([data[i:i + LENGTH + 1] for i in starts]).astype(np.int64))


def save(model, validation, step, out):
    """Writes the checkpoint of a step and prints its validation loss."""
    model.save_pretrained(out / f"step{step}")
    with torch.no_grad():
        print(f"step {step} validation loss {next_token_loss(model, validation).item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder with train.bin and valid.bin")
    parser.add_argument("out", type=Path, help="folder to write the checkpoints to")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Olmo2ForCausalLM(CONFIG)
    data = np.memmap(arguments.corpus / "train.bin", np.uint16, "r")
    validation = np.fromfile(arguments.corpus / "valid.bin", np.uint16)[:BATCH * (LENGTH + 1)]
    validation = torch.from_numpy(validation.astype(np.int64)).view(BATCH, LENGTH + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    generator = np.random.default_rng(0)
    for step in range(STEPS + 1):
        if step in SAVED_STEPS:
            save(model, validation, step, arguments.out)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = next_token_loss(model, random_batch(data, generator))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
