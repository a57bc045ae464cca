"""What the heads of a model and those of a reference say of each other (cross.model): numpy on the activations of plain forwards,
and a study of a file that holds both models' heads side by side.

usage: test_cross_model.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from check_result import token_parts
from forward import Model, cut, read_weights, write_safetensors
from program import GOLDEN, StudyTest, main
from regression import fit

COMMON = {"model.dtype": "float64", "tokens.limit": 601, "tokens.sequence_length": 30, "predict.references": 3, "predict.pool": 4,
          "predict.similarity": "cka,cca"}
REFERENCES = 3


def linear_cka(x, y):
    x, y = x - x.mean(0), y - y.mean(0)
    return np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


def canonical(x, y):
    basis = [np.linalg.qr(part - part.mean(0))[0] for part in (x, y)]
    return np.linalg.norm(basis[0].T @ basis[1]) ** 2 / min(x.shape[1], y.shape[1])


class CrossModel(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = np.random.default_rng(7).integers(0, 64, 1200)
        cls.tokens = cls.write_tokens("ids.bin", cls.ids)
        cls.deep = cls.add_layer(GOLDEN / "llama_gqa", "deep")

    @classmethod
    def add_layer(cls, model, name):
        """Returns a copy of a model with a third layer, between the other two in what its weights are."""
        folder = cls.folder / name
        folder.mkdir()
        config = json.loads((model / "config.json").read_text())
        weights = read_weights(model)
        for key in [key for key in weights if ".layers.0." in key]:
            weights[key.replace(".layers.0.", ".layers.2.")] = (weights[key] - weights[key.replace(".0.", ".1.")]) / 2
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
        write_safetensors(folder / "model.safetensors", weights)
        return folder

    def capture(self, folder, stream, point="normed"):
        """Returns {(layer, head): [tokens, d]}."""
        model = Model(folder)
        sequences = cut(list(self.ids), [2], COMMON["tokens.sequence_length"], COMMON["tokens.limit"])
        values = np.concatenate([model.capture(self.ids[a:a + n], point)[stream] for a, n in sequences])
        heads = values.shape[1] // model.layers
        return {divmod(h, heads): values[:, h] for h in range(values.shape[1])}

    def cross(self, ranks, output, model, reference, **more):
        result, = self.study(ranks, output, {**COMMON, "model.path": model, "tokens.path": self.tokens, "predict.capture": "normed",
                                             "cross.model": reference, **more})
        return result

    def compare(self, file, name, sources, targets):
        group, rows = file["cross/" + name], token_parts(file, 0)
        self.assertEqual(list(zip(group["source_layer"][:], group["source_head"][:])), list(sources))
        self.assertEqual(list(zip(group["target_layer"][:], group["target_head"][:])), list(targets))
        x, y = list(sources.values()), list(targets.values())
        self.assertEqual((group.attrs["head_size"], group.attrs["source_head_size"]), (y[0].shape[1], x[0].shape[1]))

        def fitted(target, chosen):
            regressors = np.hstack([x[s] for s in chosen])
            return fit(*(part[rows[p]] for p in range(2) for part in (regressors, y[target])))

        expected = np.array([[fitted(t, [s]) for s in range(len(x))] for t in range(len(y))])
        for place, values in enumerate(("r2", "r2_weighted", "r2_heldout")):
            np.testing.assert_allclose(group[values][:], expected[:, :, place], rtol=0, atol=1e-9, err_msg=values)
        self.assertFalse(group["status"][:].any())
        self.assertEqual(set(group["rank"][:]), {x[0].shape[1]})
        for measure, compute in (("cka", linear_cka), ("cca", canonical)):
            alike = [[compute(a[rows[0]], b[rows[0]]) for a in x] for b in y]
            np.testing.assert_allclose(group[measure][:], alike, rtol=0, atol=1e-9, err_msg=measure)
        for target in range(len(y)):
            ranked = sorted(range(len(x)), key=lambda s: -expected[target, s, 0])
            np.testing.assert_array_equal(group["references_pairwise"][target], ranked[:REFERENCES])
            self.compare_greedy(list(group["references_forward"][target]), ranked[:4],
                                lambda chosen, target=target: fitted(target, chosen)[0])
            for rule in ("pairwise", "forward"):
                chosen = group["references_" + rule][target]
                joint = np.array([fitted(target, chosen[:count]) for count in range(1, REFERENCES + 1)])
                np.testing.assert_allclose(group["r2_" + rule][target], joint[:, 0], rtol=0, atol=1e-9)
                np.testing.assert_allclose(group[f"r2_{rule}_heldout"][target], joint[:, 2], rtol=0, atol=1e-9)
                self.assertFalse((group["status_" + rule][target] & ~1).any())  # the heads of a small model may say all
        self.compare_layers(group, list(sources), list(targets), fitted)

    def compare_greedy(self, chosen, pool, r2):
        """Every head that was chosen raises R2 as much as any other of the pool would have."""
        self.assertEqual(len(set(chosen)), REFERENCES)
        for count, head in enumerate(chosen):
            best = max(r2([*chosen[:count], other]) for other in pool if other not in chosen[:count])
            self.assertIn(head, pool)
            self.assertGreater(r2(chosen[:count + 1]), best - 1e-9)

    def compare_layers(self, group, sources, targets, fitted):
        for row, (layer, _) in enumerate(targets):
            of_layer = [s for s, source in enumerate(sources) if source[0] == layer]
            expected = fitted(row, of_layer) if of_layer else (np.nan,) * 3
            self.assertEqual(group["status_layer"][row], 0 if of_layer else 16)
            np.testing.assert_allclose(group["r2_layer"][row], expected[0], rtol=0, atol=1e-9)
            np.testing.assert_allclose(group["r2_layer_heldout"][row], expected[2], rtol=0, atol=1e-9)

    def test_on_every_number_of_ranks(self):
        """Unequal counts of heads and layers, and unequal sizes of heads."""
        models = {"deeper": (GOLDEN / "olmo2_mha", self.deep), "wider heads": (GOLDEN / "olmo2_gqa", GOLDEN / "qwen3"),
                  "narrower heads": (GOLDEN / "falcon3", self.deep)}
        layouts = ((1, {}), (2, {"run.grid": "1x2", "run.tensor_parallel": 2}), (3, {}), (4, {"run.grid": "2x2"}), (6, {"run.grid": "3x2"}))
        for name, (model, reference) in models.items():
            heads = {stream: [self.capture(folder, stream) for folder in (model, reference)] for stream in "kz"}
            for ranks, more in layouts if name == "deeper" else (layouts[1], layouts[3]):
                result = self.cross(ranks, f"{name[:2]}{ranks}", model, reference, **{"predict.streams": "k,z", **more})
                with h5py.File(result) as file:
                    self.assertEqual(set(file["cross"]), {"k-reference", "reference-k", "z-reference", "reference-z"})
                    for stream, (own, other) in heads.items():
                        with self.subTest(name, ranks=ranks, stream=stream):
                            self.compare(file, f"{stream}-reference", own, other)
                            self.compare(file, f"reference-{stream}", other, own)

    def test_the_model_alone_is_studied_as_without_a_reference(self):
        more = {"predict.streams": "k,q", "cross.streams": "q:k", "output.save_gram": "true"}
        for model, reference in ((GOLDEN / "olmo2_mha", self.deep), (GOLDEN / "olmo2_gqa", GOLDEN / "qwen3")):
            with_one = self.cross(4, f"with_{model.name}", model, reference, **more)
            alone, = self.study(4, f"alone_{model.name}", {**COMMON, "model.path": model, "tokens.path": self.tokens,
                                                           "predict.capture": "normed", **more})
            with h5py.File(with_one) as file, h5py.File(alone) as expected:
                self.assertEqual(set(file) - {"cross"}, set(expected) - {"cross"})
                for group in ("k", "q", "cross/q-k"):
                    self.assertEqual(set(file[group]), set(expected[group]))
                    for name, values in expected[group].items():
                        np.testing.assert_allclose(file[group][name][:], values[:], rtol=0, atol=1e-9, err_msg=name)
            saved = [h5py.File(path.with_suffix(".gram.h5")) for path in (with_one, alone)]
            self.assertEqual({"k", "q"}, {"k", "q", "v", "z", "k-reference"} & set(saved[0]))
            regressed = [self.study(3, f"gram{k}_{model.name}", {"grams.paths": file.filename}) for k, file in enumerate(saved)]
            with h5py.File(regressed[0][0]) as file, h5py.File(regressed[1][0]) as expected:
                np.testing.assert_allclose(file["k/r2"][:], expected["k/r2"][:], rtol=0, atol=1e-9)

    def test_saved_grams_of_the_reference(self):
        """Its own Gram is not summed again: at every number of ranks, for every way of multiplying and size of heads."""
        single = ("r2", "r2_heldout", "cka", "cca")
        several = ("r2_pairwise", "r2_pairwise_heldout", "r2_layer")
        for name, model, reference in (("equal", GOLDEN / "olmo2_mha", self.deep), ("wider", GOLDEN / "olmo2_gqa", GOLDEN / "qwen3")):
            for precision, tolerance, counts in (("float64", 1e-9, (1, 2, 3, 4, 6)), ("float32", 2e-5, (1, 4))):
                # Several heads of the first pair are so nearly dependent that a product in float32 moves their R2 by 1e-3.
                variables = single if (name, precision) == ("equal", "float32") else single + several
                keys = {**COMMON, "tokens.path": self.tokens, "predict.capture": "normed", "predict.streams": "k,z",
                        "predict.precision": precision}
                self.study(2, f"saved_{name}_{precision}", {**keys, "model.path": reference, "output.save_gram": "true"})
                gram, = (self.folder / f"saved_{name}_{precision}").rglob("*.gram.h5")
                summed = self.cross(1, f"summed_{name}_{precision}", model, reference, **keys)
                for ranks in counts:
                    read = self.cross(ranks, f"read_{name}_{precision}{ranks}", model, reference, **keys, **{"cross.grams": gram})
                    with h5py.File(read) as file, h5py.File(summed) as expected, self.subTest(name, precision=precision, ranks=ranks):
                        self.assertEqual(set(file["cross"]), set(expected["cross"]))
                        for group, tables in expected["cross"].items():
                            for variable in variables:
                                np.testing.assert_allclose(file["cross"][group][variable][:], tables[variable][:], rtol=0, atol=tolerance,
                                                           err_msg=f"{group}/{variable}")

    def test_refuses_grams_that_are_not_the_references(self):
        keys = {**COMMON, "tokens.path": self.tokens, "predict.capture": "normed", "predict.streams": "k"}
        for output, more in (("fit", {}), ("split", {"tokens.seed": 5}), ("roped", {"predict.capture": "roped"}),
                             ("other", {"model.path": GOLDEN / "olmo2_mha"}), ("queries", {"predict.streams": "q"}),
                             ("tokens", {"tokens.path": self.write_tokens("others.bin", self.ids[::-1])})):
            self.study(1, f"of_{output}", {"model.path": self.deep, **keys, **more, "output.save_gram": "true"})
        gram = {path.parts[-3][3:]: path for path in self.folder.glob("of_*/*/*.gram.h5")}
        damaged = self.folder / "damaged.gram.h5"
        shutil.copy(gram["fit"], damaged)
        with h5py.File(damaged, "r+") as file:
            file["k/fit/tiles"][0, 0, 0] = np.nan
        asked = {**keys, "model.path": GOLDEN / "olmo2_mha"}
        for name, wrong, code in (("split", "is of other tokens or other held-out sequences", 2), ("roped", "this study has normed", 2),
                                  ("other", "config_sha256", 2), ("queries", "is missing, and this study predicts it", 2),
                                  ("tokens", "tokens_sha256", 2)):
            self.assertIn(wrong, self.refusal({**asked, "cross.model": self.deep, "cross.grams": gram[name]}, code))
        self.assertIn("finite", self.refusal({**asked, "cross.model": self.deep, "cross.grams": damaged}))
        self.assertIn("none is given", self.refusal({**asked, "cross.grams": gram["fit"]}))
        self.assertIn("would replace", self.refusal({**asked, "model.path": self.deep, "cross.model": self.deep, "cross.grams": gram["fit"],
                                                     "output.save_gram": "true", "output.overwrite": "true",
                                                     "output.directory": gram["fit"].parents[1]}))

    def test_a_study_of_both_models_heads_in_one_file_says_the_same(self):
        """The file has them layer by layer, so that those of the two models alternate."""
        model = GOLDEN / "olmo2_mha"
        result = self.cross(3, "of_two", model, self.deep, **{"predict.streams": "k", "predict.similarity": "cka,cca,procrustes"})
        heads = [self.capture(folder, "k") for folder in (model, self.deep)]
        values = [(layer, which, head, z) for which, of in enumerate(heads) for (layer, head), z in of.items()]
        order = sorted(range(len(values)), key=lambda i: values[i][:3])
        layer = np.array([values[i][0] for i in order])
        sequences = cut(list(self.ids), [2], COMMON["tokens.sequence_length"], COMMON["tokens.limit"])
        path = self.write_activations("both.h5", np.stack([values[i][3] for i in order], 1), layer,
                                      np.concatenate([np.arange(count) for count in np.bincount(layer)]),
                                      sequence=np.repeat(np.arange(len(sequences)), [length for _, length in sequences]))
        both, = self.study(2, "in_one_file", {"activations.path": path, "predict.similarity": "cka,cca,procrustes"})
        place, own = np.argsort(order), len(heads[0])
        with h5py.File(result) as file, h5py.File(both) as whole:
            for name in ("r2", "r2_weighted", "r2_heldout", "cka", "cca", "procrustes"):
                values = whole["k"][name][:]
                for group, targets, sources in (("k-reference", place[own:], place[:own]), ("reference-k", place[:own], place[own:])):
                    np.testing.assert_allclose(file[f"cross/{group}/{name}"][:], values[np.ix_(targets, sources)], rtol=0, atol=1e-10)

    def test_inspect_tells_the_means(self):
        result = self.cross(2, "inspected", GOLDEN / "olmo2_gqa", self.deep, **{"predict.streams": "k,v", "cross.streams": "v:k"})
        printed = self.run_program(1, "inspect", result).stdout
        self.assertIn("or of the reference deep", printed)
        rows = {words[0]: words[1:] for words in map(str.split, printed.splitlines()) if len(words) > 4 and words[2].isdigit()}
        self.assertEqual(set(rows), {"v-k", "k-reference", "reference-k", "v-reference", "reference-v"})
        with h5py.File(result) as file:
            for name, cells in rows.items():
                r2, heldout = (file[f"cross/{name}/{table}"][:] for table in ("r2", "r2_heldout"))
                best = r2.argmax(1)
                expected = [r2.shape[1], r2.shape[0], r2.max(1).mean(), heldout[np.arange(len(best)), best].mean()]
                if "reference" in name:
                    expected.append(np.nanmean(file[f"cross/{name}/r2_layer_heldout"][:]))
                np.testing.assert_allclose(np.array(cells, float), expected, rtol=0, atol=5.1e-4)

    def test_planted_heads(self):
        """The reference is the model with its heads in another order and one of them rotated; of one nothing is left."""
        folder, model = self.folder / "planted", GOLDEN / "llama_gqa"
        shutil.copytree(model, folder)
        weights, d, hidden = read_weights(folder), Model(folder).d, Model(folder).config["hidden_size"]
        for path in folder.glob("model*"):
            path.unlink()
        rng = np.random.default_rng(3)
        key, noise = weights["model.layers.0.self_attn.k_proj.weight"], rng.standard_normal((d, hidden))
        key[:] = np.vstack([np.linalg.qr(rng.standard_normal((d, d)))[0] @ key[d:2 * d], noise])
        write_safetensors(folder / "model.safetensors", weights)
        result = self.cross(2, "of_planted", model, folder, **{"predict.capture": "proj", "predict.streams": "k"})
        with h5py.File(result) as file:
            r2, layer = file["cross/k-reference/r2"][:], file["cross/k-reference/r2_layer"][:]
            self.assertAlmostEqual(r2[0, 1], 1, delta=1e-9)
            self.assertAlmostEqual(layer[0], 1, delta=1e-9)
            self.assertLess(r2[1].max(), 0.9)
            self.assertAlmostEqual(file["cross/k-reference/cca"][0, 1], 1, delta=1e-9)
            self.assertAlmostEqual(file["cross/reference-k/r2"][1, 0], 1, delta=1e-9)

    def test_few_tokens_are_counted_by_the_sizes_of_the_heads(self):
        result = self.cross(2, "few", GOLDEN / "falcon3", self.deep,
                            **{"predict.streams": "k", "tokens.limit": 30, "tokens.sequence_length": 6, "tokens.eos": 64})
        with h5py.File(result) as file:
            self.assertEqual(file["k"].attrs["n_fit"], 24)
            for name, size in (("k-reference", 16), ("reference-k", 8)):
                group = file["cross/" + name]
                self.assertEqual(group.attrs["source_head_size"], size)
                expected = [4 if count * size >= 23 else 0 for count in (1, 2, 3)]
                for rule in ("pairwise", "forward"):
                    np.testing.assert_array_equal(group["status_" + rule][:], np.tile(expected, (len(group["r2"]), 1)))
                of_layer = np.where(group["target_layer"][:] < 2, 4 if 2 * size >= 23 else 0, 16)
                np.testing.assert_array_equal(group["status_layer"][:], of_layer)

    def manifest(self, names):
        path = self.folder / "manifest.tsv"
        rows = [f"{name}\t{step}\t\t{GOLDEN / name}" for step, name in enumerate(names)]
        path.write_text("\n".join(["name\tstep\ttokens\tpath", *rows]) + "\n")
        return path

    def test_every_unit_of_a_manifest_against_one_of_them(self):
        names = ["olmo2_gqa", "olmo2_mha", "olmo2_sharded_bf16"]
        results = self.study(2, "manifest", {**COMMON, "model.manifest": self.manifest(names), "tokens.path": self.tokens,
                                             "cross.model": "olmo2_mha", "predict.streams": "k", "run.groups": 2})
        self.assertEqual([path.stem for path in results], names)
        reference = json.loads((GOLDEN / "olmo2_mha" / "config.json").read_text())
        for path in results:
            with h5py.File(path) as file:
                self.assertEqual(file.attrs["reference_model"].decode(), "olmo2_mha")
                heads = reference["num_key_value_heads"] * reference["num_hidden_layers"]
                self.assertEqual(file["cross/k-reference/r2"].shape[0], heads)
                if path.stem == "olmo2_mha":
                    np.testing.assert_allclose(np.diag(file["cross/k-reference/r2"][:]), 1, rtol=0, atol=1e-9)
                    self.assertEqual(file.attrs["reference_weights_digest"], file.attrs["weights_digest"])
                else:
                    self.assertLess(np.diag(file["cross/k-reference/r2"][:, :heads]).max(), 0.999)

    def test_a_reference_that_has_changed_is_noticed(self):
        folder = self.folder / "changing"
        shutil.copytree(GOLDEN / "olmo2_mha", folder)
        keys = {**COMMON, "model.path": GOLDEN / "olmo2_gqa", "tokens.path": self.tokens, "cross.model": folder, "predict.streams": "k",
                "output.directory": self.folder / "changed"}
        self.study(1, "changed", keys)
        weights = read_weights(folder)
        weights["model.layers.1.self_attn.k_proj.weight"][0] *= 2
        for path in folder.glob("model*"):
            path.unlink()
        write_safetensors(folder / "model.safetensors", weights)
        self.assertIn("whose contents have changed since", self.refusal(keys))

    def refusal(self, keys, code=2):
        keys = {"output.directory": self.folder / "refused", **keys}
        run = self.run_program(2, "study", *(f"--{key}={value}" for key, value in keys.items()))
        told = [line for line in run.stderr.splitlines()  # the others are mpiexec's
                if line.startswith("headspan: ") and not line.startswith("headspan: warning")]
        self.assertEqual((run.returncode, len(told)), (code, 1), run.stderr)
        return told[0]

    def copy_of(self, name, vocabulary=None, **config):
        folder = self.folder / name
        shutil.copytree(GOLDEN / "llama_gqa", folder)
        described = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**described, **config}))
        if vocabulary:
            (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": vocabulary}}))
        return folder

    def test_refused(self):
        pieces = {f"piece{i}": i for i in range(64)}
        own = self.copy_of("own", pieces)
        same = self.copy_of("same", dict(reversed(pieces.items())))
        other = self.copy_of("other", {f"part{i}": i for i in range(64)})
        model = {**COMMON, "model.path": own, "tokens.path": self.tokens}
        manifest = {**COMMON, "model.manifest": self.manifest(["olmo2_gqa"]), "tokens.path": self.tokens}
        activations = self.write_activations("z.h5", np.zeros((9, 1, 2)), [0], [0])
        short = self.copy_of("short", vocab_size=32)
        weights = read_weights(short)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            if name in weights:
                weights[name] = weights[name][:32]
        for path in short.glob("model*"):
            path.unlink()
        write_safetensors(short / "model.safetensors", weights)
        for keys, wrong in (({**model, "cross.model": other}, "holds another vocabulary than"),
                            ({**model, "cross.model": short}, "has a vocabulary of 32, and"),
                            ({**model, "cross.model": self.folder / "nowhere"}, "nowhere"),
                            ({**manifest, "cross.model": "olmo2_mha"}, "is neither a folder nor a checkpoint of"),
                            ({"activations.path": activations, "cross.model": own}, "runs beside a model"),
                            ({**model, "cross.model": GOLDEN / "olmo2_mha", "run.tensor_parallel": 4}, "run.tensor_parallel")):
            self.assertIn(wrong, self.refusal(keys))
        (short / "tokenizer.json").write_text((own / "tokenizer.json").read_text())  # padded vocabularies differ in size
        self.assertIn("lacks token", self.refusal({**model, "cross.model": short}))
        self.assertFalse((self.folder / "refused").exists())
        self.cross(1, "same_pieces", own, same)


if __name__ == "__main__":
    main()
