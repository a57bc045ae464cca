"""Bad token files, manifests, activations and Grams."""
import h5py
import numpy as np

from harness import Case
from samples import ACTIVATIONS

TOKENS = r"tokens\.bin: "
SIDECAR = r"tokens\.json: "
MANIFEST = {"model.path": None, "model.manifest": "manifest.tsv"}


def tokens(ids, dtype="<u2"):
    return lambda sample: sample.write_tokens(ids, dtype)


def raw_tokens(data):
    return lambda sample: sample.path("tokens.bin").write_bytes(data)


def config(**changes):
    return lambda sample: sample.write_model(**changes)


def sidecar(**fields):
    return lambda sample: sample.write_sidecar(**fields)


def manifest(*rows, **more):
    return lambda sample: sample.write_manifest(*rows, **more)


def bad_id(sample):
    ids = np.full(400, 5)
    ids[321] = 32
    sample.write_tokens(ids)


def broken_fifth_of_nine(sample):
    """All nine are checked before work begins, so that not even the first is computed."""
    for step in range(9):
        sample.write_model(f"step{step}")
    (sample.path("step5") / "model.safetensors").write_bytes(b"\1\2")
    sample.write_manifest(*(f"step{step}\t{step}\t\tstep{step}" for step in range(9)))


def other_kv_heads(sample):
    sample.write_model("step1", num_key_value_heads=1)
    sample.write_manifest("step0\t0\t\tmodel", "step1\t1\t\tstep1")


def activations(change):
    def spoil(sample):
        sample.write_activations(np.random.default_rng(1).standard_normal((40, 3, 2)))
        with h5py.File(sample.path("z.h5"), "a") as file:
            change(file)
    return spoil


def scaled_activations(scale, d=4):
    def spoil(sample):
        z = np.random.default_rng(1).standard_normal((80, 3, d))
        z[:, 1] *= scale[0]
        z[:, [0, 2]] *= scale[1]
        sample.write_activations(z, layer=[0, 1, 1])
    return spoil


def out_of_range(name, place, wrong, scale, d=4, right="multiply all values by one power of two, .+", **keys):
    return Case(f"activations {name}, head size {d}", rf"z\.h5: k{place}: its values are too {wrong} to be squared and summed; {right}",
                scaled_activations(scale, d), base=ACTIVATIONS, keys={key.replace("__", "."): value for key, value in keys.items()})


def grams(**changes):
    """Writes Grams of two heads of size 3 in one layer, with changed attributes."""
    def write(sample):
        with h5py.File(sample.path("a.gram.h5"), "w") as file:
            file["k/fit/mean"], file["k/fit/tiles"] = np.zeros(6), np.stack([np.eye(3), np.zeros((3, 3)), np.eye(3)])
            file["k/fit"].attrs["tokens"] = 40
            file["k"].attrs.update({"layer": [0, 0], "head": [0, 1], "head_size": 3, "hidden_size": 16, "capture": "roped",
                                    "forward_dtype": "float32", "precision": "float64", "skip_first": 0} | changes)
    return write


def grams_of_two_kinds_of_weights(sample):
    grams()(sample)
    sample.path("b.gram.h5").write_bytes(sample.path("a.gram.h5").read_bytes())
    with h5py.File(sample.path("b.gram.h5"), "a") as file:
        file.attrs["init"] = "random"


def set_nan(file):
    file["activations"][7, 1, 0] = np.nan


def same_head_twice(file):
    file["head"][2] = 0


def without(name):
    return lambda file: file.__delitem__(name)


def far_pointer(sample):
    sample.write_megatron([0, 2**63 - 1])


