"""archive calibrate, and evaluate with a codec, against numpy: the keys and values of a prompt go through `archive encode` and
`archive decode`, whose own test is test_archive_commands.py, and numpy's model goes on behind what comes back.

usage: test_archive_evaluate.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
import headspan_archive
from cached_forward import document_starts, log_probabilities, ratio
from compression_case import EOS, CompressionTest
from forward import Model, read_safetensors, write_safetensors
from headspan_archive.codec import rotate
from program import GOLDEN, main

TEXT, EXACT, END = 300, 3, 2  # more tokens than two blocks have
MODELS = ("olmo2_gqa", 1, {}), ("qwen3", 2, {"run.tensor_parallel": 2}), ("llama3_scaled", 3, {}), ("olmo2_mha", 1, {})
BLOCK_HEAD = 8  # bytes: length and checksum


class ArchiveEvaluate(CompressionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(12)
        ids = rng.integers(END + 1, EOS, 2 * TEXT + 90)
        ids[[1, 60, 61, 400, 689]] = END
        cls.documents = cls.write_tokens("documents.bin", ids)
        cls.windows = np.split(ids, (TEXT, 2 * TEXT))
        cls.codecs = {}

    def model_of(self, name):
        """Returns a golden model's folder, with room for longer texts."""
        folder = self.folder / name
        if not folder.exists():
            shutil.copytree(GOLDEN / name, folder)
            config = json.loads((folder / "config.json").read_text())
            config["max_position_embeddings"] = 2 * TEXT
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    def codec_of(self, name, ranks=1, **more):
        key = json.dumps([name, more])
        if key not in self.codecs:
            path = self.folder / f"codec{len(self.codecs)}.h5"
            printed = self.run_command(ranks, "archive_calibrate", {
                "model.path": self.model_of(name), "model.dtype": "float64", "tokens.path": self.tokens, "tokens.eos": EOS,
                "tokens.sequence_length": 40, "tokens.limit": 2000, "archive.codec": path, "archive.exact_first": EXACT,
                "archive.effort": "quick", **more})
            self.codecs[key] = path, printed
        return self.codecs[key][0]

    def run_command(self, ranks, command, keys, code=0):
        run = self.run_program(ranks, *command.split("_"), *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def recode(self, codec, model, tokens, rate):
        """Returns [(k, v)] of each layer after the codec, [tokens, heads, d], the bytes of the blocks and how many numbers
        they have."""
        exact = []

        def record(layer, k, v):
            exact.append((k.copy(), v.copy()))
            return k, v
        model.logits(tokens, record)
        given, archive, decoded = (self.folder / name for name in ("given.safetensors", "text.hsa", "decoded.safetensors"))
        write_safetensors(given, {stream: np.stack([layer[i].transpose(1, 0, 2) for layer in exact]).astype("<f4")
                                  for i, stream in enumerate("kv")})
        starts = [0, *(i + 1 for i, token in enumerate(tokens[:-1]) if token in (END, EOS))]
        self.run_command(1, "archive_encode", {"archive.codec": codec, "archive.input": given, "archive.output": archive,
                                               "archive.documents": ",".join(map(str, starts)), **rate})
        self.run_command(1, "archive_decode", {"archive.codec": codec, "archive.input": archive, "archive.output": decoded})
        found = read_safetensors(decoded)
        opened = headspan_archive.Archive(archive)
        kept = len(tokens) - len({*range(min(EXACT, len(tokens))), *document_starts(tokens, EXACT, {END, EOS})})
        self.assertEqual(len(tokens) - len(opened.header["exact"]), kept)
        layers = [tuple(found[stream][layer].astype(float).transpose(1, 0, 2) for stream in "kv") for layer in range(len(exact))]
        return layers, sum(len(block) + BLOCK_HEAD for block in opened.blocks[1:]), kept * 2 * len(exact) * exact[0][0][0].size

    def totals(self, codec, model, tokens, rate):
        """Returns the positions with a next token, and sums over them: loss, loss of the exact run, KL; then bytes and numbers."""
        layers, size, numbers = self.recode(codec, model, tokens, rate)
        ours = log_probabilities(model.logits(tokens, lambda layer, k, v: layers[layer])[:-1])
        full = log_probabilities(model.logits(tokens)[:-1])
        positions = np.arange(len(tokens) - 1)
        return (len(positions), -ours[positions, tokens[1:]].sum(), -full[positions, tokens[1:]].sum(),
                (np.exp(full) * (full - ours)).sum(), size, numbers)

    def test_a_text_behind_a_codec(self):
        """Every token attends to what the codec leaves of those before it and of itself."""
        for name, ranks, more in MODELS:
            codec = self.codec_of(name)
            for rate in ({"archive.bits": 2}, {"archive.bits": 5}) if name == MODELS[0][0] else ({"archive.bits": 2},):
                with self.subTest(model=name, **rate):
                    rows = [self.totals(codec, Model(self.model_of(name)), tokens, rate) for tokens in self.windows]
                    counts, loss, full_loss, kl, size, numbers = np.array(rows, float).T
                    found = self.evaluate(ranks, self.model_of(name), "text", texts=self.documents, batch=2,
                                          **{"archive.codec": codec, "tokens.sequence_length": TEXT, **rate, **more})
                    text = found["texts"]["documents"]
                    self.assertAlmostEqual(text["full_loss"], full_loss.sum() / counts.sum(), 9)
                    self.assertAlmostEqual(text["loss"], loss.sum() / counts.sum(), 4)
                    for field, expected in zip(("kl", "kl_se"), ratio(kl, counts)):
                        self.assertAlmostEqual(text[field] / expected, 1, 2, field)
                    self.assertGreater(text["kl"], 1e-6, "nothing was lost")
                    self.assertEqual(found["prefill"], "exact")
                    archive = found["archive"]
                    self.assertEqual((archive["codec"], archive["algorithm"], archive["exact_first"]), (str(codec), "headspan", EXACT))
                    self.assertAlmostEqual(archive["bits"], 8 * size.sum() / numbers.sum(), 2)

    def test_the_curve_is_what_evaluate_measures(self):
        """On the held-out tokens that the curve was measured on, at one of its steps."""
        codec = self.codec_of("qwen3", **{"tokens.heldout": 0})
        steps = [line.split() for line in self.codecs[json.dumps(["qwen3", {"tokens.heldout": 0}])][1].splitlines()
                 if line.startswith("step=")]
        self.assertGreater(len(steps), 5)
        step, bits, kl = (float(field.split("=")[1]) for field in steps[len(steps) // 2])
        found = self.evaluate(2, self.model_of("qwen3"), "curve", texts=self.tokens,
                              **{"archive.codec": codec, "archive.bits": bits, "tokens.sequence_length": 40})
        self.assertAlmostEqual(found["archive"]["step"], step, delta=1)
        self.assertAlmostEqual(found["texts"]["fit"]["kl"] / kl, 1, delta=0.1)
        self.assertAlmostEqual(found["archive"]["bits"] / bits, 1, delta=0.02)

    def costs(self, codec, model):
        """Returns what an error in each layer costs, K before V: the KL divergence behind this layer alone, after the codec,
        over the squared error in the codec's metric, in some sequences together."""
        sequences = np.fromfile(self.tokens, "<u2")[:240].reshape(6, 40).astype(int)
        divergence, squares = np.sum([self.divergence_and_squares(codec, model, tokens) for tokens in sequences], 0)
        return divergence / squares

    def divergence_and_squares(self, codec, model, tokens):
        layers, _, _ = self.recode(codec, model, tokens, {"archive.bits": 3})
        given, full, rows = read_safetensors(self.folder / "given.safetensors"), log_probabilities(model.logits(tokens)), []
        with h5py.File(codec) as file:
            for i, stream in enumerate("kv"):
                roots = np.concatenate([file[stream][str(group)]["whitening"][...] for group in range(len(file[stream]))])
                for chosen, root in enumerate(roots.astype(float)):
                    def replace(layer, *kv, only=(chosen, i)):
                        return tuple(layers[layer][n] if (layer, n) == only else kv[n] for n in range(2))
                    error = layers[chosen][i].transpose(1, 0, 2) - given[stream][chosen]
                    if stream == "k":
                        rotate(error, -np.arange(len(tokens)), file["rotary/0/frequencies"][...], 1)
                    ours = log_probabilities(model.logits(tokens, replace))
                    rows.append(((np.exp(full) * (full - ours)).sum(), np.square(error @ root).sum()))
        return np.transpose(rows)

    def test_errors_cost_what_the_metric_says(self):
        """In nats, in each layer alone, also where little of a layer is read; attention's metric does not know that."""
        folder = self.model_of("qwen3").with_name("hidden")
        shutil.copytree(self.model_of("qwen3"), folder)
        weights = read_safetensors(folder / "model.safetensors")
        read = np.arange(len(weights["model.norm.weight"])) % 2
        weights["model.norm.weight"] *= read
        weights["model.layers.1.self_attn.o_proj.weight"] *= np.where(read, 0.1, 1)[:, None]
        weights["model.layers.1.mlp.down_proj.weight"] *= 0
        write_safetensors(folder / "model.safetensors", weights)
        for name, ranks in (("hidden", 1), ("olmo2_gqa", 3)):
            full = self.codec_of(name, ranks, **{"archive.effort": "full", "archive.own_text": 0})
            costs = self.costs(full, Model(self.model_of(name)))
            np.testing.assert_array_less(np.abs(np.log(costs)), np.log(2.5), f"{name} {costs}")
            self.assertLess(abs(np.log(costs).mean() - np.log(1.3)), np.log(1.5), f"{name} {costs}")
            with h5py.File(full) as file:
                self.assertEqual((file.attrs["metric"], file.attrs["own_text"]), (b"loss", 0))
        quick = self.codec_of("hidden", **{"archive.effort": "quick", "archive.own_text": 0})
        self.assertGreater(np.std(np.log(self.costs(quick, Model(folder)))), 1.4)
        with h5py.File(quick) as file:
            self.assertEqual(file.attrs["metric"], b"attention")

    def test_own_text(self):
        """As many tokens as are asked for, or as there are of the text; none for other codecs."""
        fit = 37 * (40 - EXACT)  # of 50 sequences, a quarter is held out
        auto = {"archive.effort": "auto"}
        for more, expected in (({"archive.own_text": 500, **auto}, 500), (auto, fit), ({}, 0), ({"archive.algorithm": "kvtc", **auto}, 0)):
            with h5py.File(self.codec_of("qwen3", **more)) as file:
                self.assertEqual(file.attrs["own_text"], expected)
                printed = self.codecs[json.dumps(["qwen3", more])][1]
                self.assertEqual(f" write tokens={file.attrs['own_text']}/" in printed, expected > 0, printed)
                self.assertEqual("archive.effort = auto: " in printed, expected > 0)

    def test_a_codec_does_not_depend_on_the_ranks(self):
        """Up to rounding: its curve."""
        alone, shared, parallel = (1, {}), (2, {"run.tensor_parallel": 2}), (3, {})
        for effort, layouts in (("quick", (alone, shared, parallel)), ("full", (alone, parallel))):
            curves = []
            for number, (ranks, more) in enumerate(layouts):
                keys = {"archive.effort": effort, "run.batch_tokens": 400 + number, **more}
                self.codec_of("olmo2_gqa", ranks, **keys)
                printed = self.codecs[json.dumps(["olmo2_gqa", keys])][1]
                curves.append([[float(field.split("=")[1]) for field in line.split()]
                               for line in printed.splitlines() if line.startswith("step=")])
            for curve in curves[1:]:
                np.testing.assert_allclose(curve, curves[0], rtol=0.02)

    def test_requests(self):
        """Prompts go through the codec; what continues them is kept as it is."""
        codec, model = self.codec_of("olmo2_gqa"), Model(self.model_of("olmo2_gqa"))
        rate = {"archive.bits": 2}

        def rows_of(tokens, prompt):
            tokens = np.array(tokens)
            layers, _, _ = self.recode(codec, model, tokens[:prompt], rate)

            def replace(layer, k, v):
                return tuple(np.concatenate((old, x[prompt:])) for old, x in zip(layers[layer], (k, v)))
            rows = log_probabilities(model.logits(tokens, replace))
            rows[:prompt] = log_probabilities(model.logits(tokens))[:prompt]
            return rows

        texts = [window[:200] for window in self.windows[:2]]
        scored = [{"id": i, "context": text[:150 - 50 * i].tolist(), "continuation": text[150 - 50 * i:170].tolist()}
                  for i, text in enumerate(texts)]
        greedy = [{"id": f"g{i}", "context": text[:140 + i].tolist(), "max_new_tokens": 4} for i, text in enumerate(texts)]
        for name, requests in (("scored", scored), ("greedy", greedy)):
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
        answers = self.folder / "answers.jsonl"
        self.evaluate(1, self.model_of("olmo2_gqa"), "asked", answers=answers, batch=2, requests=self.folder / "scored.jsonl",
                      generate=self.folder / "greedy.jsonl", **{"archive.codec": codec, **rate})
        found = [json.loads(line) for line in answers.read_text().splitlines()]
        for request, answer in zip(scored, found):
            tokens, prompt = request["context"] + request["continuation"], len(request["context"])
            rows = rows_of(tokens, prompt)
            self.assertAlmostEqual(answer["loglikelihood"], sum(rows[i - 1, tokens[i]] for i in range(prompt, len(tokens))), 3)
        for request, answer in zip(greedy, found[len(scored):]):
            tokens, prompt = list(request["context"]), len(request["context"])
            for _ in range(request["max_new_tokens"]):
                tokens.append(int(rows_of(tokens, prompt)[-1].argmax()))
            self.assertEqual(answer["tokens"], tokens[prompt:])

    def test_kvtc(self):
        """Archives of a codec of runs: coefficients in a basis of all layers, rounded run by run in each token."""
        codec, model = self.codec_of("qwen3", 2, **{"archive.algorithm": "kvtc"}), Model(self.model_of("qwen3"))
        tokens = self.windows[0][:150]
        layers, size, numbers = self.recode(codec, model, tokens, {"archive.bits": 2})
        self.assertLess(8 * size / numbers, 2.4)
        given, kept = read_safetensors(self.folder / "given.safetensors"), np.ones(len(tokens), bool)
        kept[headspan_archive.Archive(self.folder / "text.hsa").header["exact"]] = False
        with h5py.File(codec) as file:
            step = headspan_archive.Archive(self.folder / "text.hsa").header["step"]
            frequencies = file["rotary/0/frequencies"][...]
            for stream in "kv":
                self.assertEqual(list(file[stream]), ["0"], "a group of all layers")
                group = {name: file[stream]["0"][name][...] for name in ("mean", "basis", "scale", "runs")}
                x = given[stream].astype(float)
                if stream == "k":
                    rotate(x.reshape(-1, *x.shape[2:]), -np.arange(len(tokens)), frequencies, 1)
                basis = group["basis"] * group["scale"].astype(float)[:, None]
                rows = x.transpose(2, 0, 1, 3).reshape(len(tokens), -1) - group["mean"]
                coefficients = np.linalg.lstsq(basis.T, rows.T, rcond=None)[0].T
                expected = (self.rounded(coefficients, group["runs"][step]) @ basis + group["mean"]).reshape(
                    len(tokens), *x.shape[:2], x.shape[3]).transpose(1, 2, 0, 3)
                if stream == "k":
                    rotate(expected.reshape(-1, *x.shape[2:]), np.arange(len(tokens)), frequencies, 1)
                found = np.stack([layer["kv".index(stream)].transpose(1, 0, 2) for layer in layers])
                errors = np.abs(found - expected)[:, :, kept]
                self.assertLess(np.quantile(errors, 0.99), 1e-4)  # a code may differ where a number is between two
                self.assertGreater(np.abs(given[stream] - expected)[:, :, kept].max(), 0.05, "nothing was rounded")
        with self.assertRaisesRegex(ValueError, "is a codec of kvtc"):
            headspan_archive.Codec(codec)

    @staticmethod
    def rounded(coefficients, runs):
        rounded, first = np.zeros_like(coefficients), 0
        for count, bits in runs:
            if count == 0:
                break
            run = coefficients[:, first:first + count]
            least = run.min(1, keepdims=True).astype("<f2").astype(float)
            step = ((run.max(1, keepdims=True) - run.min(1, keepdims=True)) / (2 ** bits - 1)).astype("<f2").astype(float)
            codes = np.clip(np.round((run - least) / np.where(step > 0, step, 1)), 0, 2 ** bits - 1)
            rounded[:, first:first + count] = least + codes * step
            first += count
        return rounded

    def test_refusals(self):
        codec = self.codec_of("qwen3")
        keys = {"model.path": self.model_of("qwen3"), "evaluate.texts": self.documents, "archive.codec": codec}
        for more, message in (
                ({"model.path": self.model_of("olmo2_gqa")}, r"codec\d+.h5: config_sha256 = \w+: is not that of .*; give a codec that"),
                ({"evaluate.plan": codec}, r"archive.codec = .*: is given beside evaluate.plan; give one of the two"),
                ({"evaluate.cache": "simulated"}, r"evaluate.cache = simulated: is not for a codec"),
                ({"evaluate.exact_recent": 4}, r"evaluate.exact_recent = 4: is not for a codec"),
                ({"archive.bits": 2, "archive.kl": 0.1}, r"archive.kl = 0.1: is given beside archive.bits"),
                ({"archive.kl": 100}, r"archive.kl = 100: is beyond"),
                ({"archive.codec": self.documents}, r"documents.bin: cannot be read as HDF5"),
                ({"evaluate.summary": codec}, r"evaluate.summary = .*: would replace")):
            with self.subTest(**more):
                printed = self.run_command(1, "evaluate", {**keys, **more}, code=2)
                self.assertRegex(printed, "headspan: .*" + message)

    def test_codecs_that_cannot_be_made(self):
        path = self.folder / "none.h5"
        keys = {"model.path": self.model_of("qwen3"), "tokens.path": self.tokens, "tokens.sequence_length": 40,
                "tokens.limit": 2000, "archive.codec": path}
        before = {entry.name for entry in self.folder.iterdir()}
        for more, message in (
                ({"tokens.limit": 80, "archive.group": 2, "archive.effort": "quick"},
                 r"fit.bin: tokens.limit = 80: leaves 36 tokens to fit 48 columns .*; give at least 96, or fewer layers"),
                ({"tokens.limit": 80, "archive.effort": "quick"},
                 r"fit.bin: tokens.limit = 80: leaves 36 tokens to fit 24 columns .*; give at least 48\n"),
                ({"archive.effort": "some"}, r"archive.effort = some: is not allowed; allowed: auto\|quick\|full"),
                ({"archive.own_text": -1}, r"archive.own_text = -1: "),
                ({"model.path": GOLDEN / "phi3_long"}, r"config.json: rope_scaling = longrope: rotates keys by the length"),
                ({"archive.codec": ""}, r"archive.codec: is missing; give the file for the codec"),
                ({"archive.codec": self.tokens}, r"archive.codec = .*: would replace"),
                ({"archive.group": 0}, r"archive.group = 0: "),
                ({"archive.maps": 2}, r"archive.maps = 2: "),
                ({"archive.output": path}, r"archive.output = .*: is not for archive calibrate")):
            for ranks in (1, 2):
                with self.subTest(ranks=ranks, **more):
                    given = {key: value for key, value in {**keys, **more}.items() if value != ""}
                    printed = self.run_command(ranks, "archive_calibrate", given, code=2)
                    self.assertRegex(printed, "headspan: .*" + message)
                    self.assertEqual(printed.count("headspan: "), 1, printed)
        printed = self.run_command(2, "archive_calibrate", {**keys, "archive.effort": "full", "run.tensor_parallel": 2}, code=2)
        self.assertRegex(printed, "headspan: archive.effort = full: differentiates a model .*, and 2 ranks share it")
        self.assertEqual({entry.name for entry in self.folder.iterdir()}, before)


if __name__ == "__main__":
    main()
