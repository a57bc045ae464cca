"""A result file as h5py, xarray and ncdump read it; its attributes, its .done, and the job in it.

usage: test_result_format.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import datetime
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import xarray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

MODEL = GOLDEN / "olmo2_gqa"
CONFIG = json.loads((MODEL / "config.json").read_text())
LAYERS, D, M = CONFIG["num_hidden_layers"], 8, CONFIG["hidden_size"]
HEADS = {"k": CONFIG["num_key_value_heads"], "q": CONFIG["num_attention_heads"], "v": CONFIG["num_key_value_heads"]}
REFERENCES, POOL, SKIP = 2, 3, 1

BY_COUNT = {f"{name}_{rule}": ("target", "count") for rule in ("pairwise", "forward")
            for name in ("r2", "status", "rank", "pivot", "r2_error")}
VARIABLES = {
    **dict.fromkeys(("r2", "r2_weighted", "r2_heldout", "status"), ("target", "source")),
    **dict.fromkeys(("rank", "pivot", "r2_error"), ("source",)),
    **dict.fromkeys(("references_pairwise", "references_forward"), ("target", "reference")),
    **BY_COUNT, **dict.fromkeys(("r2_pairwise_heldout", "r2_forward_heldout"), ("target", "count")),
    **dict.fromkeys(("mean", "variance", "spectrum"), ("target", "coordinate")),
    **dict.fromkeys(("ceiling_layer", "ceiling_layer_adjusted", "ceiling_layer_heldout", "status_ceiling_layer",
                     "effective_rank"), ("target",)),
    "effective_rank_layer": ("layer",), "canonical_layer": ("layer", "head", "other_head")}
BY_TOLERANCE = ("projection", "effective", "tolerance", "layer")
OVERLAP = {**dict.fromkeys(("rank_sum", "rank_joint", "overlap_dimension"), BY_TOLERANCE),
           "singular_values": ("projection", "effective", "layer", "value"),
           "alignment": ("projection", "layer", "head", "other_head")}
SCORES = dict.fromkeys(("layer", "head", "induction", "duplicate_token", "previous_token", "first_token", "entropy"),
                       ("query_head",))
COORDINATES = {**{axis + suffix: (axis,) for axis in ("target", "source") for suffix in ("", "_layer", "_head")},
               **{axis: (axis,) for axis in ("reference", "count", "coordinate", "layer", "head", "other_head")}}


def texts(attributes):
    """Attributes with text as str, which h5py gives as bytes where it has a fixed length."""
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class ResultFormat(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("ids.bin", np.random.default_rng(8).integers(0, 64, 400))
        cls.job = cls.folder / "job.ini"
        cls.job.write_text(f"""# a comment
