"""headspan_capture without transformers: Grams of given values against numpy, and the study that headspan makes of them;
sequences and held-out choice against the references of tests/reference; what is refused.

usage: test_capture.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
from forward import cut
from program import TESTS, StudyTest, main
from splitmix64 import splitmix64

from headspan.error import InputError
from headspan_capture import GramAccumulator
from headspan_capture.sample import SampleRule, choose_heldout, take_sample

LAYERS, HEADS, D = 2, 3, 4


def rows_of(file, stream, part, heads, d):
    """Returns mean and cross-products of a part of a Gram file, as a whole symmetric matrix."""
    group = file[stream][part]
    whole = np.zeros((heads * d, heads * d))
    for a in range(heads):
        for b in range(a + 1):
            tile = group["tiles"][a * (a + 1) // 2 + b]
            whole[a * d:(a + 1) * d, b * d:(b + 1) * d], whole[b * d:(b + 1) * d, a * d:(a + 1) * d] = tile, tile.T
    return group["mean"][:], whole


class Accumulator(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(2)
        cls.values = rng.standard_normal((300, 9)) @ rng.standard_normal((9, LAYERS * HEADS * D)) + 1000
        cls.values += rng.standard_normal(cls.values.shape)

    def gram(self, sizes=(50, 1, 149, 100), heldout=(False, True, False, True), **more):
        gram = GramAccumulator(layers=LAYERS, heads=HEADS, head_size=D, **more)
        begin = 0
        for size, held in zip(sizes, heldout):
            batch = self.values[begin:begin + size].reshape(size, LAYERS, HEADS, D)
            for layer in (1, 0):
                for head in range(HEADS):
                    gram.add(layer, head, batch[:, layer, head], heldout=held)
            begin += size
        return gram

    def test_sums_are_those_of_numpy(self):
        self.gram(stream="v").write(self.folder / "sums.gram.h5", model_name="mine", step=7)

        with h5py.File(self.folder / "sums.gram.h5") as file:
            for part, rows in (("fit", np.r_[0:50, 51:200]), ("heldout", np.r_[50, 200:300])):
                values = self.values[rows]
                mean, products = rows_of(file, "v", part, LAYERS * HEADS, D)
                self.assertEqual(file["v"][part].attrs["tokens"], len(rows))
                np.testing.assert_allclose(mean, values.mean(0), rtol=1e-14)
                np.testing.assert_allclose(products, np.cov(values.T, bias=True) * len(rows), rtol=0,
                                           atol=1e-12 * np.abs(products).max())

    def test_headspan_studies_them_as_it_does_the_activations(self):
        self.gram(hidden_size=64).write(self.folder / "mine.gram.h5", model_name="mine")
        sequence = np.repeat([0, 1, 2, 3], [50, 1, 149, 100])
        path = self.write_activations("mine.h5", self.values[np.r_[0:50, 51:200]].reshape(-1, LAYERS * HEADS, D),
                                      np.repeat([0, 1], HEADS), np.tile(np.arange(HEADS), LAYERS), hidden_size=64,
                                      sequence=sequence[np.r_[0:50, 51:200]])

        ours, = self.study(2, "grams", {"grams.paths": self.folder / "mine.gram.h5"})
        theirs, = self.study(1, "activations", {"activations.path": path, "tokens.heldout": 0})

        with h5py.File(ours) as a, h5py.File(theirs) as b:
            for name in ("r2", "r2_pairwise", "r2_forward", "ceiling_layer", "effective_rank"):
                np.testing.assert_allclose(a["k"][name][:], b["k"][name][:], rtol=0, atol=1e-10, err_msg=name)
            self.assertEqual(a["k/r2_heldout"].shape, (LAYERS * HEADS, LAYERS * HEADS))

    def test_what_does_not_go_together_is_refused(self):
        values = self.values[:9, :D]
        for message, call in (
                ("layer 2 head 0: is not among the heads", lambda gram: gram.add(2, 0, values)),
                ("layer 0 head 0 = 9x3: has the wrong shape; [tokens, 4]", lambda gram: gram.add(0, 0, values[:, :3])),
                ("layer 0 head 1: is given twice, and 5 heads of the batch are missing",
                 lambda gram: [gram.add(0, 1, values) for _ in range(2)]),
                ("layer 0 head 1 = 8: are not the tokens of the other heads",
                 lambda gram: (gram.add(0, 0, values), gram.add(0, 1, values[:8]))),
                ("are not the tokens of the other heads", lambda gram: (gram.add(0, 0, values), gram.add(0, 1, values, True))),
                ("k: 5 heads of the last batch are missing",
                 lambda gram: (gram.add(0, 0, values), gram.write(self.folder / "no.gram.h5"))),
                ("k: has no tokens to fit on", lambda gram: gram.write(self.folder / "no.gram.h5")),
                ("stream = x: is not known", lambda gram: GramAccumulator(1, 1, 1, stream="x"))):
            with self.subTest(message), self.assertRaisesRegex(InputError, re.escape(message)):
                call(GramAccumulator(LAYERS, HEADS, D))
        self.assertFalse((self.folder / "no.gram.h5").exists())

    def test_the_example_of_the_page_runs(self):
        page = (TESTS.parent / "analysis" / "README.md").read_text()
        code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "GramAccumulator" in block)
        self.assertLessEqual(len(code.splitlines()), 12)
        names = {}
        exec(code.replace('"mine.gram.h5"', repr(str(self.folder / "page.gram.h5"))), names)

        result, = self.study(1, "page", {"grams.paths": self.folder / "page.gram.h5"})

        with h5py.File(result) as file:
            self.assertTrue(np.isfinite(file["v/r2_heldout"][0, 1]))


class Samples(StudyTest):
    def test_sequences_and_choice_are_headspans(self):
        ids = np.random.default_rng(3).integers(0, 64, 900)
        for length, limit, ends in ((30, 517, (2,)), (2048, 30000, (5, 9)), (1, 40, ())):
            path = self.write_tokens("ids.bin", ids)
            sample = take_sample(path, SampleRule(sequence_length=length, limit=limit, seed=4), 64, ends)
            expected = cut(list(ids), ends, length, limit)
            self.assertEqual([list(s) for s in sample.sequences], [list(ids[a:a + n]) for a, n in expected])
            chosen = sorted(range(len(expected)), key=lambda i: splitmix64(4, i))[:int(0.25 * len(expected) + 0.5)]
            self.assertEqual([i for i, held in enumerate(sample.heldout) if held], sorted(chosen))
        self.assertEqual(choose_heldout(1, 0.5, 0), [False])
        self.assertEqual(sum(choose_heldout(3, 0.01, 0)), 1)

    def test_a_sidecar_says_what_ends_a_text(self):
        ids = np.array([5, 6, 7, 5, 6, 9, 5], "<u4")
        path = self.folder / "side.bin"
        ids.tofile(path)
        path.with_suffix(".json").write_text(json.dumps({"dtype": "uint32", "eos": [6], "count": 7}))
        sample = take_sample(path, SampleRule(), 64, (9,))
        self.assertEqual([list(s) for s in sample.sequences], [[5, 6], [7, 5, 6], [9, 5]])

    def test_bad_tokens_are_refused(self):
        path = self.write_tokens("bad.bin", np.array([1, 2, 70]))
        with self.assertRaisesRegex(InputError, "position 2 = 70: is not in the vocabulary of 64 ids"):
            take_sample(path, SampleRule(), 64, ())
        with self.assertRaisesRegex(InputError, "none.bin: is no file"):
            take_sample(self.folder / "none.bin", SampleRule(), 64, ())
        np.zeros(5, "u1").tofile(self.folder / "odd.bin")
        with self.assertRaisesRegex(InputError, "size = 5: is not that of ids of 2 bytes"):
            take_sample(self.folder / "odd.bin", SampleRule(), 64, ())
        (self.folder / "mega.idx").touch()
        self.write_tokens("mega.bin", np.array([1, 2]))
        with self.assertRaisesRegex(InputError, "is a Megatron file"):
            take_sample(self.folder / "mega.bin", SampleRule(), 64, ())


if __name__ == "__main__":
    main()
