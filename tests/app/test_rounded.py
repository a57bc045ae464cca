"""Algorithms that round all columns, through the program: losses with heads of several blocks of 32 columns and with several groups
of 32 tokens, against numpy, and the bytes that plans store, against formulas.

usage: test_rounded.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import sys
from math import ceil
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import cached_forward
import rounding
from compression_case import CompressionTest
from forward import Model
from program import GOLDEN, main
from samples import write_wide_heads

LONG, FIRST = 100, 3  # tokens of a window: three groups of 32 behind the first ones
BITS = (("kivi", 2), ("kivi", 4), ("rotated-q4", None), ("rotated-q8", None), ("oscar", 3), ("oscar", 4), ("hadamard", 2),
        ("hadamard", 5))


class Rounded(CompressionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(9)
        cls.folders = {d: write_wide_heads(cls.folder / f"wide{d}", rng, d) for d in (64, 80)}
        ids = rng.integers(3, 63, 2 * LONG)
        cls.long = cls.write_tokens("long.bin", ids)
        cls.windows = np.split(ids, 2)

    def plan_of(self, folder, algorithm, bits):
        more, name = {} if bits is None else {"bits": bits}, f"{folder.name}{algorithm}{bits}"
        path = self.folder / f"{name}.plan.h5"
        return path if path.exists() else self.calibrate(1, folder, name, algorithm=algorithm, exact_first=FIRST, **more)

    def test_heads_of_several_blocks(self):
        """80 columns are two blocks of 32 and one of 16."""
        for number, (d, algorithm, bits) in enumerate(((64, "kivi", 2), (64, "kivi", 4), (64, "rotated-q4", None),
                                                       (64, "rotated-q8", None), (80, "kivi", 2), (80, "rotated-q4", None),
                                                       (80, "rotated-q8", None), (80, "hadamard", 3), (64, "oscar", 2))):
            folder = self.folders[d]
            path = self.plan_of(folder, algorithm, bits)
            expected = cached_forward.summary(Model(folder), self.windows, cached_forward.read_plan(path), self.ends(folder))
            for ranks, cache in ((1, "simulated"), (1 + number % 3, "compressed")):
                with self.subTest(d=d, algorithm=algorithm, bits=bits, cache=cache):
                    found = self.evaluate(ranks, folder, "wide", plan=path, cache=cache, texts=self.long, batch=2,
                                          **{"tokens.sequence_length": LONG, "run.tensor_parallel": 1 + (ranks == 2)})["texts"]["long"]
                    for field in ("loss", "full_loss", "kl", "kl_se", "dloss"):
                        near = 6 if field in ("loss", "full_loss") else 4
                        self.assertAlmostEqual(found[field] / expected[field], 1, near, field)

    def test_bytes_are_those_of_codes_and_scales(self):
        """On heads of 64 columns, of 80, and of 12, whose codes of 3 and 5 bits do not fill their last byte."""
        for folder in (*self.folders.values(), GOLDEN / "qwen3"):
            model = Model(folder)
            for algorithm, bits in BITS:
                with self.subTest(model=folder.name, algorithm=algorithm, bits=bits), \
                        h5py.File(self.plan_of(folder, algorithm, bits)) as plan:
                    expected = {s: self.bytes_of_layer(s, algorithm, bits, model.kv_heads, model.d) for s in "kv"}
                    self.assertEqual(plan.attrs["bytes_stored"], model.layers * sum(expected.values()))
                    self.assertEqual(plan.attrs["bytes_full"], model.layers * 2 * 2 * model.kv_heads * model.d)
                    for s in "kv":
                        columns = plan[f"{s}/0"].attrs["band_columns"].tolist()
                        group = rounding.group_of(algorithm, model.kv_heads, model.d, bits, s)
                        self.assertEqual(columns, group["band_columns"])
                        self.assertEqual(plan[f"{s}/0"].attrs["band_bits"].tolist(), group["band_bits"])
                        self.assertEqual(rounding.share_of(algorithm, group, s), expected[s] / (2 * model.kv_heads * model.d))

    def test_the_largest_batch_has_room_for_tokens_that_wait(self):
        folder = self.folders[64]
        found = self.evaluate(1, folder, "batch", plan=self.plan_of(folder, "kivi", 4), texts=self.long, exact_recent=5,
                              **{"tokens.sequence_length": LONG, "run.memory_gib": 1})
        of, kept = found["bytes_per_token"], FIRST + 5 + 31  # 31 of 32 wait
        free = found["full_largest_batch"] * of["full"] * LONG  # up to one sequence
        expected = free / (of["stored"] * LONG + of["exact"] * kept)
        self.assertAlmostEqual(found["largest_batch"] / expected, 1, 3)

    @staticmethod
    def bytes_of_layer(s, algorithm, bits, heads, d):
        """Returns the bytes per token of a stream of a layer. A scale, an offset and a norm have 16 bits each."""
        number, blocks = 2, [min(32, d - begin) for begin in range(0, d, 32)]
        if algorithm == "hadamard":
            return heads * (ceil(d * bits / 8) + number)  # a norm
        if algorithm == "oscar":
            return heads * (ceil(d * bits / 8) + 2 * number)  # a scale and an offset
        if algorithm.startswith("rotated-q"):
            return heads * sum(ceil(block * int(algorithm[-1]) / 8) + number for block in blocks)  # scales
        if s == "v":
            return heads * sum(ceil(block * bits / 8) + 2 * number for block in blocks)
        columns = heads * d  # of keys: a scale and an offset of each column for 32 tokens, as many of them with each token
        return ceil(columns * bits / 8) + ceil(columns / 32) * 2 * number


if __name__ == "__main__":
    main()