[model]
path = {MODEL}
dtype = float64
[tokens]
path = {cls.tokens}
sequence_length = 20
skip_first = {SKIP}
limit = 300   # the file has more
[predict]
references = {REFERENCES}
pool = {POOL}
[output]
directory = {cls.folder / 'results'}
""")
        run = cls.run_program(2, "study", cls.job, "--tokens.seed=5", "--run.grid=1x2", "--attention.scores=true")
        assert run.returncode == 0, run.stderr
        cls.last_line, cls.log = run.stdout.splitlines()[-1], run.stderr
        cls.result = cls.folder / "results" / "olmo2_gqa" / "olmo2_gqa.h5"

    def test_folder_holds_the_result_and_its_done(self):
        files = sorted(p.name for p in (self.folder / "results").rglob("*") if p.is_file())
        self.assertEqual(files, ["olmo2_gqa.h5", "olmo2_gqa.h5.done"])
        self.assertRegex(self.last_line, r"^status=done units=1 skipped=0 seconds=\d+\.\d$")

    def test_the_log_has_the_seconds_of_each_phase(self):
        line = re.search(r"^\S+ headspan seconds unit=olmo2_gqa (.*)$", self.log, re.MULTILINE)[1]
        seconds = {phase: float(value) for phase, value in (word.split("=") for word in line.split())}
        self.assertEqual(set(seconds), {"read", "load", "forward", "gram", "scores", "save", "overlap", "pairs", "heads", "selection",
                                        "ceiling", "publish"})
        whole = float(self.last_line.split("seconds=")[1])
        self.assertGreater(seconds["forward"], 0)
        self.assertTrue(whole / 10 < sum(seconds.values()) < whole + 0.05, (seconds, whole))

    def test_done_has_size_and_hash(self):
        done = dict(line.split(" ", 1) for line in Path(f"{self.result}.done").read_text().splitlines())
        self.assertEqual(int(done["size"]), self.result.stat().st_size)
        self.assertEqual(done["sha256"], sha256(self.result))
        self.assertTrue(done["job_id"])

    def test_root_attributes(self):
        with h5py.File(self.result) as file:
            attributes = texts(file.attrs)
        expected = {"title": "Linear predictability of the attention heads of olmo2_gqa",
                    "model_name": "olmo2_gqa", "model_type": "olmo2", "config_sha256": sha256(MODEL / "config.json"),
                    "checkpoint": "olmo2_gqa", "init": "pretrained", "step": -1, "training_tokens": -1, "training_seed": -1,
                    "tokens_path": str(self.tokens), "tokens_sha256": sha256(self.tokens), "mode": "corrected",
                    "ranks": 2, "grid": "1x2"}
        self.assertEqual({name: attributes.get(name) for name in expected}, expected)
        for name in ("headspan_schema", "title", "source", "history", "versions"):
            self.assertTrue(attributes[name], name)
        self.assertIn("git", attributes)
        created = datetime.datetime.fromisoformat(attributes["date_created"])
        self.assertLess(abs(datetime.datetime.now(datetime.UTC) - created), datetime.timedelta(minutes=30))
        for line in ("skip_first = 1", "limit = 300", "seed = 5", "heldout = 0.25"):
            self.assertIn(line, attributes["job"].splitlines())

    def test_stream_attributes(self):
        with h5py.File(self.result) as file:
            run = np.repeat(file["tokens/heldout"][:], file["tokens/length"][:] - SKIP)
            for stream, heads in HEADS.items():
                attributes = texts(file[stream].attrs)
                counts = np.arange(1, REFERENCES + 1)
                np.testing.assert_allclose(attributes.pop("noise_floor"), counts * D / ((run == 0).sum() - 1), 1e-15)
                np.testing.assert_allclose(attributes.pop("geometric_null"), counts * D / M, 1e-15)
                expected = {"n_fit": (run == 0).sum(), "n_heldout": run.sum(), "head_size": D, "hidden_size": M,
                            "capture": "roped", "forward_dtype": "float64", "precision": "float64", "pool": POOL,
                            "references": REFERENCES, "skip_first": SKIP, "ceiling_null": (heads - 1) * D / M}
                self.assertEqual({name: attributes[name] for name in expected}, expected)

    def test_h5py(self):
        with h5py.File(self.result) as file:
            self.assertEqual(set(file), {"k", "q", "v", "overlap", "attention", "tokens"})
            for stream in HEADS:
                group = file[stream]
                for name, axes in VARIABLES.items():
                    self.assertEqual(tuple(scale[0].name for scale in group[name].dims),
                                     tuple(f"/{stream}/{axis}" for axis in axes), name)
                    self.assertTrue(group[name].attrs["long_name"], name)
                kinds = {"status": np.uint8, "references_pairwise": np.int32, "rank": np.int32, "r2": np.float64}
                self.assertEqual({name: group[name].dtype.type for name in kinds}, kinds)

    def test_status_flags(self):
        with h5py.File(self.result) as file:
            for name in ("status", "status_pairwise", "status_forward"):
                attributes = texts(file["q"][name].attrs)
                self.assertEqual(attributes["flag_masks"].dtype, np.uint8)
                meanings = dict(zip(attributes["flag_masks"].tolist(), attributes["flag_meanings"].split()))
                self.assertEqual(meanings, {1: "deficient_source", 2: "constant_target_coordinate", 4: "too_few_tokens",
                                            8: "outside_band", 16: "not_computed"})

    def test_xarray(self):
        with xarray.open_dataset(self.result, engine="h5netcdf") as root:
            self.assertEqual(root.attrs["checkpoint"], "olmo2_gqa")
        for stream, heads in HEADS.items():
            with xarray.open_dataset(self.result, group=stream, engine="h5netcdf") as data:
                self.assertEqual({name: v.dims for name, v in data.data_vars.items()}, VARIABLES)
                self.assertEqual({name: v.dims for name, v in data.coords.items()}, COORDINATES)
                self.assertEqual(data.target_layer.values.tolist(), np.repeat(np.arange(LAYERS), heads).tolist())
                self.assertEqual(data.source_head.values.tolist(), list(range(heads)) * LAYERS)
                self.assertEqual(data["count"].values.tolist(), [1, 2])
                self.assertEqual(data.reference.values.tolist(), [0, 1])
                diagonal = np.eye(heads * LAYERS, dtype=bool)
                for name in ("r2", "r2_weighted", "r2_heldout"):
                    np.testing.assert_array_equal(np.isnan(data[name]), diagonal)
                np.testing.assert_array_equal(data.status == 16, diagonal)
                best = data.r2.where(data.source_layer <= data.target_layer).max("source")
                np.testing.assert_array_equal(best, data.r2_pairwise.sel(count=1))
        with xarray.open_dataset(self.result, group="overlap", engine="h5netcdf") as overlap:
            self.assertEqual({name: v.dims for name, v in overlap.data_vars.items()}, OVERLAP)
            self.assertEqual(overlap.projection.values.tolist(), ["q", "k", "v"])
            self.assertEqual(overlap.effective.values.tolist(), ["raw", "effective"])
            self.assertEqual(overlap.tolerance.values.tolist(), ["paper", "1e-1", "1e-2", "1e-3", "1e-4"])
            self.assertEqual(overlap.attrs["singular_values_from"], "eigenvalues of W^T W")
            missing = np.isnan(overlap.alignment.sel(projection="k")).values  # fewer KV heads than query heads
            self.assertEqual(missing.sum(), LAYERS * (HEADS["q"] ** 2 - HEADS["k"] ** 2))
        with xarray.open_dataset(self.result, group="attention", engine="h5netcdf") as scores:
            self.assertEqual({name: v.dims for name, v in scores.data_vars.items()}, SCORES)
            self.assertEqual(scores["layer"].values.tolist(), np.repeat(np.arange(LAYERS), HEADS["q"]).tolist())
            self.assertEqual(scores["head"].values.tolist(), list(range(HEADS["q"])) * LAYERS)
        with xarray.open_dataset(self.result, group="tokens", engine="h5netcdf") as tokens:
            self.assertEqual(set(tokens.data_vars), {"start", "length", "heldout"})
            self.assertEqual(tokens.length.sum(), 300)

    def test_ncdump(self):
        header = subprocess.run(["ncdump", "-h", self.result], capture_output=True, text=True, check=True).stdout
        for text in ("group: k {", "group: q {", "group: v {", "group: tokens {", "target = 8 ;", "coordinate = 8 ;",
                     "double r2(target, source) ;", "ubyte status(target, source) ;", "int references_forward(",
                     "status:flag_meanings", ':mode = "corrected" ;'):
            self.assertIn(text, header)

    def test_job_attribute_runs_again(self):
        with h5py.File(self.result) as file:
            again = self.folder / "again.ini"
            again.write_bytes(file.attrs["job"])
        run = self.run_program(2, "study", again, f"--output.directory={self.folder / 'again'}")
        self.assertEqual(run.returncode, 0, run.stderr)
        with h5py.File(self.result) as first, h5py.File(self.folder / "again/olmo2_gqa/olmo2_gqa.h5") as second:
            for group in ("k", "q", "v", "overlap", "tokens"):
                self.assertEqual(set(first[group]), set(second[group]))
                for name in first[group]:
                    np.testing.assert_array_equal(first[group][name][...], second[group][name][...])


if __name__ == "__main__":
    main()
