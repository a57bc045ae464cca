"""`headspan inspect` on each kind of file, sound and not: what it says, and its exit code.

    test_inspect.py PROGRAM MPIEXEC
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy
from scipy import integrate, stats

sys.path.insert(0, str(Path(__file__).resolve().parent / "bad_input"))
from samples import Sample

PROGRAM, MPIEXEC = sys.argv.pop(1), sys.argv.pop(1)
HEADS, HEAD_SIZE, HIDDEN, TOKENS = 6, 4, 32, 400
LAYER = numpy.array([0, 0, 0, 1, 1, 1])


def run(*words, ranks=0):
    start = [MPIEXEC, "-n", str(ranks)] if ranks else []
    done = subprocess.run([*start, PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=50)
    return done.returncode, done.stdout, done.stderr


def write_activations(path):
    """Random projections of one hidden state; heads 1 and 2 share half of their coordinates."""
    random = numpy.random.default_rng(1)
    values = random.normal(size=(TOKENS, HIDDEN)) @ random.normal(size=(HIDDEN, HEADS * HEAD_SIZE))
    values = values.reshape(TOKENS, HEADS, HEAD_SIZE)
    values[:, 2, :2] = values[:, 1, :2]
    with h5py.File(path, "w") as file:
        file["activations"] = values
        file["layer"], file["head"] = LAYER, numpy.arange(HEADS) % 3
        file["sequence"] = numpy.arange(TOKENS) // 20
        file.attrs["stream"], file.attrs["hidden_size"] = "v", HIDDEN


def write_tokens(path, ids, **sidecar):
    path.write_bytes(numpy.array(ids, "<u2").tobytes())
    path.with_suffix(".json").write_text(json.dumps({"dtype": "uint16", **sidecar}))


def llama_shapes():
    """Returns the shapes of the tensors of the model that write_checkpoint configures."""
    layer = {"self_attn.q_proj": (16, 16), "self_attn.k_proj": (8, 16), "self_attn.v_proj": (8, 16),
             "self_attn.o_proj": (16, 16), "mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16),
             "mlp.down_proj": (16, 24), "input_layernorm": (16,), "post_attention_layernorm": (16,)}
    shapes = {f"model.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in layer.items()}
    return shapes | {"model.embed_tokens.weight": (50, 16), "model.norm.weight": (16,), "lm_head.weight": (50, 16)}


def write_checkpoint(folder, shapes):
    folder.mkdir()
    config = {"model_type": "llama", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, shape in shapes.items():
        end = len(data) + 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), end]}
        data += bytes(end - len(data))
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def publish(path):
    """Writes the .done of a result, as a study does."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    Path(f"{path}.done").write_text(f"size {len(data)}\nsha256 {digest}\njob_id 1\njob_digest none\n")


FOLDER: Path  # made by setUpModule, with the results FIRST and SECOND
FIRST: Path
SECOND: Path


def setUpModule():
    """One study, and a second result that is the first with other numbers."""
    global FOLDER, FIRST, SECOND
    FOLDER = Path(tempfile.mkdtemp(prefix=f"headspan_inspect_{os.getpid()}_"))
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    write_activations(FOLDER / "first.h5")
    code, _, error = run("study", "--activations.path", FOLDER / "first.h5", "--output.directory",
                         FOLDER / "results", "--output.save_gram", "true", "--predict.references", 2)
    assert code == 0, error
    FIRST = FOLDER / "results" / "activations" / "first.h5"
    SECOND = FIRST.with_name("second.h5")
    shutil.copy(FIRST, SECOND)
    with h5py.File(SECOND, "r+") as file:
        file.attrs["checkpoint"] = "second"
        for name in ("r2", "r2_heldout", "effective_rank"):
            file[f"v/{name}"][...] = file[f"v/{name}"][...] * 0.9
    publish(SECOND)