CASES = [
    Case("tokens missing", TOKENS + "cannot be opened: No such file or directory; .+",
         lambda sample: sample.path("tokens.bin").unlink()),
    Case("tokens empty", TOKENS + "holds no tokens; .+", raw_tokens(b"")),
    Case("tokens odd-sized", TOKENS + r"its 801 bytes are no whole number of uint16 ids; .+", raw_tokens(b"\1\0" * 400 + b"\1")),
    Case("id outside the vocabulary", TOKENS + r"token at position 321 = 32: is not an id of a vocabulary of 32; .+", bad_id),
    Case("uint32 ids read as uint64 sizes", TOKENS + r"token at position 0 = 327685: is not an id of a vocabulary of 32; .+",
         tokens([5] * 400), keys={"tokens.dtype": "uint32"}),
    Case("uint32 ids without a type", TOKENS + r"tokens\.dtype = auto: the file reads as uint16 ids and as uint32 ids below 32 "
         r"alike; give tokens\.dtype = uint16 or uint32, or write .+ to tokens\.json", tokens(np.arange(400) % 32, "<u4")),
    Case("ids of 8 bytes without a type", TOKENS + r"tokens\.dtype = auto: the file reads as ids of 8 bytes; write them as "
         r"uint32, .+ to tokens\.json", tokens(np.arange(400) % 32, "<i8")),
    Case("uint16 ids for a vocabulary that needs uint32", TOKENS + r"tokens\.dtype = auto: the file does not read as uint32 ids "
         r"below 70000, the model's vocabulary; give tokens\.dtype = uint16 or uint32, .+", config(vocab_size=70000)),
    Case("sidecar of another type", SIDECAR + r"dtype = uint32: the job says uint16; the two must agree", sidecar(dtype="uint32"),
         keys={"tokens.dtype": "uint16"}),
    Case("sidecar of another count", SIDECAR + r"count = 7: tokens\.bin holds 400 uint16 ids; the two must agree",
         sidecar(count=7)),
    Case("sidecar of another vocabulary", SIDECAR + r"vocab_size = 50000: model/config\.json has a vocabulary of 32; .+",
         sidecar(vocab_size=50000)),
    Case("sidecar of another hash", SIDECAR + r"sha256 = 0{64}: .+; .+", sidecar(sha256="0" * 64)),
    Case("sidecar is no JSON", SIDECAR + "is not valid JSON: .+; .+", lambda sample: sample.path("tokens.json").write_text("x")),
    Case("sidecar nested deep", SIDECAR + "nests deeper than 32; .+",
         lambda sample: sample.path("tokens.json").write_text('{"eos": ' + "[" * 200_000 + "]" * 200_000 + "}")),
    Case("raw ids said to be npy", TOKENS + r"tokens\.format = npy: the file has no NPY header.+; .+",
         keys={"tokens.format": "npy"}),
    Case("Megatron pointer of 2^63 - 1", r"m\.idx: has a pointer of 9223372036854775807 bytes; .+", far_pointer,
         keys={"tokens.path": "m.bin"}),
    Case("manifest name of 161 bytes", r"manifest\.tsv: line 2 name = 'n{99}\.\.\.: cannot name a result file; 1 to 160 .+",
         manifest("n" * 161 + "\t0\t0\tmodel"), keys=MANIFEST),
    Case("manifest row short", r"manifest\.tsv: line 3: has 3 fields; the header has 4, separated by tabs",
         manifest("a\t0\t0\tmodel", "b\t1\t0"), keys=MANIFEST),
    Case("manifest step is no number", r"manifest\.tsv: line 2 step = one: is not a count; .+", manifest("a\tone\t0\tmodel"),
         keys=MANIFEST),
    Case("manifest column unknown", r"manifest\.tsv: line 1 column = 'folder': is unknown; .+",
         manifest("a\t0\t0\tmodel", header="name\tstep\ttokens\tfolder"), keys=MANIFEST),
    Case("manifest name twice", r"manifest\.tsv: line 3 name = a: is the name of an earlier row too; .+",
         manifest("a\t0\t0\tmodel", "a\t1\t0\tmodel"), keys=MANIFEST),
    Case("manifest repository that leads elsewhere", r"manifest\.tsv: line 2 repository = '\.\.': cannot name .+; .+",
         manifest("a\t0\t\tmodel\t..", header="name\tstep\ttokens\tpath\trepository"), keys=MANIFEST),
    Case("manifest name that cannot be selected", r"manifest\.tsv: line 2 name = '--x': cannot be selected .+; .+",
         manifest("--x\t0\t\tmodel"), keys=MANIFEST),
    Case("manifest row named as another's random weights",
         r"manifest\.tsv: name = a-random: names a row and .+; rename the row",
         manifest("a\t0\t0\tmodel", "a-random\t1\t0\tmodel"), keys=MANIFEST | {"model.init": "pretrained,random"}),
    Case("manifest selects no row", r"model\.select = b: .+; .+", manifest("a\t0\t0\tmodel"),
         keys=MANIFEST | {"model.select": "b"}),
    Case("manifest path missing", r"gone: does not exist; .+", manifest("a\t0\t0\tmodel", "b\t1\t0\tgone"), keys=MANIFEST),
    Case("fifth of nine checkpoints broken", r"step5/model\.safetensors: file size = 2: .+", broken_fifth_of_nine, keys=MANIFEST),
    Case("second checkpoint with other KV heads",
         r"run\.tensor_parallel = 2: does not divide (a group of 1 rank|the 1 KV heads of step1/config\.json); .+",
         other_kv_heads, keys=MANIFEST | {"run.tensor_parallel": 2}),
    Case("activations missing", r"z\.h5: .+; .+", base=ACTIVATIONS),
    Case("activations are no HDF5", r"z\.h5: cannot be read as HDF5 .+; .+", lambda sample: sample.path("z.h5").write_text("no"),
         base=ACTIVATIONS),
    Case("activations without layers", r"z\.h5: layer: the dataset is missing; .+", activations(without("layer")),
         base=ACTIVATIONS),
    Case("activations hold NaN", r"z\.h5: activations\[7, 1, 0\] = -?nan: is not a finite number; .+", activations(set_nan),
         base=ACTIVATIONS),
    Case("activations name a head twice", r"z\.h5: layer, head = 0, 0: stands twice, .+; .+", activations(same_head_twice),
         base=ACTIVATIONS),
    Case("activations of another stream than is asked for",
         r"predict\.streams = v,q: z\.h5 holds stream k; leave it out, or give k", activations(lambda file: None), base=ACTIVATIONS,
         keys={"predict.streams": "v,q"}),
    *(out_of_range("whose squares overflow", ", layer 1, head 0", "large", (1e155, 1), d) for d in (1, 2, 4)),
    *(out_of_range("whose squares are denormal", "", "small", (1e-160, 1e-160), d) for d in (1, 2, 4)),
    out_of_range("whose squares are 0", "", "small", (1e-170, 1e-175)),
    out_of_range("whose products overflow in float32", ", layer 1, head 0", "large", (1e20, 1),
                 right="set predict.precision = float64", predict__precision="float32"),
    out_of_range("whose products vanish in float32", "", "small", (1e-20, 1e-20), right="set predict.precision = float64",
                 predict__precision="float32"),
    Case("Grams missing", r"a\.gram\.h5: .+; .+", keys={"grams.paths": "a.gram.h5"}, base={"output.directory": "out"}),
    Case("Grams are no HDF5", r"tokens\.bin: .+; .+", keys={"grams.paths": "tokens.bin"}, base={"output.directory": "out"}),
    *(Case(f"Grams of an unknown {name}", rf"a\.gram\.h5: k {name} = {word}: is not known; {known}", grams(**{name: word}),
           keys={"grams.paths": "a.gram.h5"}, base={"output.directory": "out"})
      for name, word, known in (("precision", "tf32", r"float64\|float32\|split\|bfloat16"), ("capture", "Roped", r"proj\|.+"),
                                ("forward_dtype", "double", r"float64\|.+"))),
    Case("Grams of an unknown capture, inspected", r"a\.gram\.h5: k capture = Roped: is not known; proj\|.+", grams(capture="Roped"),
         arguments=["inspect", "a.gram.h5"]),
    *(Case(f"Grams of another {name} than is given", rf"predict\.{name} = {given}: a\.gram\.h5 has {found} for k; leave it out, or "
           f"give {found}", grams(**{name: found}), keys={"grams.paths": "a.gram.h5", f"predict.{name}": given},
           base={"output.directory": "out"})
      for name, given, found in (("capture", "roped", "proj"), ("precision", "float64", "split"))),
    Case("Grams of pretrained and of random weights",
         r"b\.gram\.h5: init = random: the files before have pretrained; merge Grams of one checkpoint",
         grams_of_two_kinds_of_weights, keys={"grams.paths": "a.gram.h5,b.gram.h5"}, base={"output.directory": "out"}),
    Case("Grams are another HDF5 file", r"z\.h5: .+; .+", activations(lambda file: None), keys={"grams.paths": "z.h5"},
         base={"output.directory": "out"}),
]
