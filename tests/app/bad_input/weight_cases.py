"""Bad weights: safetensors files and shards that do not match config.json or the format."""
import json

import numpy as np

from harness import Case
from samples import CONFIG, Weights, random_weights, tensor_shapes

K = "model.layers.1.self_attn.k_proj.weight"
FILE = r"model/model\.safetensors: "
TENSOR = rf"tensor '{K}'".replace(".", r"\.")


def spoiled(change):
    """Returns a `spoil` that calls `change(weights)`, which may return arguments of `write`, and writes the weights."""
    def spoil(sample):
        weights = Weights(random_weights(CONFIG))
        arguments = change(weights) or {}
        weights.write(sample.model / "model.safetensors", **arguments)
    return spoil


def changed_tensors(**changes):
    """Replaces tensors by name; None removes one."""
    def spoil(sample):
        tensors = random_weights(CONFIG) | changes
        Weights({n: t for n, t in tensors.items() if t is not None}).write(sample.model / "model.safetensors")
    return spoil


def gains(stream, value):
    """A qwen3 in float64 with gains of about this size after the projections of a stream."""
    def spoil(sample):
        sample.write_model(model_type="qwen3", head_dim=4)
        norms = {f"model.layers.{layer}.self_attn.{norm}_norm.weight": np.linspace(1, 2, 4) * (value if norm == stream else 1)
                 for layer in range(2) for norm in "qk"}
        Weights(random_weights(CONFIG) | norms, "F64").write(sample.model / "model.safetensors")
    return spoil


def shift(entry, by):
    return lambda weights: weights.header[entry].update(
        data_offsets=[offset + by for offset in weights.header[entry]["data_offsets"]])


def with_value(name, value):
    tensor = random_weights(CONFIG)[name]
    tensor.reshape(-1)[-1] = value
    return changed_tensors(**{name: tensor})


def set_field(field, value):
    return lambda weights: weights.header[K].update({field: value})


def duplicated(weights):
    return {"header": json.dumps(weights.header)[:-1] + f', "{K}": {json.dumps(weights.header[K])}}}'}


def one_byte_off(weights):
    """Every later tensor begins a byte late."""
    first, *later = weights.header.values()
    for entry in later:
        entry["data_offsets"] = [offset + 1 for offset in entry["data_offsets"]]
    weights.data = weights.data[:first["data_offsets"][1]] + b"\0" + weights.data[first["data_offsets"][1]:]


def truncated(weights):
    weights.data = weights.data[:-10]


def extended(weights):
    weights.data += bytes(16)


def integer_weights(weights):
    weights.header[K]["dtype"] = "I32"


def without_shard(sample):
    sample.write_shards()
    (sample.model / "model-00002-of-00002.safetensors").unlink()


def misplaced_in_index(sample):
    sample.write_shards()
    path = sample.model / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    shards = set(index["weight_map"].values())
    index["weight_map"][K] = (shards - {index["weight_map"][K]}).pop()
    path.write_text(json.dumps(index))