class Results(unittest.TestCase):
    def expected_row(self, path):
        """Computes mean and median best, shares, held-out mean and effective rank from the file with numpy."""
        with h5py.File(path) as file:
            r2, heldout = file["v/r2"][:], file["v/r2_heldout"][:]
            rank = file["v/effective_rank"][:].mean()
        causal = (LAYER[None, :] <= LAYER[:, None]) & ~numpy.eye(HEADS, dtype=bool)
        best = numpy.where(causal, r2, -1).argmax(axis=1)
        r2_best = r2[range(HEADS), best]
        return [r2_best.mean(), numpy.median(r2_best), (r2[causal] > 0.1).mean(), (r2[causal] > 0.5).mean(),
                heldout[range(HEADS), best].mean(), rank]

    def expected_null(self, n_fit):
        """Computes the same for random projections with scipy."""
        mean, weight = HEAD_SIZE / HIDDEN, HEAD_SIZE * (HIDDEN + 2) / 2 - 1
        beta = stats.beta(mean * weight, (1 - mean) * weight)
        floor = HEAD_SIZE / (n_fit - 1)
        sources = [2, 2, 2, 5, 5, 5]
        grid = numpy.linspace(0, 1, 200001)
        below = numpy.mean([beta.cdf(grid) ** count for count in sources], axis=0)
        best, median = integrate.trapezoid(1 - below, grid), numpy.interp(0.5, below, grid)
        above = [beta.sf((r2 - floor) / (1 - floor)) for r2 in (0.1, 0.5)]
        return [floor + (1 - floor) * best, floor + (1 - floor) * median, *above, best]

    def check_row(self, row, name, expected):
        words = row.split()
        self.assertEqual(words[0], name)
        for word, value in zip(words[1:], expected, strict=True):
            self.assertAlmostEqual(float(word), value, delta=0.0051 if value > 1 else 0.00051)

    def test_folder(self):
        code, out, error = run("inspect", FOLDER / "results")

        self.assertEqual((code, error), (0, f"next: headspan-report report {FOLDER}/results\n"))
        with h5py.File(FIRST) as file:
            n_fit = int(file["v"].attrs["n_fit"])
        self.assertIn(f"n_fit {n_fit}, n_heldout {TOKENS - n_fit}", out)
        self.assertIn("V 6 heads in 2 layers; head size d = 4, hidden size m = 32", out)
        titles, first, second, null = out.splitlines()[-4:]
        self.assertEqual(titles.split(), ["checkpoint", "mean", "med.", ">0.1", ">0.5", "held", "rank"])
        self.check_row(first, "first", self.expected_row(FIRST))
        self.check_row(second, "second", self.expected_row(SECOND))
        self.check_row(null, "null", self.expected_null(n_fit))

    def test_one_without_done_beside_a_missing_one(self):
        path = FOLDER / "no_done.h5"
        shutil.copy(FIRST, path)

        code, out, error = run("inspect", FOLDER / "nothing", path)

        self.assertEqual(code, 2)
        self.assertEqual(error.splitlines(),
                         [f"headspan: {FOLDER}/nothing: does not exist; name a file or folder",
                          f"headspan: notice: {path} has no .done beside it: a study would compute it anew"])
        self.assertIn("checkpoint first", out)
        self.assertIn(f"R2 from the best source, mean             {self.expected_row(FIRST)[0]:.3f} 0.", out)

    def test_a_gram_without_done(self):
        path = FOLDER / "no_done.gram.h5"
        shutil.copy(FIRST.with_name("first.gram.h5"), path)

        code, out, error = run("inspect", path)

        self.assertEqual((code, error), (0, f"headspan: notice: {path} has no .done beside it: it is read with a warning\n"))
        self.assertIn(f"{path}: Grams", out)

    def test_what_heads_gather(self):
        path = FOLDER / "gathered.h5"
        shutil.copy(FIRST, path)
        with h5py.File(path, "r+") as file:
            file.move("v", "z")

        code, out, _ = run("inspect", path)

        self.assertEqual(code, 0)
        self.assertIn("Z 6 heads in 2 layers", out)

    def test_attributes_are_escaped(self):
        path = FOLDER / "forged.h5"
        shutil.copy(FIRST, path)
        with h5py.File(path, "r+") as file:
            for name in ("model_name", "model_type", "checkpoint", "mode", "tokens_path", "source", "date_created"):
                file.attrs[name] = f"{name}\nheadspan: all is well\x1b[2J\x9b"
            file["v"].attrs["capture"] = "a\rb"

        code, out, _ = run("inspect", path)

        self.assertEqual(code, 0)
        self.assertEqual(out.count("\\x0Aheadspan: all is well\\x1B[2J\\xC2\\x9B"), 7)
        self.assertIn("captured a\\x0Db", out)
        self.assertFalse([c for c in out if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)])

    def test_names_and_values_are_escaped(self):
        forged, shown = "a\nheadspan: all is well\x1b[2J\x9b", "a\\x0Aheadspan: all is well\\x1B[2J\\xC2\\x9B"
        folder = FOLDER / f"folder {forged}"
        folder.mkdir()
        write_tokens(folder / "ids.bin", [3, 4], tokenizer=forged)
        (folder / "table.tsv").write_text("name\tstep\ttokens\tpath\na\t5\t\tb\n")
        for section, value in {"activations": "path = b\x1b[2J\x9b.h5\n[output]\ndirectory = b\x1b[2J\x9b\n",
                               "compress": "plan = b\x1b[2J\x9b.h5\n[grams]\npaths = c\x1b[2J\x9b.h5\n",
                               "theory": "trials = 3\n"}.items():
            (folder / f"{section}.ini").write_text(f"[{section}]\n{value}")
        shutil.copy(FIRST, folder / "first.h5")
        shutil.copy(FIRST.with_name("first.gram.h5"), folder / "first.gram.h5")
        write_activations(folder / "mine.h5")
        paths = sorted(path for path in folder.iterdir() if path.suffix != ".json")

        code, out, error = run("inspect", *paths)

        self.assertEqual((code, error.count("\n"), error.count(f"headspan: notice: {FOLDER}/folder {shown}/first")), (0, 2, 2), error)
        self.assertFalse([c for c in out + error if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)])
        self.assertNotIn("\nheadspan: all", out)
        for kind in ("ids.bin: token file", "table.tsv: manifest", "activations.ini: job file", "compress.ini: job file",
                     "theory.ini: job file", "mine.h5: activations", "first.gram.h5: Grams"):
            self.assertIn(f"{FOLDER}/folder {shown}/{kind}", out)
        self.assertIn("path = b\\x1B[2J\\xC2\\x9B.h5\n", out)
        self.assertIn("plan = b\\x1B[2J\\xC2\\x9B.h5\n", out)

    def test_a_path_without_utf8_works(self):
        folder = FOLDER / os.fsdecode(b"caf\xe9\xc2\x85")
        folder.mkdir()
        mine = folder / os.fsdecode(b"caf\xe9.h5")
        write_activations(mine)
        code, _, error = run("study", "--activations.path", mine, "--output.directory", folder / "out",
                             "--predict.references", 1)
        self.assertEqual(code, 0, error)

        code, out, error = run("inspect", mine, folder / "out")

        self.assertEqual((code, error), (0, ""))
        self.assertIn(f"{FOLDER}/caf\\xE9\\xC2\\x85/caf\\xE9.h5: activations", out)
        self.assertIn("checkpoint caf\\xE9", out)

    def test_all_ranks_end_with_one_code(self):
        code, out, error = run("inspect", FOLDER / "nothing", ranks=3)

        self.assertEqual((code, out), (2, ""))
        self.assertEqual(error.count("headspan: "), 1)


