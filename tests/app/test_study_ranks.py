"""A study's numbers do not depend on how it is distributed, and on its precision only within stated bounds.

usage: test_study_ranks.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from compare import datasets, difference, differences
from program import GOLDEN, TINY_OLMO2, StudyTest, main

# MHA with 8 K heads of 8 coordinates; GQA with 4 K heads of 16, fewer than ranks, which also has dependent Q heads.
UNITS = ("olmo2_mha", "falcon3")
STREAMS = ("k", "q", "v", "z")


def bits(values):
    """Returns a value that is equal for bit-identical arrays; for strings a list."""
    return values.tolist() if values.dtype == object else values.tobytes()


def of_pairs(results):
    names = [stream + name for stream in STREAMS for name in ("/r2", "/r2_weighted", "/r2_heldout")]
    return {name: results[name] for name in names}


def without_tokens(results):
    """Returns the tables that can be computed from a saved Gram."""
    return {name: values for name, values in results.items() if not name.startswith(("tokens/", "overlap/"))}


class RanksTest(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = np.random.default_rng(6).integers(0, 64, 600)
        rows = [f"{name}\t{step}\t0\t{GOLDEN / name}" for step, name in enumerate(UNITS)]
        manifest = cls.folder / "manifest.tsv"
        manifest.write_text("\n".join(["name\tstep\ttokens\tpath"] + rows) + "\n")
        cls.keys = {"model.manifest": manifest, "tokens.path": cls.write_tokens("ids.bin", cls.ids),
                    "tokens.sequence_length": 23, "predict.references": 3, "model.dtype": "float64",
                    "predict.streams": ",".join(STREAMS), "cross.streams": "q:k,v:z"}

    @classmethod
    def results(cls, ranks, output, **more):
        keys = {**cls.keys, **{name.replace("__", "."): value for name, value in more.items()}}
        return [datasets(path) for path in cls.study(ranks, output, keys)]

    def assert_same(self, ours, theirs, tolerance):
        self.assertEqual({name: by for name, by in differences(ours, theirs).items() if not by <= tolerance}, {})

    def assert_all_same(self, results, expected, tolerance):
        self.assertEqual(len(results), len(expected))
        for ours, theirs in zip(results, expected):
            self.assert_same(ours, theirs, tolerance)


class Layouts(RanksTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one_rank = cls.results(1, "one_rank")

    def test_float64(self):
        layouts = [(2, {"run__tensor_parallel": 2}), (3, {"run__batch_tokens": 1}),
                   (4, {"run__groups": 2, "run__batch_tokens": 100000}),
                   (4, {"run__groups": 2, "run__tensor_parallel": 2, "run__batch_tokens": 50}),
                   (6, {"run__grid": "1x6", "run__tensor_parallel": 2}), (6, {"run__grid": "2x3"}),
                   (6, {"run__grid": "3x2", "run__tensor_parallel": 2, "run__batch_tokens": 1}),
                   (6, {"run__grid": "6x1", "run__tensor_parallel": 1})]
        for number, (ranks, more) in enumerate(layouts):
            with self.subTest(ranks=ranks, **more):
                self.assert_all_same(self.results(ranks, f"layout{number}", **more), self.one_rank, 1e-10)

    def test_float32(self):
        expected = self.results(1, "single1", model__dtype="float32")
        for ours, theirs in zip(expected, self.one_rank):
            worst = max(differences(of_pairs(ours), of_pairs(theirs)).values())
            self.assertTrue(0 < worst < 1e-4, worst)
        for ranks, more in [(4, {"run__tensor_parallel": 2}), (6, {"run__batch_tokens": 1})]:
            with self.subTest(ranks=ranks, **more):
                results = self.results(ranks, f"single{ranks}", model__dtype="float32", **more)
                self.assert_all_same(list(map(of_pairs, results)), list(map(of_pairs, expected)), 1e-6)

    def test_same_grid_twice_is_bitwise_equal(self):
        for ranks, more in [(4, {"run__grid": "2x2", "run__tensor_parallel": 2}), (2, {"model__dtype": "float32"})]:
            with self.subTest(ranks=ranks, **more):
                first, second = (self.results(ranks, f"{time}{ranks}", **more) for time in ("first", "second"))
                for ours, theirs in zip(first, second):
                    self.assertEqual([name for name in ours if bits(ours[name]) != bits(theirs[name])], [])

    def test_random_weights(self):
        weights = {"model__init": "pretrained,random", "model__seed": 3, "model__select": "olmo2_mha"}
        random, pretrained = self.results(1, "random1", **weights)
        names = sorted(p.name for p in (self.folder / "random1").rglob("*.h5"))
        self.assertEqual(names, ["olmo2_mha-random.h5", "olmo2_mha.h5"])
        self.assert_same(pretrained, self.one_rank[1], 0)
        distributed = self.results(6, "random6", run__tensor_parallel=2, run__grid="2x3", **weights)
        self.assert_all_same(distributed, [random, pretrained], 1e-10)
        other, = self.results(1, "seed4", **{**weights, "model__init": "random", "model__seed": 4})
        self.assertGreater(difference(random["k/r2"], other["k/r2"]), 1e-3)


    def test_several_threads(self):
        """Worker threads of LibTorch, BLAS and OpenMP: other sums, the same numbers to rounding."""
        weights = {"model__init": "pretrained,random", "model__select": "olmo2_mha"}
        with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
            single = self.results(1, "thread1", **weights)
        with mock.patch.dict(os.environ, OMP_NUM_THREADS="2"):
            self.assert_all_same(self.results(1, "threads2", **weights), single, 1e-10)

    def test_idle_threads_sleep(self):
        """What OpenMP and OpenBLAS read when they are loaded, in the environment of the running program."""
        for threads, user, expected in (("2", {}, ("passive", "4")), ("2", {"OMP_WAIT_POLICY": "active"}, ("active", "4")),
                                        ("1", {}, (None, None))):
            with self.subTest(threads=threads, **user):
                keys = {**self.keys, "output.directory": self.folder / f"sleep_{threads}_{len(user)}"}
                command = [self.program, "study", *(f"--{key}={value}" for key, value in keys.items())]
                environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
                environment.update(user, OMP_NUM_THREADS=threads)
                with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
                    run.stderr.readline()  # the study has started
                    entries = Path(f"/proc/{run.pid}/environ").read_text().split("\0")
                    run.communicate()
                seen = dict(entry.split("=", 1) for entry in entries if "=" in entry)
                self.assertEqual(run.returncode, 0)
                self.assertEqual((seen.get("OMP_WAIT_POLICY"), seen.get("OPENBLAS_THREAD_TIMEOUT")), expected)


class Grams(RanksTest):
    def merged(self, ranks, output, paths):
        keys = {"grams.paths": ",".join(map(str, paths)), "predict.references": 3, "predict.streams": "k,q,v,z"}
        result, = self.study(ranks, output, keys)
        return datasets(result)

    def grams_of(self, name, ids, **more):
        keys = {"model.path": GOLDEN / "falcon3", "tokens.path": self.write_tokens(name + ".bin", ids),
                "tokens.heldout": 0, "model.dtype": "float64", "predict.references": 3, **more,
                "predict.streams": "k,q,v,z", "output.save_gram": "true"}
        result, = self.study(2, name, keys)
        return datasets(result), result.with_suffix(".gram.h5")

    def test_saved_gram_gives_the_same_result_on_other_ranks(self):
        study, gram = self.grams_of("saved", self.ids, **{"tokens.heldout": 0.25, "tokens.sequence_length": 23})
        self.assertIn("k/r2_heldout", study)
        for ranks in (1, 3):
            result = self.merged(ranks, f"from_gram{ranks}", [gram])
            self.assert_same(result, without_tokens(study), 1e-10)

    def test_merged_grams_are_the_gram_of_both_texts(self):
        ends = np.flatnonzero(self.ids == 2)
        middle = ends[len(ends) // 2] + 1
        _, first = self.grams_of("first_text", self.ids[:middle])
        _, second = self.grams_of("second_text", self.ids[middle:])
        both, _ = self.grams_of("both_texts", self.ids)

        result = self.merged(2, "merged", [first, second])

        self.assert_same(result, without_tokens(both), 1e-10)


class TrainedModel(StudyTest):
    def results(self, output, **more):
        keys = {"model.path": TINY_OLMO2 / "step3000", "tokens.path": TINY_OLMO2 / "tokens/docs.fit.bin",
                "tokens.limit": 6000, "tokens.sequence_length": 128, "predict.selection": "pairwise",
                "predict.references": 1, **{name.replace("__", "."): value for name, value in more.items()}}
        return [datasets(path) for path in self.study(2, output, keys)]

    def test_precision_of_the_products(self):
        """Against products in FP64 of the same forward pass: the median pair and the worst. The worst of float32
        are those whose regressors nearly depend, those of bfloat16 in layer 0: there equal tokens have equal values,
        so that roundings add up."""
        for dtype, allowed in (("float32", {"float32": (1e-6, 3e-5), "split": (1e-6, 2e-6)}),
                               ("bfloat16", {"bfloat16": (1e-4, 3e-3)})):
            exact, = self.results(dtype, model__dtype=dtype, predict__streams="k,v")
            for precision, (median, worst) in allowed.items():
                with self.subTest(dtype=dtype, precision=precision):
                    rounded, = self.results(f"{dtype}_{precision}", model__dtype=dtype, predict__streams="k,v",
                                            predict__precision=precision)
                    for name in ("k/r2", "k/r2_weighted", "k/r2_heldout", "v/r2", "v/r2_weighted", "v/r2_heldout"):
                        by = np.abs(rounded[name] - exact[name])
                        self.assertLess(0, np.nanmax(by), name)
                        self.assertLessEqual(np.nanmedian(by), median, name)
                        self.assertLessEqual(np.nanmax(by), worst, name)

    def test_random_weights_are_as_transformers_draws_them(self):
        """The mean R2 of pairs beside that of step 0, which transformers drew, and of a random projection (d / m)."""
        random, step0 = self.results("init", model__path=TINY_OLMO2 / "step0", model__init="pretrained,random",
                                     predict__capture="proj")
        for stream in "kqv":
            ours, theirs = (np.nanmean(r[stream + "/r2"]) for r in (random, step0))
            self.assertLess(abs(ours - theirs), 0.15 * theirs, stream)
            self.assertTrue(8 / 128 < ours < 2 * 8 / 128, ours)


if __name__ == "__main__":
    main()
