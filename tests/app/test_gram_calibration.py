"""calibrate from saved Grams: the moments of attention against numpy, plans against those from a model and tokens.

usage: test_gram_calibration.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from calibration import calibrate
from forward import Model
from moments import moments
from program import GOLDEN, StudyTest, main
from samples import predictable_ids

LENGTH, TOKENS, EOS, FIRST = 40, 2000, 63, 4
STOPPED = 3


class GramCalibration(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ids = predictable_ids(np.random.default_rng(4), TOKENS, EOS)
        cls.sequences = np.split(ids, range(LENGTH, TOKENS, LENGTH))
        cls.tokens = cls.write_tokens("ids.bin", ids)
        cls.halves = [cls.write_tokens(f"half{i}.bin", half) for i, half in enumerate(np.split(ids, [3 * TOKENS // 5]))]

    def run_command(self, ranks, command, keys, code=0):
        run = self.run_program(ranks, command, *(f"--{key}={value}" for key, value in keys.items() if value != ""))
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    @staticmethod
    def text(model, tokens):
        """The keys that study and calibrate share."""
        return {"model.path": GOLDEN / model, "model.dtype": "float64", "tokens.path": tokens, "tokens.eos": EOS,
                "tokens.sequence_length": LENGTH, "tokens.limit": TOKENS, "tokens.heldout": 0}

    def study_keys(self, model, name, tokens=None, **more):
        return {**self.text(model, tokens or self.tokens), "tokens.skip_first": FIRST, "predict.references": 1,
                "predict.selection": "pairwise", "ceiling.enabled": "false", "overlap.enabled": "false",
                "output.directory": self.folder / name, "output.save_gram": "true", **more}

    def grams(self, ranks, model, name, tokens=None, **more):
        """Runs a study; returns its Gram file."""
        self.run_command(ranks, "study", self.study_keys(model, name, tokens, **more))
        return self.gram_of(name)

    def gram_of(self, name):
        path, = (self.folder / name).rglob("*.gram.h5")
        return path

    def plan(self, ranks, name, keys, **compress):
        """Calibrates from Grams, or from a model and tokens; returns {name: values} of the plan."""
        path = self.folder / f"{name}.plan.h5"
        compress = {f"compress.{key}": value for key, value in compress.items()}
        self.run_command(ranks, "calibrate", {"compress.effort": "quick", **keys, **compress, "compress.plan": path})
        return self.values(path)

    @staticmethod
    def values(path):
        """Datasets, and attributes as OBJECT@NAME."""
        found = {}
        with h5py.File(path) as file:
            def visit(name, item):
                found.update({f"{name}@{key}": value for key, value in item.attrs.items()})
                if isinstance(item, h5py.Dataset):
                    found[name] = item[...]
            file.visititems(visit)
            found.update({f"@{key}": value for key, value in file.attrs.items()})
        return found

    def attention(self, path):
        with h5py.File(path) as file:
            return {name: file["attention"][name][...] for name in ("scale", "query", "output")}

    def assert_same(self, found, expected, rtol):
        """Compares plans except for how and when they were made; the signs of latents are arbitrary."""
        ignored = {"@title", "@job", "@date_created", "@history"}
        self.assertEqual(found.keys(), expected.keys())
        for name in found.keys() - ignored:
            ours, theirs = found[name], expected[name]
            block, _, field = name.rpartition("/")
            if field in ("projection", "lift"):
                ours, theirs = (plan[f"{block}/projection"] @ plan[f"{block}/lift"] for plan in (found, expected))
            if not np.issubdtype(np.asarray(ours).dtype, np.floating):
                np.testing.assert_array_equal(ours, theirs, name)
            elif np.size(theirs):
                near = rtol * np.abs(np.nan_to_num(theirs)).max()
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=near, err_msg=name)

    def test_plans_are_those_of_model_and_tokens(self):
        cases = (("olmo2_mha", {"algorithm": "latent", "bits": "16", "stored": 0.4}, 2, 0),
                 ("llama_gqa", {"algorithm": "latent", "stored": 0.3}, 3, 0),
                 ("olmo2_mha", {"algorithm": "headspan", "stored": 0.5, "references": 2}, 1, 0.25),
                 ("olmo2_gqa", {"algorithm": "headspan", "scope": "causal", "stored": 0.5, "references": 2}, 3, 0),
                 ("olmo2_mha", {"algorithm": "paper-text", "stored": 0.6, "references": 2}, 2, 0),
                 ("olmo2_mha", {"algorithm": "paper-code", "stored": 0.6}, 4, 0))
        for number, (model, compress, ranks, heldout) in enumerate(cases):
            with self.subTest(model=model, **compress):
                more = {"tokens.heldout": heldout}
                gram = self.grams(ranks, model, f"case{number}", **more)
                expected = self.plan(ranks, f"tokens{number}", {**self.text(model, self.tokens), **more}, **compress)

                same = self.plan(ranks, f"same{number}", {"grams.paths": gram}, **compress)
                other = self.plan(ranks % 3 + 2, f"other{number}", {"grams.paths": gram, "model.path": GOLDEN / model}, **compress)

                self.assert_same(same, expected, 1e-12)
                self.assert_same(other, expected, 1e-6)
                if heldout == 0 and number != 1:  # numpy allocates bits by another rule
                    _, loss, share = calibrate(Model(GOLDEN / model), self.sequences, self.sequences[:1], **compress)
                    self.assertAlmostEqual(same["@expected_loss"] / loss, 1, 9)
                    self.assertAlmostEqual(same["@stored"], share, 9)

    def test_attention_is_that_of_the_activations(self):
        for model, ranks, more in (("olmo2_gqa", 1, {}), ("llama_gqa", 4, {"run.tensor_parallel": 2}),
                                   ("qwen3", 3, {"predict.streams": "v,k"})):
            with self.subTest(model=model, ranks=ranks):
                expected = moments(Model(GOLDEN / model), self.sequences, FIRST)
                found = self.attention(self.grams(ranks, model, f"{model}{ranks}", **more))
                np.testing.assert_allclose(found["scale"], expected.output, rtol=1e-10)
                np.testing.assert_allclose(found["query"], expected.queries, rtol=0, atol=1e-10 * expected.queries.max())
                metric = found["scale"][:, None, None, None] * found["output"]
                np.testing.assert_allclose(metric, expected.projection, rtol=0, atol=1e-10 * expected.projection.max())

    def test_files_of_two_texts_are_one_of_both(self):
        model, compress = "olmo2_gqa", {"bits": 16, "stored": 0.4}
        whole = self.grams(1, model, "whole")
        parts = [self.grams(1 + i, model, f"part{i}", half) for i, half in enumerate(self.halves)]
        paths = {"grams.paths": ",".join(map(str, parts))}
        self.run_command(2, "study", {**paths, "predict.references": 1, "output.directory": self.folder / "merged",
                                      "output.save_gram": "true"})
        merged = self.gram_of("merged")

        for name, moment in self.attention(whole).items():
            np.testing.assert_allclose(self.attention(merged)[name], moment, rtol=0, atol=1e-12 * np.abs(moment).max(),
                                       err_msg=name)
        expected = self.plan(2, "whole", {"grams.paths": whole}, **compress)
        for name, keys in (("parts", paths), ("merged", {"grams.paths": merged})):
            found = self.plan(2, name, keys, **compress)
            for path in ("@tokens_path", "@tokens_sha256"):
                found[path] = expected[path]
            self.assert_same(found, expected, 1e-6)

    def test_a_study_that_is_resumed_saves_the_same(self):
        for first, then, more in ((1, 1, {}), (4, 4, {"run.tensor_parallel": 2}), (4, 3, {"run.tensor_parallel": 2})):
            name, same = f"resumed{first}{then}", first == then
            with self.subTest(first=first, then=then):
                keys = {"predict.streams": "k,v", "run.batch_tokens": 200}
                expected = self.grams(then, "olmo2_gqa", name + "u", **keys, **(more if same else {}))
                stopped = {**self.study_keys("olmo2_gqa", name, **keys, **more), "run.time_limit": 1e-9}
                self.run_command(first, "study", stopped, STOPPED)
                self.run_command(first, "study", stopped, STOPPED)

                printed = self.run_command(then, "study", self.study_keys("olmo2_gqa", name, **keys, **(more if same else {})))

                self.assertRegex(printed, r" resumed .*pieces=\d\d")
                found, expected = self.attention(self.gram_of(name)), self.attention(expected)
                for array, values in expected.items():
                    np.testing.assert_allclose(found[array], values, rtol=0, atol=0 if same else 1e-12 * np.abs(values).max())

    def test_a_state_without_attention_is_not_resumed(self):
        keys = self.study_keys("olmo2_gqa", "without", **{"run.batch_tokens": 200})
        self.run_command(2, "study", {**keys, "output.save_gram": "false", "run.time_limit": 1e-9}, STOPPED)

        printed = self.run_command(2, "study", keys)

        self.assertIn("starts anew", printed)
        self.assertNotIn(" resumed ", printed)
        expected = moments(Model(GOLDEN / "olmo2_gqa"), self.sequences, FIRST)
        np.testing.assert_allclose(self.attention(self.gram_of("without"))["scale"], expected.output, rtol=1e-10)

    def test_only_roped_keys_with_values_have_attention(self):
        for number, more in enumerate(({"predict.capture": "normed"}, {"predict.streams": "k,q"}, {"predict.streams": "v"})):
            with h5py.File(self.grams(1, "olmo2_gqa", f"none{number}", **more)) as file:
                self.assertNotIn("attention", file)
                self.assertGreater(len(file), 0)

    def test_inspect_says_whether_calibrate_can_use_a_file(self):
        for name, streams in (("with", "k,v"), ("none", "k")):
            run = self.run_program(1, "inspect", self.grams(1, "olmo2_gqa", f"inspect_{name}", **{"predict.streams": streams}))
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual("attention    of 4 query heads" in run.stdout, name == "with", run.stdout)

    def test_unsuitable_grams_are_refused(self):
        good = self.grams(1, "olmo2_gqa", "good")
        early = self.grams(1, "olmo2_gqa", "early", **{"tokens.skip_first": 1})
        few = self.grams(1, "olmo2_gqa", "few", **{"tokens.limit": 30})
        other = self.grams(1, "llama_gqa", "other")
        normed = self.grams(1, "olmo2_gqa", "normed", **{"predict.capture": "normed"})
        keys_only = self.grams(1, "olmo2_gqa", "keys", **{"predict.streams": "k"})
        drawn, other_seed = (self.grams(1, "olmo2_gqa", name, **{"model.init": "random", "model.seed": seed})
                             for seed, name in enumerate(("drawn", "other_seed")))

        def changed(name, change):
            path = self.folder / f"{name}.h5"
            path.write_bytes(good.read_bytes())
            with h5py.File(path, "r+") as file:
                change(file)
            return path

        old = changed("old", lambda file: file.pop("attention"))
        broken = changed("broken", lambda file: file["attention"].pop("output"))
        flat = changed("flat", lambda file: file["attention"].pop("query"))
        uneven = changed("uneven", lambda file: file["attention"].attrs.modify("tokens", 7))
        fewer = changed("fewer", lambda file: file.move("v", "w"))
        olmo2, plan = GOLDEN / "olmo2_gqa", self.folder / "none.plan.h5"
        for number, (keys, message) in enumerate((
                ({"grams.paths": good, "model.path": GOLDEN / "llama_gqa"}, r"good\S+: config_sha256 = \w+: is not that of"),
                ({"grams.paths": f"{good},{other}"}, r"other\S+: config_sha256 = \w+: the files before have"),
                ({"grams.paths": f"{good},{drawn}"}, r"drawn\S+: init = random: the files before have pretrained; "),
                ({"grams.paths": f"{drawn},{other_seed}"}, r"other_seed\S+: attention/output: is that of other weights"),
                ({"grams.paths": f"{good},{early}"}, r"early\S+: k skip_first = 1"),
                ({"grams.paths": early}, r"early\S+: skip_first = 1: .*; study with tokens.skip_first = 4, or give "),
                ({"grams.paths": few}, r"few\S+: tokens = 26: are too few to fit the 16 columns"),
                ({"grams.paths": normed}, r"normed\S+: k capture = normed: .*; .*predict.capture = roped"),
                ({"grams.paths": keys_only}, r"keys\S+: attention: is missing: .*; .*output.save_gram = true"),
                ({"grams.paths": f"{good},{old}"}, r"old.h5: attention: is missing: .*; .*output.save_gram = true"),
                ({"grams.paths": broken}, r"broken.h5: attention/output: is missing; "),
                ({"grams.paths": flat}, r"flat.h5: attention/query: .*; the file is damaged"),
                ({"grams.paths": uneven}, r"uneven.h5: attention: tokens = 7: are not the 1800 of k/fit; "),
                ({"grams.paths": fewer}, r"fewer.h5: attention: does not go with the heads of k and v"),
                ({"grams.paths": self.tokens}, r"ids.bin: cannot be read as HDF5"),
                ({"grams.paths": good, "tokens.path": self.tokens}, "tokens.path = .*: is given beside grams.paths"),
                ({"grams.paths": good, "compress.units": "measured"}, "compress.units = measured: .*; .*tokens.path"),
                ({"grams.paths": good, "compress.algorithm": "headspan", "compress.stored": 0.01}, "can"),
                ({"grams.paths": good, "compress.bits": "900x8"}, "compress.bits = 900x8"),
                ({"grams.paths": good, "run.groups": 2}, "run.groups = 2"),
                ({"model.path": olmo2}, "tokens.path: is missing"),
                ({}, "model.path: is missing"))):
            for ranks in (1, 3) if number % 5 == 2 else (1,):
                with self.subTest(keys=keys, ranks=ranks):
                    printed = self.run_command(ranks, "calibrate", {**keys, "compress.plan": plan}, code=2)
                    self.assertRegex(printed, "headspan: .*" + message)
                    self.assertEqual(len(re.findall("^headspan: (?!notice)", printed, re.M)), 1, printed)
        self.assertFalse(plan.exists())

    def test_quantise_ignores_which_tokens_are_kept_exactly(self):
        found = self.plan(2, "int8", {"grams.paths": self.grams(1, "olmo2_gqa", "early8", **{"tokens.skip_first": 1})},
                          algorithm="quantise", bits=8)
        expected = self.plan(1, "int8_of_tokens", self.text("olmo2_gqa", self.tokens), algorithm="quantise", bits=8)
        for name in ("@config_sha256", "@bytes_stored", "@heads", "k/0@band_columns"):
            np.testing.assert_array_equal(found[name], expected[name], name)


if __name__ == "__main__":
    main()