class Plans(unittest.TestCase):
    def test_one_without_done_is_not_checked(self):
        folder = FOLDER / "plans"
        folder.mkdir()
        Sample(folder).write_plan()
        path = folder / "plan.h5"
        said = run("inspect", path)
        publish(path)
        done = run("inspect", path)

        self.assertEqual(said[2], f"headspan: notice: {path} has no .done beside it: it is not checked, and evaluate would warn "
                                  "of it\n")
        self.assertEqual(done, (0, said[1], ""))


class Sound(unittest.TestCase):
    """Files that are as they should be, shown together."""

    @classmethod
    def setUpClass(cls):
        ids = [3, 4, 0, 9, 0, 5, 6]
        write_tokens(FOLDER / "letters.bin", ids, vocab_size=10, eos=0, tokenizer="letters",
                     sha256=hashlib.sha256(numpy.array(ids, "<u2").tobytes()).hexdigest())
        shutil.copy(FOLDER / "first.h5", FOLDER / "plain.h5")
        with h5py.File(FOLDER / "plain.h5", "r+") as file:
            del file.attrs["stream"]
        numpy.save(FOLDER / "ids.npy", numpy.array([1, 70000], "<u4"))
        write_checkpoint(FOLDER / "checkpoint", llama_shapes())
        (FOLDER / "table.tsv").write_text("name\tstep\ttokens\tpath\na\t5\t\tcheckpoint\nb\t10\t\tmissing\n")
        (FOLDER / "job.ini").write_text("[activations]\npath = a.h5\n[output]\ndirectory = out\n"
                                        "[predict]\nmode = paper\n")
        cls.paths = [FIRST.with_name("first.gram.h5"),
                     *(FOLDER / name for name in ("first.h5", "plain.h5", "letters.bin", "ids.npy", "checkpoint", "table.tsv",
                                                  "job.ini"))]
        cls.code, cls.out, cls.error = run("inspect", *cls.paths)

    def says(self, name, kind, *facts):
        """Returns what is printed from the file's name to that of the next."""
        path = next(path for path in self.paths if path.name == name)
        begin = self.out.index(f"{path}: {kind}")
        ends = [self.out.find(f"\n{other}: ", begin) for other in self.paths]
        said = self.out[begin:min((end for end in ends if end > begin), default=None)]
        for fact in facts:
            self.assertIn(fact, said)

    def test_all_are_accepted(self):
        self.assertEqual((self.code, self.error), (0, ""))

    def test_gram(self):
        self.says("first.gram.h5", "Grams",
                  "  stream v     6 heads of size 4, captured given, n_fit 300, n_heldout 100")

    def test_activations(self):
        self.says("first.h5", "activations", "  stream       v", "400 in 20 sequences",
                  "6 of size 4 in 2 layers", "  hidden size  32", "  type         float64")
        self.says("plain.h5", "activations", "  stream       k, the default: no attribute tells\n")

    def test_tokens(self):
        self.says("letters.bin", "token file", "  format       raw of uint16", "  tokens       7",
                  "  documents    3", "  largest id   9", "tokenizer letters, vocabulary 10, eos 0",
                  ", as the sidecar says")
        self.says("ids.npy", "token file", "npy of uint32", "  largest id   70000", "  sidecar      none")

    def test_checkpoint(self):
        self.says("checkpoint", "checkpoint folder", "llama, 2 layers, hidden size 16",
                  "4 query, 2 KV, of size 4", "  vocabulary   50", "  positions    64",
                  "theta 500000, llama3 scaling by 8.00 from 16.0 positions",
                  "21 tensors of F32, 22080 bytes, in model.safetensors")

    def test_manifest(self):
        self.says("table.tsv", "manifest", "  checkpoints  2", "  steps        5 to 10",
                  "1 of 2 exist; the first missing is b")

    def test_job(self):
        self.says("job.ini", "job file", "heldout = 0\n", "selection = pairwise\n")


