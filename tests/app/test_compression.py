"""calibrate and evaluate through the program, against numpy: plans from the moments of the tokens, losses and answers from
a forward that replaces keys and values.

usage: test_compression.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import cached_forward
import latents
from calibration import calibrate
from compression_case import EOS, LENGTH, TOKENS, CompressionTest
from forward import Model
from moments import moments
from program import GOLDEN, main
from samples import plant_sink
from splitmix64 import splitmix64

MODELS = ("olmo2_gqa", "llama_gqa", "qwen3")


class Compression(CompressionTest):
    def assert_same_latents(self, found, expected, rtol=1e-6):
        """Compares the latents of a layer, whose scales and signs are arbitrary."""
        stored = found["projection"].shape[1] if "projection" in found else 0
        np.testing.assert_allclose(found["eigenvalues"], expected.eigenvalues, rtol=1e-8,
                                   atol=1e-12 * expected.eigenvalues[0])
        np.testing.assert_allclose(found["mean"], expected.mean, atol=1e-12)
        if stored:
            kept = found["projection"] @ found["lift"]
            reference = expected.into[:, :stored] @ expected.back[:stored]
            np.testing.assert_allclose(kept, reference, atol=rtol * np.abs(reference).max())

    def test_latents_are_those_of_the_moments(self):
        for model in MODELS:
            found = moments(Model(GOLDEN / model), self.fit, 4)
            plan = cached_forward.read_plan(self.calibrate(2, model, f"{model}16", bits=16, stored=0.4))
            expected, loss, _ = latents.plan(latents.blocks_of(found, "kv"), 0.4, "16")
            total = 0.0
            for number, block in enumerate(latents.blocks_of(found, "kv")):
                with self.subTest(model=model, block=number):
                    layers = len(plan.streams["k"])
                    group = plan.streams["kv"[number // layers]][number % layers]
                    self.assertEqual(group["band_columns"].sum(), np.sum(expected[number]["band_columns"]))
                    self.assert_same_latents(group, block)
                    total += float(group["expected_loss"])
            self.assertAlmostEqual(total / loss, 1, 9)

    def test_heads_references_and_maps_are_those_of_the_moments(self):
        cases = (("olmo2_mha", "headspan", "layer", 0.5, 2), ("olmo2_mha", "headspan", "causal", 0.4, 3),
                 ("olmo2_gqa", "headspan", "causal", 0.5, 2), ("llama_gqa", "headspan", "layer", 0.75, 1),
                 ("olmo2_mha", "paper-text", "layer", 0.6, 2), ("olmo2_mha", "paper-code", "layer", 0.6, 5))
        for number, (model, algorithm, scope, stored, references) in enumerate(cases):
            expected, loss, _ = calibrate(Model(GOLDEN / model), self.fit, self.fit[:1], algorithm, scope, "kv", stored,
                                          references=references)
            name = f"heads{number}"
            path = self.calibrate(1 + number % 4, model, name, algorithm=algorithm, scope=scope, stored=stored,
                                  references=references)
            found = cached_forward.read_plan(path)
            with h5py.File(path) as file:
                self.assertAlmostEqual(file.attrs["expected_loss"], loss, 9)
            for s in "kv":
                for layer, (group, reference) in enumerate(zip(found.streams[s], expected.streams[s])):
                    with self.subTest(case=number, stream=s, layer=layer):
                        for field in ("kept", "targets"):
                            self.assertEqual(list(group.get(field, [])), list(reference[field]), field)
                        for i in range(len(reference["targets"])):
                            self.assert_same_map(group, reference, i)
            if algorithm == "headspan":
                sequences = self.sequences[:3]
                np.concatenate(sequences).astype("<u2").tofile(self.folder / "few.bin")
                kl = self.evaluate(1, model, name, plan=path, texts=self.folder / "few.bin")["texts"]["few"]["kl"]
                expected = cached_forward.summary(Model(GOLDEN / model), sequences, found, self.ends(model))
                self.assertAlmostEqual(kl / expected["kl"], 1, 5)

    def assert_same_map(self, found, expected, i):
        """Compares the map of target i, whose references may be in any order."""
        d = found["map"].shape[2]

        def parts(group):
            rows = np.asarray(group["map"][i], float).reshape(-1, d, d)
            return {int(r): rows[k] for k, r in enumerate(np.asarray(group["references"][i])) if r >= 0}

        ours, theirs = parts(found), parts(expected)
        self.assertEqual(sorted(ours), sorted(theirs))
        for r, rows in ours.items():
            np.testing.assert_allclose(rows, theirs[r], atol=2e-6 * max(1, np.abs(theirs[r]).max()))
        np.testing.assert_allclose(found["bias"][i], expected["bias"][i], atol=1e-7)
        np.testing.assert_allclose(found["loss"][i], expected["loss"][i], rtol=1e-6)

    def test_held_out_r2_of_a_map(self):
        model = "olmo2_mha"
        path = self.calibrate(2, model, "heldout", algorithm="headspan", stored=0.5, references=2,
                              **{"ridge": 0.01, "tokens.heldout": 0.25})
        plan = cached_forward.read_plan(path)
        split = self.held_out(len(self.fit), 0.25)
        fit = [t for t, h in zip(self.fit, split) if not h]
        expected, _, _ = calibrate(Model(GOLDEN / model), fit, [t for t, h in zip(self.fit, split) if h], "headspan",
                                   "layer", "kv", 0.5, references=2, ridge=0.01)
        for s in "kv":
            for found, reference in zip(plan.streams[s], expected.streams[s]):
                self.assertEqual(list(found.get("targets", [])), list(reference["targets"]))
                if len(reference["targets"]):
                    np.testing.assert_allclose(found["r2_heldout"], reference["r2_heldout"], atol=1e-6)

    @staticmethod
    def held_out(count, share, seed=0):
        """1 for the held-out sequences: those with the smallest outputs of SplitMix64."""
        keys = [splitmix64(seed, i) for i in range(count)]
        chosen = sorted(range(count), key=lambda i: keys[i])[:int(share * count + 0.5)]
        return [i in chosen for i in range(count)]

    def test_a_budget_out_of_reach_is_refused(self):
        for scope in ("layer", "causal"):
            keys = {"model.path": GOLDEN / "olmo2_mha", "tokens.path": self.tokens, "tokens.eos": EOS,
                    "tokens.sequence_length": LENGTH, "compress.plan": self.folder / "none.h5",
                    "compress.algorithm": "headspan", "compress.scope": scope, "compress.stored": 0.1}
            self.assertIn("can", self.run_command(2, "calibrate", keys, code=2))
            self.assertFalse((self.folder / "none.h5").exists())

    def test_a_plan_is_the_same_on_any_ranks(self):
        plans = [cached_forward.read_plan(self.calibrate(ranks, "olmo2_gqa", f"ranks{ranks}", stored=0.3))
                 for ranks in (1, 2, 3, 4)]
        for plan in plans[1:]:
            for s in "kv":
                for expected, found in zip(plans[0].streams[s], plan.streams[s]):
                    np.testing.assert_array_equal(found["band_columns"], expected["band_columns"])
                    np.testing.assert_allclose(found["eigenvalues"], expected["eigenvalues"], rtol=1e-9, atol=1e-15)

    def test_bits_meet_the_budget_and_beat_the_water_level_alone(self):
        model = "olmo2_mha"
        blocks = latents.blocks_of(moments(Model(GOLDEN / model), self.fit, 4), "kv")
        for stored in (0.15, 0.3, 0.6):
            path = self.calibrate(1, model, f"bits{stored}", stored=stored)
            plan = cached_forward.read_plan(path)
            with h5py.File(path) as file:
                self.assertLessEqual(file.attrs["bytes_stored"], stored * file.attrs["bytes_full"])
                self.assertGreater(file.attrs["bytes_stored"], 0.85 * stored * file.attrs["bytes_full"])
            simple, _, share = latents.plan(blocks, stored, "auto")
            self.assertLessEqual(share, stored)
            model_of = Model(GOLDEN / model)
            ours, theirs = (cached_forward.summary(model_of, self.sequences, cached_forward.Plan("latent", 4, streams))["kl"]
                            for streams in (plan.streams, {"k": simple[:len(plan.streams["k"])],
                                                           "v": simple[len(plan.streams["k"]):]}))
            self.assertLess(ours, 1.1 * theirs, stored)

    def test_losses_are_those_of_a_forward_with_replaced_keys_and_values(self):
        self.check_losses(("latent", {"stored": 0.3}), ("latent", {"bits": "3x8,5x3"}), ("quantise", {"bits": 4}),
                          ("rotated-q4", {}), ("rotated-q8", {}), ("oscar", {}))

    def test_losses_of_what_only_the_host_stores(self):
        self.check_losses(("hadamard", {}), ("hadamard", {"bits": 3}), ("kivi", {}), ("kivi", {"bits": 4}))

    def test_losses_of_records_with_a_gain(self):
        """With measured units each block is stored in the way that loses less."""
        self.check_losses(("latent", {"stored": 0.15, "units": "measured"}))
        path = self.folder / f"{MODELS[0]}latent0.plan.h5"
        with h5py.File(path) as plan:
            groups = [plan[f"{s}/{layer}"] for s in "kv" for layer in range(int(plan.attrs["layers"]))]
            codings = {str(group.attrs.get("band_coding", "symmetric")) for group in groups}
            self.assertTrue(any("gain" in coding for coding in codings), codings)
            stored = 0
            for group in groups:
                bands = list(zip(group.attrs["band_columns"], group.attrs["band_bits"]))
                scales = min(1, len(bands)) if "weights" in group else len(bands)
                stored += sum(-(-columns * bits // 8) for columns, bits in bands) + 2 * scales
            self.assertEqual(plan.attrs["bytes_stored"], stored)

    def check_losses(self, *cases):
        for number, (algorithm, more) in enumerate(cases):
            model = MODELS[number % len(MODELS)]
            name = f"{model}{algorithm}{number}"
            path = self.calibrate(1, model, name, algorithm=algorithm, exact_first=2, **more)
            expected = cached_forward.summary(Model(GOLDEN / model), self.sequences, cached_forward.read_plan(path),
                                              self.ends(model))
            for ranks, cache in ((1, "simulated"), (1, "compressed"), (3, "compressed")):
                with self.subTest(model=model, ranks=ranks, cache=cache):
                    found = self.evaluate(ranks, model, name, plan=path, cache=cache, texts=self.text, batch=3)["texts"]["text"]
                    self.assertEqual(found["tokens"], expected["tokens"])
                    for field in ("loss", "loss_se", "full_loss", "dloss", "dloss_se", "kl", "kl_se", "perplexity"):
                        near = 4 if "kl" in field or field[0] == "d" else 6
                        self.assertAlmostEqual(found[field] / expected[field], 1, near, field)
                    bits = found["loss"] / np.log(2) * len(np.concatenate(self.sequences)) / 1000
                    self.assertAlmostEqual(found["bits_per_byte"], bits)

    def test_exact_first_tokens_save_an_attention_sink(self):
        sinks, rng = 8, np.random.default_rng(4)
        folder = plant_sink(self.folder / "sink", sinks, 8)
        ids = rng.integers(sinks, EOS, TOKENS)
        ids[::LENGTH] = rng.integers(0, sinks, TOKENS // LENGTH)  # each sequence begins with a sink
        fit, text = self.write_tokens("sink_fit.bin", ids[6 * LENGTH:]), self.write_tokens("sink_text.bin", ids[:6 * LENGTH])
        model, sequences = Model(folder), np.split(ids[:6 * LENGTH], 6)
        self.assert_sink(model, sequences[0])
        cases = (("latent", {"stored": 0.35}, 30), ("quantise", {"bits": 4}, 5),
                 ("headspan", {"stored": 0.75, "references": 2, "scope": "causal"}, 20))
        for number, (algorithm, more, times) in enumerate(cases):
            with self.subTest(algorithm=algorithm, **more):
                kl = {}
                for first in (4, 0):
                    name = f"sink{number}_{first}"
                    path = self.calibrate(1, folder, name, algorithm=algorithm, exact_first=first,
                                          **{"tokens.path": fit, **more})
                    kl[first] = self.evaluate(1, folder, name, plan=path, texts=text)["texts"]["sink_text"]["kl"]
                    expected = cached_forward.summary(model, sequences, cached_forward.read_plan(path), self.ends(folder))["kl"]
                    self.assertAlmostEqual(kl[first] / expected, 1, 3)
                self.assertLess(kl[4], 0.01)
                self.assertGreater(kl[0], times * kl[4])

    def assert_sink(self, model, tokens):
        """Every head of the first layer attends mostly to the first token, whose keys and values are outliers."""
        found = model.capture(tokens)
        for head in range(model.heads):
            key = head * model.kv_heads // model.heads
            scores = found["q"][4:, head] @ found["k"][:, key].T / np.sqrt(model.d)
            scores[np.arange(len(tokens)) > np.arange(4, len(tokens))[:, None]] = -np.inf
            share = np.exp(scores - scores.max(1, keepdims=True))
            self.assertGreater((share[:, 0] / share.sum(1)).mean(), 0.75, head)
        for stream in "kv":
            lengths = np.linalg.norm(found[stream][:, :model.kv_heads], axis=2)
            self.assertTrue(np.all(lengths[0] > 3 * lengths[1:].mean(0)), stream)

    def test_tensor_parallel_ranks_score_alike(self):
        path = self.calibrate(2, "olmo2_gqa", "tp", stored=0.5, bits=16)
        one, two = (self.evaluate(2, "olmo2_gqa", f"tp{t}", plan=path, texts=self.text, **{"run.tensor_parallel": t})
                    for t in (1, 2))
        for field in ("loss", "kl", "full_loss"):
            self.assertAlmostEqual(one["texts"]["text"][field], two["texts"]["text"][field], 9)

    def test_blocks_are_sharded_if_they_would_fill_the_memory(self):
        path = self.calibrate(2, "olmo2_mha", "sharded", stored=0.5, bits=16)
        found = {}
        for gib in (1, 0.0003):
            found[gib] = self.evaluate(2, "olmo2_mha", f"sharded{gib}", plan=path, texts=self.text,
                                       **{"run.tensor_parallel": 2, "run.memory_gib": gib})
        replicated, sharded = found.values()
        for field in ("loss", "kl", "full_loss"):
            self.assertAlmostEqual(replicated["texts"]["text"][field], sharded["texts"]["text"][field], 9)
        self.assertEqual(replicated["bytes_per_token"]["stored"], 2 * sharded["bytes_per_token"]["stored"])
        for field in ("full", "exact"):
            self.assertEqual(replicated["bytes_per_token"][field], sharded["bytes_per_token"][field])

    def test_requests_and_generation(self):
        model, reference = "llama_gqa", Model(GOLDEN / "llama_gqa")
        path = self.calibrate(1, model, "asked", stored=0.35, exact_first=1)
        plan = cached_forward.read_plan(path)
        scored = [{"id": f"s{i}", "context": self.sequences[i][:5 + i].tolist(),
                   "continuation": self.sequences[i][5 + i:5 + 3 * i].tolist()} for i in range(6)]
        greedy = [{"id": [i, "g"], "context": self.sequences[i][:3 + 4 * i].tolist(), "max_new_tokens": 6} for i in range(4)]

        def continued(context, count):
            tokens = list(context)
            for _ in range(count):
                tokens.append(int(cached_forward.logits(reference, np.array(tokens), plan, self.ends(model))[-1].argmax()))
            return tokens[len(context):]

        whole = [continued(request["context"], 6) for request in greedy]
        greedy[1]["stop"] = [whole[1][2:4]]
        greedy[2]["stop"] = [[EOS + 1 - 1, EOS]]
        for name, requests in (("scored", scored), ("greedy", greedy)):
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
        for ranks in (1, 3):
            answers = self.folder / f"answers{ranks}.jsonl"
            self.evaluate(ranks, model, "asked", plan=path, requests=self.folder / "scored.jsonl",
                          generate=self.folder / "greedy.jsonl", answers=answers, batch=2)
            found = [json.loads(line) for line in answers.read_text().splitlines()]
            self.assertEqual([f["id"] for f in found], [r["id"] for r in scored + greedy])
            for request, answer in zip(scored, found):
                tokens = np.array(request["context"] + request["continuation"])
                rows = cached_forward.log_probabilities(cached_forward.logits(reference, tokens, plan, self.ends(model)))
                first = len(request["context"])
                expected = sum(rows[i - 1, tokens[i]] for i in range(first, len(tokens)))
                self.assertAlmostEqual(answer["loglikelihood"], expected, 5)
                self.assertEqual(answer["greedy"], all(rows[i - 1].argmax() == tokens[i] for i in range(first, len(tokens))))
            expected = [whole[0], whole[1][:first_stop(whole[1], greedy[1]["stop"][0])], whole[2], whole[3]]
            self.assertEqual([f["tokens"] for f in found[len(scored):]], expected)

    def test_summary_of_bytes_and_speed(self):
        path = self.calibrate(1, "olmo2_mha", "bytes", stored=0.25)
        found = self.evaluate(1, "olmo2_mha", "bytes", plan=path, texts=self.text, **{"run.memory_gib": 1})
        with h5py.File(path) as file:
            stored = int(file.attrs["bytes_stored"])
            config = json.loads((GOLDEN / "olmo2_mha" / "config.json").read_text())
        columns = config["hidden_size"] * config["num_hidden_layers"] * 2
        page, tokens = 64 * len(self.sequences), sum(map(len, self.sequences))  # a page per sequence, float64
        stored += 2 * config["num_hidden_layers"] * 8 / 64  # pages of codes end with 8 unused bytes
        self.assertAlmostEqual(found["bytes_per_token"]["full"], page / tokens * 8 * columns)
        self.assertAlmostEqual(found["bytes_per_token"]["stored"], page / (tokens - 4 * len(self.sequences)) * stored)
        self.assertEqual(found["bytes_per_token"]["exact"], 8 * columns)
        self.assertTrue(all(value > 0 for value in found["tokens_per_second"].values()))
        self.assertGreater(found["largest_batch"], 3 * found["full_largest_batch"])

    def test_a_step_reads_referred_heads_of_earlier_layers_again(self):
        path = self.calibrate(1, "olmo2_mha", "read", algorithm="headspan", scope="causal", stored=0.5)
        with h5py.File(path) as file:
            d, heads, layers = (int(file.attrs[name]) for name in ("head_size", "kv_heads", "layers"))
            read = 0
            for group, layer in ((file[s][str(layer)], layer) for s in "kv" for layer in range(layers)):
                kept = {layer * heads + head for head in group["kept"][...]}
                read += 2 * d * len(kept | set(group["references"][...].ravel()) - {-1})
            self.assertEqual(file.attrs["bytes_read"], read)
            self.assertGreater(read, file.attrs["bytes_stored"])

    def test_inspect_says_what_plans_and_jobs_are(self):
        path = self.calibrate(1, "olmo2_mha", "inspected", stored=0.4)
        with h5py.File(path) as file:
            stored, full = (int(file.attrs[name]) for name in ("bytes_stored", "bytes_full"))
        job = self.folder / "cache.ini"
        job.write_text("[model]\npath = m\n[tokens]\npath = t\n[compress]\nplan = p.h5\n[evaluate]\nplan = p.h5\n"
                       "texts = a.bin\n")
        run = self.run_program(1, "inspect", path, job)
        self.assertEqual(run.returncode, 0, run.stderr)
        for text in ("compression plan", "latent", f"{stored} of {full} a token", "calibrate as it will run",
                     "evaluate as it will run", "texts = a.bin"):
            self.assertIn(text, run.stdout)
        self.assertNotIn("a study as it will run", run.stdout)

    def test_what_does_not_fit_is_refused(self):
        path = self.calibrate(1, "olmo2_mha", "refused", stored=0.5)
        with h5py.File(self.folder / "broken.h5", "w") as file, h5py.File(path) as good:
            for name, value in good.attrs.items():
                file.attrs[name] = value
            good.copy("k", file)
            good.copy("v", file)
            del file["v/0/lift"]
        (self.folder / "bad.jsonl").write_text('{"id": 1, "context": [1, 2], "continuation": [900]}\n')
        (self.folder / "empty.jsonl").write_text('{"id": 1, "context": [], "continuation": [9]}\n')
        base = {"model.path": GOLDEN / "olmo2_mha", "evaluate.plan": path, "evaluate.texts": self.text}
        answers = {"evaluate.answers": self.folder / "a.jsonl"}
        calibration = {"model.path": GOLDEN / "olmo2_mha", "tokens.path": self.tokens, "compress.plan": self.folder / "p.h5"}
        for number, (command, keys, message) in enumerate((
                ("evaluate", {**base, "model.path": GOLDEN / "olmo2_gqa"}, "config_sha256"),
                ("evaluate", {**base, "evaluate.plan": self.folder / "broken.h5"}, "v/0/lift"),
                ("evaluate", {**base, "evaluate.plan": self.text}, "cannot be read as HDF5"),
                ("evaluate", {**base, "evaluate.plan": ""}, "evaluate.plan: is missing"),
                ("evaluate", {**base, "evaluate.requests": self.folder / "bad.jsonl", **answers}, "line 1: continuation = 900"),
                ("evaluate", {**base, "evaluate.requests": self.folder / "empty.jsonl", **answers}, "line 1: context"),
                ("evaluate", {**base, "evaluate.requests": self.folder / "bad.jsonl"}, "evaluate.answers: is missing"),
                ("evaluate", {**base, "evaluate.texts": f"{self.text},{self.text}"}, "twice"),
                ("calibrate", {**calibration, "tokens.limit": 50}, "tokens.limit = 50"),
                ("calibrate", {**calibration, "compress.bits": "900x8"}, "compress.bits = 900x8"),
                ("calibrate", {**calibration, "compress.bits": "3x4,4x8"}, "rising bits"),
                ("calibrate", {**calibration, "compress.bits": 4}, "compress.bits = 4"),
                ("calibrate", {**calibration, "compress.stored": 1.5}, "compress.stored = 1.5"),
                ("calibrate", {**calibration, "compress.algorithm": "quantise"}, "compress.bits = auto"),
                ("calibrate", {**calibration, "compress.algorithm": "paper-code", "compress.units": "measured"},
                 "compress.units = measured"),
                ("calibrate", {**calibration, "grams.paths": self.text}, "grams.paths"),
                ("calibrate", {**calibration, "compress.plan": ""}, "compress.plan: is missing"))):
            for ranks in (1, 3) if number % 5 == 0 else (1,):
                with self.subTest(keys=keys, ranks=ranks):
                    printed = self.run_command(ranks, command, keys, code=2)
                    self.assertIn(message, printed)
                    self.assertEqual(len(re.findall("^headspan: (?!notice)", printed, re.M)), 1, printed)
        self.assertFalse((self.folder / "p.h5").exists())

    def test_grams_that_do_not_fit_the_memory_are_refused(self):
        config = json.loads((GOLDEN / "olmo2_mha" / "config.json").read_text())
        layers = config["num_hidden_layers"]
        columns = config["hidden_size"] * config["num_key_value_heads"] // config["num_attention_heads"]
        for algorithm, heldout, ranks, count in (("latent", 0.5, 1, layers), ("headspan", 0, 2, 1)):
            side = layers * columns // count
            grams = 2 * (2 if heldout else 1) * count * 8 * side * (side + 1) / 2 / ranks / 2**30
            keys = {"model.path": GOLDEN / "olmo2_mha", "tokens.path": self.tokens, "tokens.eos": EOS,
                    "tokens.sequence_length": LENGTH, "tokens.heldout": heldout, "compress.algorithm": algorithm,
                    "compress.stored": 0.5, "run.tensor_parallel": 1, "compress.plan": self.folder / "m.h5"}
            with self.subTest(algorithm=algorithm, heldout=heldout):
                printed = self.run_command(ranks, "calibrate", {**keys, "run.memory_gib": 0.99 * grams}, code=2)
                self.assertRegex(printed, "headspan: run.memory_gib = .*: leaves .* of which the Grams alone take ")
                self.run_command(ranks, "calibrate", {**keys, "run.memory_gib": 1.01 * grams})
                (self.folder / "m.h5").unlink()


def first_stop(tokens, stop):
    """The position where the first stop sequence begins."""
    return next(i for i in range(len(tokens)) if tokens[i:i + len(stop)] == stop)


if __name__ == "__main__":
    main()