def overflowing(stream, **config):
    """In float16 the second half of the heads of layer 1 is beyond 65504."""
    def spoil(sample):
        sample.write_model(**config)
        tensors = random_weights(CONFIG | config)
        weight = tensors[f"model.layers.1.self_attn.{stream}_proj.weight"]
        weight[len(weight) // 2:] *= 3e4
        Weights(tensors).write(sample.model / "model.safetensors")
    return spoil


def overflow(name, where, spoil, arguments=None):
    return Case(name, rf"model: {where}: its values overflow the forward in float16; set model\.dtype = bfloat16 or float32",
                spoil, keys={"model.dtype": "float16"}, arguments=arguments)


def overflowing_logits(sample):
    """In float16 they are beyond 65504; keys, queries and values are not."""
    sample.write_model()
    tensors = random_weights(CONFIG)
    tensors["model.norm.weight"] *= 1e4
    tensors["lm_head.weight"] *= 1e3
    Weights(tensors).write(sample.model / "model.safetensors")


def evaluation(what, stream, arguments):
    """It overflows in float16."""
    def spoil(sample):
        overflowing(stream)(sample)
        sample.write_lines("scored.jsonl", {"id": "a", "context": [3, 4], "continuation": [5]})
        sample.write_lines("generated.jsonl", {"id": 7, "context": [3, 4], "max_new_tokens": 2, "stop": []})
    return Case(f"evaluation whose {stream} overflow, {what}",
                f"{what}: the forward in float16 overflows; set model.dtype to bfloat16 or float32", spoil,
                arguments=["evaluate", "--model.path=model", "--model.dtype=float16", "--evaluate.cache=full", *arguments])


TEXT = ["--evaluate.texts=tokens.bin", "--tokens.sequence_length=16"]
CALIBRATE = ["calibrate", "--model.path=model", "--model.dtype=float16", "--tokens.path=tokens.bin", "--compress.effort=quick",
             "--tokens.sequence_length=16", "--compress.plan=plan.h5"]
SHAPE = tensor_shapes(CONFIG)[K]
NAME = K.replace(".", r"\.")

CASES = [
    *(Case(f"gains of {value} behind {stream}",
           rf"model: {stream}{at}: its values are too {size} to be squared and summed; check the weights", gains(stream, value),
           {"model.dtype": "float64"})
      for stream in "qk" for value, size, at in ((1e-160, "small", ""), (1e155, "large", ", layer 0, head 0"))),
    Case("tensor missing", rf"model: {NAME}: is missing; config\.json asks for this tensor", changed_tensors(**{K: None})),
    Case("tensor not expected", FILE + r"model\.layers\.0\.self_attn\.k_norm\.weight: is not expected; .+",
         changed_tensors(**{"model.layers.0.self_attn.k_norm.weight": np.ones(4)})),
    Case("wrong shape", FILE + rf"{NAME}\.shape = \[16, 8\]: does not fit config\.json; which asks for \[8, 16\]",
         changed_tensors(**{K: np.zeros(SHAPE[::-1])})),
    Case("wrong dtype", FILE + rf"{NAME}\.dtype = I32: is not supported; .+", spoiled(integer_weights)),
    Case("unknown dtype", FILE + rf"{TENSOR} dtype = F31: is not a dtype of safetensors; .+", spoiled(set_field("dtype", "F31"))),
    Case("NaN", FILE + rf"{NAME}: holds NaN or infinity; .+", with_value(K, np.nan)),
    Case("infinity in the last row of the embedding", FILE + r"model\.embed_tokens\.weight: holds NaN or infinity; .+",
         with_value("model.embed_tokens.weight", np.inf)),
    Case("short entry", FILE + rf"{TENSOR} data_offsets = .+", spoiled(set_field("data_offsets", [0, 100]))),
    Case("overlapping entries", FILE + r"tensor '.+' data_offsets = .+: overlap another tensor, .+; .+", spoiled(shift(K, -64))),
    Case("hole between entries", FILE + r"tensor '.+' data_offsets = .+: leave a hole behind byte .+; .+", spoiled(one_byte_off)),
    Case("duplicate entry", FILE + rf"{TENSOR}: is given twice; .+", spoiled(duplicated)),
    Case("entry without shape", FILE + rf"{TENSOR}: has no shape; .+", spoiled(lambda w: w.header[K].pop("shape") and None)),
    Case("file cut short", FILE + r"tensor '.+' data_offsets = .+", spoiled(truncated)),
    Case("bytes behind the last tensor", FILE + r"data: has 16 bytes behind the last tensor; .+", spoiled(extended)),
    Case("header length beyond the file", FILE + r"header length = 99999999: reaches beyond the end of the file, .+; .+",
         spoiled(lambda weights: {"length": 99999999})),
    Case("header is no JSON", FILE + r"header: .+; .+", spoiled(lambda weights: {"header": '{"a": nonsense}'})),
    Case("header nested deep", FILE + r"tensor 'a' shape = a list: is of the wrong kind; .+",
         spoiled(lambda weights: {"header": '{"a": {"shape": ' + "[" * 200_000 + "]" * 200_000 + "}}"})),
    Case("file of seven bytes", FILE + r"file size = 7: .+; .+",
         lambda sample: (sample.model / "model.safetensors").write_bytes(b"\0" * 7)),
    Case("no weights", r"model: holds neither model\.safetensors nor model\.safetensors\.index\.json; .+",
         lambda sample: (sample.model / "model.safetensors").unlink()),
    overflow("forward that overflows", "k, layer 1, head 1", overflowing("k")),
    overflow("forward that overflows, head size 2", "k, layer 1, head 2",
             overflowing("k", num_attention_heads=8, num_key_value_heads=4)),
    overflow("calibration whose keys overflow", "k, layer 1, head 1", overflowing("k"), CALIBRATE),
    overflow("calibration whose queries overflow", "q, layer 1, head 2", overflowing("q"), CALIBRATE),
    overflow("elimination whose values overflow", "v, layer 1, head 1", overflowing("v"),
             [*CALIBRATE, "--compress.algorithm=headspan", "--compress.stored=0.5"]),
    Case("calibration on text of the model, whose logits overflow",
         "the model's own text: the forward in float16 overflows; set model.dtype to bfloat16 or float32", overflowing_logits,
         arguments=[*CALIBRATE, "--compress.own_text=8"]),
    *(evaluation("text tokens", stream, TEXT) for stream in "kqv"),
    evaluation('request "a"', "v", ["--evaluate.requests=scored.jsonl", "--evaluate.answers=answers.jsonl"]),
    evaluation("request 7", "v", ["--evaluate.generate=generated.jsonl", "--evaluate.answers=answers.jsonl"]),
    Case("shard missing", r"model/model\.safetensors\.index\.json: weight_map '.+' = model-00002-of-00002\.safetensors: "
         r"is missing from the folder; .+", without_shard),
    Case("shard without its tensor",
         r"model/model\.safetensors\.index\.json: weight_map '.+' = .+: does not hold this tensor; .+",
         misplaced_in_index),
]
