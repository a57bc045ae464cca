"""evaluate: bad plans and requests."""
import h5py
import numpy as np

from harness import Case
from samples import CONFIG, tensor_shapes

ARGUMENTS = ["evaluate", "--model.path=model", "--evaluate.plan=plan.h5", "--evaluate.answers=answers.jsonl",
             "--evaluate.requests=scored.jsonl", "--evaluate.generate=generated.jsonl"]
SCORED = {"id": 1, "context": [3, 4], "continuation": [5]}
GENERATED = {"id": 2, "context": [3], "max_new_tokens": 2, "stop": [[7]]}


def prepared(sample):
    sample.write_plan()
    sample.write_lines("scored.jsonl", SCORED)
    sample.write_lines("generated.jsonl", GENERATED)


def plan(name, line, change):
    def spoil(sample):
        prepared(sample)
        with h5py.File(sample.path("plan.h5"), "a") as file:
            change(file)
    return Case(name, r"plan\.h5: " + line, spoil, arguments=ARGUMENTS)


def scored(name, line, *lines):
    return requests(name, "scored", line, lines)


def generated(name, line, *lines):
    return requests(name, "generated", line, lines)


def requests(name, file, line, lines):
    def spoil(sample):
        prepared(sample)
        sample.write_lines(f"{file}.jsonl", *lines)
    return Case(name, rf"{file}\.jsonl {line}", spoil, arguments=ARGUMENTS)


