#!/usr/bin/env python3
"""The training runs behind tiny-pythia: GPT-NeoX architecture (Pythia's), 0.18 M parameters, one run for each seed.

    python3 train.py CORPUS OUT SEED

CORPUS is the folder that `../tiny-olmo2/make_corpus.py --vocabulary 512` wrote. OUT gets seedSEED-step0, seedSEED-step10, ...
(Hugging Face folders in bfloat16) and seedSEED.state, from which the same command continues after an interruption.
The seed changes the initial weights and the order of the text. About 8 minutes on one CPU thread. Needs numpy, torch and
transformers.

Half of the sequences are spans that repeat: half of these of text, half of random ids. Sequences are short at first. So
induction heads form within 400 steps; with sequences of 256 from the start seed 1 had none at step 1500.
"""
import argparse
import copy
import math
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

STEPS = 3000
SAVED_STEPS = {0, 10, 30, 100, 200, 300, 400, 800, 1500, STEPS}
STATE_EVERY = 250  # steps
BATCH_TOKENS = 4096
LENGTHS = {0: 32, 400: 64, 800: 128, 1200: 256}  # step -> tokens of a sequence from there on
LONGEST = 256
PEAK_RATE = 5e-3
WARMUP_STEPS = 100

CONFIG = GPTNeoXConfig(
    vocab_size=512, hidden_size=64, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
    max_position_embeddings=LONGEST, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
    initializer_range=0.08,  # Pythia's: sqrt(2 / (5 hidden_size))
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})


def learning_rate(step):
    """Linear warm-up, then half a cosine down to a tenth of the peak."""
    warmup = min(1, (step + 1) / WARMUP_STEPS)
    return PEAK_RATE * warmup * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))


def next_token_loss(model, tokens):
    """Mean cross entropy of tokens[:, 1:] given what stands before them. tokens: [sequence, length + 1]."""
    return cross_entropy(model(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten())


def length_at(step):
    """Tokens of a sequence."""
    return next(length for start, length in reversed(LENGTHS.items()) if start <= step)


def repeated(window, generator, is_random):
    """As many tokens as the window has: its first, an eighth to a half of them, again and again. If `is_random`, random
    ids that all differ, without id 0, take their place."""
    span = window[:generator.integers(len(window) // 8, len(window) // 2 + 1)]
    if is_random:
        span = 1 + generator.permutation(CONFIG.vocab_size - 1)[:len(span)]
    return np.resize(span, len(window))


def random_batch(data, length, generator):
    """Windows of the token stream; the first half of them repeats. Returns [BATCH_TOKENS / length, length + 1]."""
    count = BATCH_TOKENS // length
    windows = [data[i:i + length + 1] for i in generator.integers(0, len(data) - length - 1, count)]
    for i in range(count // 2):
        windows[i] = repeated(windows[i], generator, is_random=i % 2 == 1)
    return torch.from_numpy(np.stack(windows).astype(np.int64))


class Run:
    """The training run of a seed. Its files are in a folder and begin with its name."""

    def __init__(self, folder, seed):
        torch.manual_seed(seed)
        self.name = f"seed{seed}"
        self.folder = folder
        self.state = folder / f"{self.name}.state"
        self.step = 0
        self.model = GPTNeoXForCausalLM(CONFIG)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.1)
        self.generator = np.random.default_rng(seed)

    def advance(self, data):
        """Trains one step."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step)
        loss = next_token_loss(self.model, random_batch(data, length_at(self.step), self.generator))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1

    def save_checkpoint(self):
        copy.deepcopy(self.model).to(torch.bfloat16).save_pretrained(self.folder / f"{self.name}-step{self.step}")

    def save_state(self):
        state = {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "generator": self.generator.bit_generator.state}
        unfinished = self.state.with_suffix(".tmp")
        torch.save(state, unfinished)
        unfinished.replace(self.state)

    def load_state(self):
        """Continues from the saved state, if there is one."""
        if not self.state.exists():
            return
        state = torch.load(self.state)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.bit_generator.state = state["generator"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder with train.bin")
    parser.add_argument("out", type=Path, help="folder to write the checkpoints to")
    parser.add_argument("seed", type=int)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    data = np.memmap(arguments.corpus / "train.bin", np.uint16, "r")
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = Run(arguments.out, arguments.seed)
    run.load_state()
    while True:
        if run.step in SAVED_STEPS:
            run.save_checkpoint()
        if run.step % STATE_EVERY == 0:
            run.save_state()
            print(f"{run.name} step {run.step}", flush=True)
        if run.step == STEPS:
            return
        run.advance(data)


if __name__ == "__main__":
    main()
