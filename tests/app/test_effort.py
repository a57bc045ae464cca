"""What calibrate says of compress.effort = auto, through the program: which work it chose, and that it is done.

usage: test_effort.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import read_safetensors
from program import GOLDEN, StudyTest, main
from splitmix64 import splitmix64

LENGTH, TOKENS, EOS, FIRST = 40, 800, 63, 4
SAYS = "headspan: notice: compress.effort = auto: "
MEASURED = "the loss of compressing each layer is measured"
NOT_QUICK = "; not with compress.effort = quick"
MOST_OPERATIONS = 2e14  # of the forwards that measure


def fit_tokens(heldout):
    """Returns how many tokens are fitted: those of sequences that are not held out, without the first ones of each."""
    sequences = TOKENS // LENGTH
    chosen = sorted(range(sequences), key=lambda i: splitmix64(0, i))[int(heldout * sequences + 0.5):]
    return len(chosen) * (LENGTH - FIRST)


def write_deep_model(folder, layers):
    """Writes a llama model of that many small layers to a new folder and returns how many weights it has. All are 0, in a file
    with a hole."""
    folder.mkdir()
    config = json.loads((GOLDEN / "llama_gqa" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    header, end = {}, 0
    for name, values in read_safetensors(GOLDEN / "llama_gqa" / "model.safetensors").items():
        if ".layers.1." in name:
            continue
        for layer in range(layers) if ".layers.0." in name else (0,):
            header[name.replace(".layers.0.", f".layers.{layer}.")] = {
                "dtype": "BF16", "shape": list(values.shape), "data_offsets": [end, end + 2 * values.size]}
            end += 2 * values.size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end // 2


class Effort(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("fit.bin", np.random.default_rng(4).integers(3, EOS, TOKENS))

    def options(self, folder, **more):
        keys = {"model.path": folder, "tokens.path": self.tokens, "tokens.eos": EOS, "tokens.sequence_length": LENGTH,
                "tokens.limit": TOKENS, "tokens.heldout": 0.25, "compress.plan": self.folder / "plan.h5",
                **{f"compress.{key}": value for key, value in more.items()}}
        return [f"--{key}={value}" for key, value in keys.items()]

    def test_what_a_small_model_is_told_is_done(self):
        own = fit_tokens(0.25)
        text = f"the model generates {own} tokens to calibrate on too"
        for more, told, units, own_text in (
                ({}, f"{MEASURED}, and {text}{NOT_QUICK}", "measured", own),
                ({"algorithm": "headspan"}, MEASURED + NOT_QUICK, "measured", 0),
                ({"own_text": 0}, MEASURED + NOT_QUICK, "measured", 0),
                ({"units": "residual"}, text + NOT_QUICK, "residual", own),
                ({"units": "residual", "own_text": 0}, None, "residual", 0),
                ({"effort": "full"}, None, "measured", own), ({"effort": "quick"}, None, "residual", 0),
                ({"algorithm": "paper-text"}, None, "residual", 0)):
            with self.subTest(**more):
                run = self.run_program(2, "calibrate", *self.options(GOLDEN / "qwen3", stored=0.5, **more))
                self.assertEqual(run.returncode, 0, run.stderr)
                said = [line for line in run.stderr.splitlines() if "compress.effort" in line]
                self.assertEqual(said, [SAYS + told] if told else [])
                with h5py.File(self.folder / "plan.h5") as plan:
                    self.assertEqual(np.bytes_(plan.attrs["units"]).decode(), units)
                    self.assertEqual(plan.attrs["own_text"], own_text)

    def test_a_model_that_takes_too_long_is_run_once(self):
        """Models a little below the limit and above it. Nobody waits for their plans."""
        for layers, told in ((3500, MEASURED), (3750, "the model is run once, because of its size; with compress.effort = full "
                                                      "the loss of compressing each layer is measured")):
            with self.subTest(layers=layers):
                folder = self.folder / f"deep{layers}"
                weights = write_deep_model(folder, layers)
                operations = 2 * layers * 512 * 2 * weights  # a forward of 512 tokens for each layer of both streams
                self.assertEqual(operations <= MOST_OPERATIONS, told == MEASURED)
                self.assertLess(abs(operations / MOST_OPERATIONS - 1), 0.15)
                command = [self.program, "calibrate", *self.options(folder, stored=0.5, own_text=0)]
                with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
                    said = []
                    for line in run.stderr:
                        said.append(line)
                        if "compress.effort" in line:
                            break
                    run.kill()
                self.assertIn(SAYS + told + (NOT_QUICK if told == MEASURED else "") + "\n", said)


if __name__ == "__main__":
    main()