def attribute(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


def attribute_of(group, name, value):
    return lambda file: file[group].attrs.__setitem__(name, value)


def element(name, value):
    def change(file):
        file[name][(1,) * file[name].ndim] = value
    return change


def with_gain(weight=None, bits=4):
    def change(file):
        group = file["k/1"]
        columns = sum(group.attrs["band_columns"])
        group.attrs.update(band_coding="gain", band_columns=[columns], band_bits=[bits])
        if weight is not None:
            group["weights"] = np.full(columns, weight, "f4")
    return change


def without_rotations(file):
    file.attrs["algorithm"] = "oscar"
    file["k/0"].attrs.update(band_columns=[8], band_bits=[2])


def wide(name, value):
    """Replaces an array by its values in float64."""
    def change(file):
        values = file[name][()].astype("f8")
        values[1, 1] = value
        del file[name]
        file[name] = values
    return change


def head_plan(name, value):
    """Writes a head plan in which head 1 of each layer is head 0, with `value` at [0, 1] of an array."""
    def change(file):
        file.attrs.update({"algorithm": "headspan", "references": 1})
        for layer in range(2):
            for stream in "kv":
                group = f"{stream}/{layer}"
                del file[group]
                file.create_group(group).attrs.update({"band_columns": [4], "band_bits": [16], "expected_loss": 0.1})
                arrays = {"kept": [0], "targets": [1], "references": [[2 * layer]], "map": np.eye(4)[None].astype("f4"),
                          "bias": np.zeros((1, 4)), "r2_heldout": [0.5], "loss": [0.1]}
                for key, values in arrays.items():
                    file[f"{group}/{key}"] = values
        file[name][0, 1] = value
    return change


def cut_short(sample):
    prepared(sample)
    whole = sample.path("plan.h5").read_bytes()
    sample.path("plan.h5").write_bytes(whole[:len(whole) * 2 // 3])


def deep(text, levels=200_000):
    """Returns `text` with a list of lists in place of @."""
    return text.replace("@", "[" * levels + "]" * levels)


def other_model(sample):
    prepared(sample)
    sample.write_model(rms_norm_eps=1e-6)


ONE_KV_HEAD = {"num_key_value_heads": 1}  # which no second rank can share


def without_output_layer(name, *arguments):
    """Gives a rank memory whose half holds the weights but for half of lm_head."""
    shapes = tensor_shapes(CONFIG | ONE_KV_HEAD)
    values = sum(np.prod(shape) for shape in shapes.values()) - np.prod(shapes["lm_head.weight"]) / 2
    return Case(name, r"run\.tensor_parallel = auto: the weights of model do not fit half of .+; .+",
                lambda sample: sample.write_model(**ONE_KV_HEAD),
                arguments=[*arguments, "--model.path=model", f"--run.memory_gib={2 * 4 * values / 2**30:.12f}"])


CASES = [
    without_output_layer("evaluate without room for lm_head", "evaluate", "--evaluate.texts=tokens.bin",
                         "--evaluate.cache=full", "--tokens.sequence_length=16"),
    without_output_layer("calibrate without room for lm_head", "calibrate", "--tokens.path=tokens.bin",
                         "--compress.plan=plan.h5", "--tokens.sequence_length=16"),
    Case("no GPU", r"run\.device = cuda: .+", prepared, arguments=[*ARGUMENTS, "--run.device=cuda"], code=1),
    Case("plan of another model", r"plan\.h5: config_sha256 = [0-9a-f]{12}: is not that of model/config\.json .+; .+", other_model,
         arguments=ARGUMENTS),
    Case("plan cut short", r"plan\.h5: cannot be read as HDF5 .+; .+", cut_short, arguments=ARGUMENTS),
    plan("plan of a newer headspan", r"headspan_schema = 2\.0: is not known; this headspan reads 1\.x; .+",
         attribute("headspan_schema", "2.0")),
    plan("plan without a schema", "/: has no attribute headspan_schema; .+", lambda file: file.attrs.pop("headspan_schema")),
    plan("plan of an unknown algorithm", "algorithm = magic: is not known .+; .+", attribute("algorithm", "magic")),
    plan("plan of keys before RoPE", "capture = proj: is not how a cache holds keys; .+", attribute("capture", "proj")),
    plan("plan of queries", "q: is no stream of a cache; .+", lambda file: file.copy("k", "q")),
    plan("plan that lacks a stream", "streams = k,v: are not those that the plan holds, k; .+", lambda file: file.pop("v")),
    plan("plan that lacks a layer", "v/1: is missing; .+", lambda file: file.pop("v/1")),
    plan("plan with NaN in a lift", "k/1/lift = -?nan: is not a finite number; .+", element("k/1/lift", np.nan)),
    plan("plan with an infinite mean", "v/0/mean = inf: is not a finite number; .+", element("v/0/mean", np.inf)),
    plan("plan with a mean beyond float32", r"v/0/mean = 1e\+39: is beyond float32, in which a cache computes; .+",
         element("v/0/mean", 1e39)),
    plan("head plan with a bias beyond float32", r"v/1/bias = -1e\+39: is beyond float32, in which a cache computes; .+",
         head_plan("v/1/bias", -1e39)),
    plan("plan with a band of more columns than there are",
         "k/1: band_columns = 9: is no number of columns of a layer, which has 8; .+",
         attribute_of("k/1", "band_columns", [9])),
    plan("plan with a band of -1 columns", "v/0: band_columns = -1: is no number of columns of a layer, which has 8; .+",
         attribute_of("v/0", "band_columns", [-1])),
    plan("plan with a band of 9 bits", "v/1: band_bits = 9: is no band of 1 to 8 or 16 bits; .+",
         attribute_of("v/1", "band_bits", [9])),
    plan("plan with bands of an unknown coding", "k/1: band_coding = magic: is not known to this version of headspan; .+",
         attribute_of("k/1", "band_coding", "magic")),
    plan("plan with groups of 7 tokens", "k/1: band_tokens = 7: is not 1, nor 32 with band_coding = range; .+",
         lambda file: file["k/1"].attrs.update(band_coding="range", band_tokens=7)),
    plan("plan with groups of half steps", "k/1: band_tokens = 32: is not 1, nor 32 with band_coding = range; .+",
         attribute_of("k/1", "band_tokens", 32)),
    plan("plan with codes beyond the range", "k/1: band_clip = 1.5: is not 1, nor a share below it with band_coding = range; .+",
         lambda file: file["k/1"].attrs.update(band_coding="range", band_clip=1.5)),
    plan("plan with clipped half steps", "k/1: band_clip = 0.9: is not 1, nor a share below it with band_coding = range; .+",
         attribute_of("k/1", "band_clip", 0.9)),
    plan("plan with a gain and no weights", "k/1/weights: is missing; .+", with_gain()),
    plan("plan with a weight below 0", "k/1/weights = -0.5: is negative; .+", with_gain(-0.5)),
    plan("plan with a gain of whole columns", "k/1: band_coding = gain: is for latents in few bits; .+", with_gain(bits=16)),
    plan("plan without its rotations", "k/0/rotation: is missing; .+", without_rotations),
    plan("plan with levels for 6 bits", "k/1: band_bits = 6: is more than the 5 that band_coding = normal has levels for; .+",
         lambda file: file["k/1"].attrs.update(band_coding="normal", band_columns=[8], band_bits=[6])),
    plan("plan of an infinite loss", "k/1: expected_loss = inf: is not a finite number; .+",
         attribute_of("k/1", "expected_loss", np.inf)),
    plan("plan with a lift beyond float32", r"k/1/lift = inf: is not a finite number; .+", wide("k/1/lift", 1e39)),
    scored("request that is no JSON", "line 2: is not valid JSON: .+; one request a line", SCORED, "{'id': 2}"),
    scored("request that is no object", r"line 2: \[3\]: is no JSON object; one request a line", SCORED, "[3]"),
    scored("request nested deep", "line 2: nests deeper than 32; one request a line", SCORED, deep('{"id": @}')),
    scored("request outside the vocabulary", "line 3: continuation = 32: is no token of a vocabulary of 32; .+", SCORED, "",
           SCORED | {"continuation": [31, 32]}),
    scored("request of a negative token", "line 1: context = -1: is no token of a vocabulary of 32; .+",
           SCORED | {"context": [-1]}),
    scored("request without a continuation", "line 1: continuation: is missing; .+", {"id": 1, "context": [3]}),
    scored("request without a context", r"line 1: context = \[\]: is no list of at least one token; .+",
           SCORED | {"context": []}),
    scored("request longer than the model", "line 1: context, continuation = 130 tokens: are more than the 128 positions .+; .+",
           SCORED | {"context": [3] * 128, "continuation": [5, 6]}),
    generated("generation longer than the model",
              "line 1: context, max_new_tokens = 130 tokens: are more than the 128 positions .+; .+",
              GENERATED | {"context": [3] * 100, "max_new_tokens": 30}),
    generated("empty stop sequence", r"line 2: stop = \[\]: is no list of at least one token; .+", GENERATED,
              GENERATED | {"stop": [[3], []]}),
    generated("stop sequence that is no list", r"line 1: stop = 7: is no list of at least one token; .+",
              GENERATED | {"stop": [7]}),
    generated("stop that is an object",
              r'line 1: stop = {"a":\[7\]}: is no list of stop sequences; give lists of ids as \[\[17, 4\]\]',
              GENERATED | {"stop": {"a": [7]}}),
    generated("stop that is a number", "line 2: stop = 7: is no list of stop sequences; .+", GENERATED,
              GENERATED | {"stop": 7}),
    generated("number of new tokens", "line 1: max_new_tokens = 2.5: is no number of tokens; .+",
              GENERATED | {"max_new_tokens": 2.5}),
]