class Faulty(unittest.TestCase):
    """Files that are not what they should be, each with its message; shown together."""

    @classmethod
    def setUpClass(cls):
        cls.told = {}
        cls.faulty_results()
        cls.faulty_inputs()
        cls.code, cls.out, cls.error = run("inspect", *cls.told)

    @classmethod
    def path(cls, name, *told):
        cls.told[FOLDER / name] = told
        return FOLDER / name

    @classmethod
    def faulty_results(cls):
        changed = cls.path("changed.h5", "changed.h5: is not the file that its .done speaks of")
        shutil.copy(FIRST, changed)
        publish(changed)
        with h5py.File(changed, "r+") as file:
            file["v/r2"][0, 1] = 0.99
        cut = cls.path("cut.h5", "cut.h5: cannot be read as HDF5", "truncated")
        shutil.copy(FIRST, cut)
        os.truncate(cut, 9000)
        lacking = cls.path("lacking.h5", "lacking.h5: v/status: is missing")
        shutil.copy(FIRST, lacking)
        with h5py.File(lacking, "r+") as file:
            del file["v/status"]
        publish(lacking)
        linked = cls.path("linked.h5", "linked.h5: v: is a link to another file")
        shutil.copy(FIRST, linked)
        with h5py.File(linked, "r+") as file:
            del file["v"]
            file["v"] = h5py.ExternalLink("first.h5", "/v")
        publish(linked)
        unsized = cls.path("unsized.h5", "unsized.h5: v: head_size = 0: is no size")
        shutil.copy(FIRST, unsized)
        with h5py.File(unsized, "r+") as file:
            file["v"].attrs["head_size"] = 0
        publish(unsized)

    @classmethod
    def faulty_inputs(cls):
        no_layers = cls.path("no_layers.h5", "no_layers.h5: layer: the dataset is missing")
        shutil.copy(FOLDER / "first.h5", no_layers)
        with h5py.File(no_layers, "r+") as file:
            del file["layer"]
        write_tokens(cls.path("beyond.bin", "beyond.bin: token 2 = 10: is no id of the vocabulary"), [3, 4, 10],
                     vocab_size=10)
        write_tokens(cls.path("other.bin", "other.json: sha256 = 0000"), [3, 4], sha256="0" * 64)
        numpy.arange(400, dtype="<u4").tofile(cls.path("wide.bin", "tokens.dtype = auto: the file reads as uint16 ids and as "
                                                       "uint32 ids below 262144 alike; give ", " to ", "wide.json"))
        shapes = llama_shapes()
        del shapes["model.layers.1.self_attn.v_proj.weight"]
        write_checkpoint(cls.path("headless", "headless: model.layers.1.self_attn.v_proj.weight: is missing"), shapes)
        broken = cls.path("broken", "broken/model.safetensors: ")
        write_checkpoint(broken, llama_shapes())
        os.truncate(broken / "model.safetensors", 500)
        cls.path("road.ini", "road").write_text("[activations]\nroad = a.h5\n")
        cls.path("letter.txt", "letter.txt: is nothing that headspan knows; known: a result").write_text("Dear R\n")
        cls.path("empty", "empty: is nothing that headspan knows").mkdir()

    def test_exit_code(self):
        self.assertEqual((self.code, self.out), (2, ""))

    def test_each_is_reported_once(self):
        lines = self.error.splitlines()
        self.assertEqual(len(lines), len(self.told), self.error)
        for line, told in zip(lines, self.told.values()):
            for part in (f"headspan: {FOLDER}/", *told):
                self.assertIn(part, line)


if __name__ == "__main__":
    unittest.main()
