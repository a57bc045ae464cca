"""`headspan-report export` of plans that `headspan calibrate` makes: bits against the plan's bytes, hints against their rule,
rotations against numpy's eigenvectors of moments that the test sums itself. Rotations need torch, and are skipped without it.

usage: test_export.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import importlib.util
import json
import re
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np
from samples import run, write_done

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

from headspan_report.compression.export import llama_type

MODEL, TOKENS, EOS = "olmo2_gqa", 2000, 63
PLANS = {"latent": {"stored": 0.2}, "latent-v": {"stored": 0.3, "streams": "v"}, "quantise-4": {"bits": 4}, "hadamard-3": {"bits": 3},
         "rotated-q4": {}, "kivi-2": {"bits": 2}, "oscar-2": {"bits": 2}}
FILES = {"k": "k_rotation_qqt_r_h_pbr.pt", "v": "v_rotation_sst_r_h_pbr.pt"}


class Export(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("fit.bin", np.random.default_rng(4).integers(0, EOS + 1, TOKENS))

    def plan(self, name, **more):
        keys = {"algorithm": name if name.startswith("rotated") else name.split("-")[0], "plan": self.folder / f"{name}.h5",
                "effort": "quick", **PLANS.get(name, {}), **more}
        done = self.run_program(1, "calibrate", f"--model.path={GOLDEN / MODEL}", f"--tokens.path={self.tokens}", f"--tokens.eos={EOS}",
                                "--tokens.sequence_length=40", *(f"--compress.{key}={value}" for key, value in keys.items()))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return keys["plan"]

    def export(self, plan, *words):
        output = self.folder / "exported.json"
        done = run("export", plan, "--output", output, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(output.read_text()), done.stdout

    def test_bits_are_those_that_the_plan_stores(self):
        for name in PLANS:
            with self.subTest(plan=name):
                path = self.plan(name)
                found, told = self.export(path)
                with h5py.File(path) as plan:
                    columns = plan.attrs["kv_heads"] * plan.attrs["head_size"]
                    bits = {s: [layer["bits_per_number"] for layer in layers] for s, layers in found["streams"].items()}
                    self.assertAlmostEqual(sum(bits["k"] + bits["v"]) * columns / 8, plan.attrs["bytes_stored"], delta=1e-9)
                    for s in "kv":
                        self.assertAlmostEqual(found["bits_per_number"][s], np.mean(bits[s]))
                        if s not in plan:
                            self.assertEqual(bits[s], [16] * len(bits[s]))
                            continue
                        for layer, of_layer in enumerate(found["streams"][s]):
                            attributes = plan[f"{s}/{layer}"].attrs
                            self.assertEqual(of_layer["bands"], [[c, b] for c, b in zip(attributes["band_columns"].tolist(),
                                                                                      attributes["band_bits"].tolist()) if c])
                            self.assertEqual(of_layer["expected_loss"], attributes["expected_loss"])
                    for key in ("config_sha256", "weights_digest", "algorithm", "model_type"):
                        self.assertEqual(found[key], np.asarray(plan.attrs[key]).astype(str).item())
                for s in "kv":
                    self.assertIn(f"--cache-type-{s} {found['llama.cpp'][f'--cache-type-{s}']}", told)

    def test_the_command_of_the_page(self):
        page = (Path(__file__).resolve().parents[2] / "analysis" / "README.md").read_text()
        command = re.search(r"<!-- run by: tests/analysis/test_export.py -->\n```bash\n(.*)\n```\n", page).group(1)
        words = [str(self.folder / word) if word in ("plan.h5", "plan.json") else word for word in command.split()]
        self.plan("hadamard-3").rename(self.folder / "plan.h5")
        (self.folder / "hadamard-3.h5.done").rename(self.folder / "plan.h5.done")
        self.assertEqual(words[0], "headspan-report")
        self.assertEqual(run(*words[1:]).returncode, 0)
        self.assertEqual(json.loads((self.folder / "plan.json").read_text())["llama.cpp"],
                         {"--cache-type-k": "q4_1", "--cache-type-v": "q4_1"})  # 3 bits and 16 for 8 columns

    def test_hints_follow_their_rules(self):
        self.assertEqual([llama_type(bits) for bits in (2, 4.5, 4.51, 5.2, 6.1, 8.5, 9, 16)],
                         ["q4_0", "q4_0", "q4_1", "q5_0", "q8_0", "q8_0", "f16", "f16"])
        path = self.plan("latent")
        with h5py.File(path, "r+") as plan:  # 8 bits a column in layer 1, 2 in the others
            for s in "kv":
                for layer in range(plan.attrs["layers"]):
                    plan[f"{s}/{layer}"].attrs["band_columns"] = np.array([16])
                    plan[f"{s}/{layer}"].attrs["band_bits"] = np.array([8 if layer == 1 else 2])
        write_done(path)
        found, told = self.export(path, "--skip-layers", "1")
        self.assertEqual(found["vllm"], {"kv_cache_dtype_skip_layers": ["1"]})
        self.assertIn("--kv-cache-dtype-skip-layers 1\n", told)
        self.assertEqual(self.export(path, "--skip-layers", "0")[0]["vllm"], {"kv_cache_dtype_skip_layers": []})
        found, told = self.export(self.plan("quantise-4"))  # no layer has more bits than another
        self.assertEqual(found["vllm"], {"kv_cache_dtype_skip_layers": []})
        self.assertNotIn("vLLM", told)

    def test_what_cannot_be_exported_is_refused(self):
        whole = self.plan("whole", algorithm="latent", bits=16, stored=0.5)
        latent, oscar = self.plan("latent"), self.plan("oscar-2")
        with h5py.File(oscar, "r+") as plan:
            del plan["v/0/eigenvalues"]
        write_done(oscar)
        for words, message in (((whole,), "stores every number in 16 bits"), ((latent, "--skip-layers", "99"), "is not a number of layers"),
                               ((latent, "--rotations", self.folder), "has no rotations"),
                               ((oscar, "--rotations", self.folder / "r"), "eigenvalues: is missing"),
                               ((self.tokens,), "has no .done")):
            with self.subTest(message):
                if "eigenvalues" in message and importlib.util.find_spec("torch") is None:
                    continue
                done = run("export", *words, "--output", self.folder / "none.json")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertFalse((self.folder / "none.json").exists())
        done = run("export", latent, "--output", latent)
        self.assertEqual(done.returncode, 2)
        self.assertIn("which is read", done.stderr)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is missing")
    def test_rotations_are_those_of_the_mean_moment(self):
        import torch
        folder = self.folder / "rotations"
        path = self.plan("oscar-2")
        self.export(path, "--rotations", folder)
        with h5py.File(path) as plan:
            heads, d = int(plan.attrs["kv_heads"]), int(plan.attrs["head_size"])
            spread = np.array([[(-1) ** (i & j).bit_count() for j in range(d)] for i in range(d)]) / np.sqrt(d)
            for s, name in FILES.items():
                content = torch.load(folder / name, weights_only=True)
                self.assertEqual((content["format_version"], content["source_grouping"]), (1, "layer"))
                self.assertEqual(list(content["layers"]), list(range(plan.attrs["layers"])))
                for layer, found in content["layers"].items():
                    group = plan[f"{s}/{layer}"]
                    moment = 0
                    for head in range(heads):
                        vectors = np.asarray(group["rotation"][head], float) @ spread.T
                        moment = moment + vectors @ np.diag(group["eigenvalues"][head * d:head * d + d]) @ vectors.T / heads
                    rotation, values = found["rotation"].double().numpy(), found["eigenvalues"].double().numpy()
                    np.testing.assert_allclose(rotation.T @ rotation, np.eye(d), atol=1e-5)
                    np.testing.assert_allclose(values, np.linalg.eigvalsh(moment)[::-1], rtol=1e-4, atol=1e-6 * values[0])
                    # In the rotated basis every axis has the mean of the eigenvalues: what the Hadamard matrix is for.
                    np.testing.assert_allclose(np.diag(rotation.T @ moment @ rotation), values.mean(), rtol=1e-4)
                    order = [int(f"{i:0{d.bit_length() - 1}b}"[::-1], 2) for i in range(d)]
                    vectors = rotation[:, np.argsort(order)] @ spread.T
                    np.testing.assert_allclose(vectors.T @ moment @ vectors, np.diag(values), atol=1e-5 * values[0])


if __name__ == "__main__":
    main()
