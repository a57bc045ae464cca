"""What commands print for programs (--json, --dry-run) and for people (--quiet, --verbose, the next command, how far a sweep is).

usage: test_printed.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

MODEL = GOLDEN / "llama_gqa"
CONFIG = json.loads((MODEL / "config.json").read_text())


class Printed(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("tokens.bin", np.random.default_rng(1).integers(0, 64, 3000))
        (cls.folder / "tokens.json").write_text(json.dumps({"tokenizer": "none", "vocab_size": 64, "eos": [7]}))
        rows = [f"s{i}\t{i}\t{i}\t{MODEL}" for i in range(3)]
        (cls.folder / "list.tsv").write_text("\n".join(["name\tstep\ttokens\tpath", *rows]) + "\n")
        (cls.folder / "job.ini").write_text(f"[model]\nmanifest = {cls.folder}/list.tsv\n[tokens]\npath = {cls.tokens}\n"
                                            "sequence_length = 100\n[predict]\nreferences = 2\n"
                                            f"[output]\ndirectory = {cls.folder}/a b\nsave_gram = true\n")
        cls.swept = cls.run_program(2, "study", cls.folder / "job.ini")
        assert cls.swept.returncode == 0, cls.swept.stderr

    def answer(self, *arguments, ranks=1, code=0):
        run = self.run_program(ranks, *arguments)
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def read_json(self, *arguments, **more):
        return json.loads(self.answer(*arguments, **more).stdout)

    def test_inspect_results(self):
        found = self.read_json("inspect", "--json", self.folder / "a b", ranks=2)
        self.assertEqual([(result["kind"], result["checkpoint"], result["step"]) for result in found],
                         [("result", f"s{i}", i) for i in range(3)])
        for result in found:
            with h5py.File(result["path"]) as file:
                self.assertEqual(result["schema"], np.char.decode(file.attrs["headspan_schema"]))
                for name, stream in result["streams"].items():
                    r2, heldout = file[name]["r2"][...], file[name]["r2_heldout"][...]
                    layer = file[name]["target_layer"][...]
                    r2[layer[None, :] > layer[:, None]] = np.nan
                    has_source = ~np.isnan(r2).all(1)
                    best = np.nanargmax(r2[has_source], 1)
                    self.assertAlmostEqual(stream["found"]["mean_best"], np.nanmax(r2[has_source], 1).mean(), places=12)
                    self.assertAlmostEqual(stream["found"]["mean_best_heldout"],
                                           heldout[has_source][np.arange(len(best)), best].mean(), places=12)
                    self.assertEqual(stream["n_fit"], file[name].attrs["n_fit"])

    def test_inspect_inputs(self):
        gram = next(self.folder.glob("a b/*/s0.gram.h5"))
        model, tokens, manifest, job, grams = self.read_json(
            "inspect", "--json", MODEL, self.tokens, self.folder / "list.tsv", self.folder / "job.ini", gram)
        self.assertEqual((model["kind"], model["layers"], model["kv_heads"], model["head_size"]),
                         ("checkpoint folder", CONFIG["num_hidden_layers"], CONFIG["num_key_value_heads"],
                          CONFIG["hidden_size"] // CONFIG["num_attention_heads"]))
        ids = np.fromfile(self.tokens, "<u2")
        self.assertEqual((tokens["tokens"], tokens["largest_id"], tokens["sidecar"]["eos"]), (3000, ids.max(), [7]))
        self.assertEqual(tokens["documents"], np.count_nonzero(ids == 7) + (ids[-1] != 7))
        self.assertEqual((manifest["checkpoints"], manifest["missing"]), (3, []))
        self.assertEqual(job["study"]["predict.references"], "2")
        with h5py.File(gram) as file:
            self.assertEqual(grams["streams"]["q"]["n_fit"], file["q/fit"].attrs["tokens"])

    def test_inspect_says_what_is_wrong_and_prints_the_rest(self):
        run = self.answer("inspect", "--json", self.folder / "none.h5", self.tokens, code=2)
        self.assertIn("none.h5", run.stderr)
        self.assertEqual([file["kind"] for file in json.loads(run.stdout)], ["token file"])

    def test_plan(self):
        arguments = ("plan", self.folder / "job.ini", "--ranks", 4)
        lines = {line.split()[0]: dict(pair.split("=", 1) for pair in line.split()[1:])
                 for line in self.answer(*arguments).stdout.splitlines() if not line.startswith("fits")}
        report = self.read_json(*arguments, "--json")
        self.assertIsNone(report.pop("fits"))
        self.assertEqual(report.keys(), lines.keys())
        for name, values in report.items():
            self.assertEqual(values.keys(), lines[name].keys())
            for key, value in values.items():
                same = value == lines[name][key] if isinstance(value, str) else np.isclose(value, float(lines[name][key]), rtol=1e-3)
                self.assertTrue(same or key == "program" or "peak" in key or key.startswith("gib"), (name, key))
        self.assertTrue(self.read_json(*arguments, "--json", "--memory-gib", 8)["fits"])
        self.assertFalse(self.read_json(*arguments, "--json", "--memory-gib", 0.001, code=2)["fits"])

    def test_dry_run(self):
        def files():
            return sorted(str(path) for path in self.folder.rglob("*"))
        state = self.folder / "new" / MODEL.parent.name / "s1.h5.state"
        state.parent.mkdir(parents=True)
        state.write_text("")
        before = files()
        run = self.answer("study", self.folder / "job.ini", "--dry-run", "--output.directory", self.folder / "new", ranks=2)
        self.assertEqual(files(), before)
        self.assertIn("study: 0 finished, 3 to compute on 2 ranks\n", run.stdout)
        self.assertEqual(re.findall(r"^  (\w+) +(s\d) ", run.stdout, re.MULTILINE),
                         [("compute", "s0"), ("continue", "s1"), ("compute", "s2")])
        self.assertRegex(run.stdout, r"memory: [0-9.]+ GiB on the fullest rank of [0-9.]+ GiB\ntime: about \d\d:\d\d:\d\d for a checkpoint")
        run = self.answer("study", self.folder / "job.ini", "--dry-run")
        self.assertIn("study: 3 finished, 0 to compute on 1 rank\n", run.stdout)
        self.answer("study", self.folder / "job.ini", "--dry-run", "--tokens.path", self.folder / "none.bin", code=2)

    def test_a_sweep_says_how_far_it_is(self):
        begun = re.findall(r"headspan checkpoint unit=(\S+) number=(\S+) sweep_eta=(\S+)", self.swept.stderr)
        self.assertEqual([(unit, number) for unit, number, _ in begun], [("s0", "1/3"), ("s1", "2/3"), ("s2", "3/3")])
        self.assertEqual(begun[0][2], "unknown")
        for *_, eta in begun[1:]:
            self.assertRegex(eta, r"^\d\d:\d\d:\d\d$")

    def test_the_next_command(self):
        def next_of(run):
            return re.findall(r"^next: (.*)$", run.stderr, re.MULTILINE)
        self.assertEqual(next_of(self.swept), [f"headspan inspect '{self.folder}/a b'"])
        self.assertEqual(next_of(self.answer("plan", self.folder / "job.ini", "--ranks", 4)),
                         [f"mpirun -n 4 headspan study {self.folder}/job.ini"])
        plan = self.folder / "plan.h5"
        run = self.answer("calibrate", f"--model.path={MODEL}", f"--tokens.path={self.tokens}", f"--compress.plan={plan}",
                          "--tokens.sequence_length=100", "--compress.effort=quick", "--compress.stored=0.5")
        self.assertEqual(next_of(run), [f"headspan evaluate --model.path {MODEL} --evaluate.plan {plan} --evaluate.texts TOKENS"])
        self.assertEqual(next_of(self.answer("inspect", self.folder / "a b")), [f"headspan-report report '{self.folder}/a b'"])

    def test_quiet_and_verbose(self):
        def study(name, *more):
            keys = {"model.path": MODEL, "tokens.path": self.tokens, "tokens.limit": 40, "tokens.sequence_length": 10,
                    "predict.streams": "k", "output.directory": self.folder / name}
            return self.answer("study", *(f"--{key}={value}" for key, value in keys.items()), *more, ranks=2)
        quiet = study("quiet", "-q")
        self.assertEqual([line for line in quiet.stderr.splitlines() if not line.startswith("headspan: warning: ")], [])
        self.assertIn("status=done", quiet.stdout)
        self.assertIn("headspan: warning: ", quiet.stderr)  # too few tokens for five references
        verbose = study("verbose", "--verbose").stderr
        self.assertEqual(re.findall(r"headspan rank rank=(\d) host=\S+ pid=\d+ threads=\d+", verbose), ["0", "1"])
        self.assertRegex(verbose, r"headspan memory fullest_rank=\"[0-9.]+ GiB\"")
        self.assertNotIn("headspan rank", study("normal").stderr)


if __name__ == "__main__":
    main()
