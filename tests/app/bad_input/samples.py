"""Small valid inputs; each case spoils one of them.

A `Sample` is a folder with `model/` (a random llama of two layers), `tokens.bin` and what a case writes. Paths given to the
program are relative to it, so that messages name `model/config.json` and not where the test runs.
"""
import hashlib
import json
import struct

import h5py
import numpy as np

CONFIG = {
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.2, "tie_word_embeddings": False,
    "eos_token_id": 1,
}
KEYS = {"model.path": "model", "tokens.path": "tokens.bin", "tokens.sequence_length": 16, "output.directory": "out"}
ACTIVATIONS = {"activations.path": "z.h5", "output.directory": "out"}
STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def tensor_shapes(config):
    hidden, mlp, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    d = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, keys = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocabulary, hidden)}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for projection, rows, columns in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden),
                                          ("o", hidden, queries)):
            shapes[f"{name}self_attn.{projection}_proj.weight"] = (rows, columns)
        shapes |= {f"{name}mlp.gate_proj.weight": (mlp, hidden), f"{name}mlp.up_proj.weight": (mlp, hidden),
                   f"{name}mlp.down_proj.weight": (hidden, mlp), f"{name}input_layernorm.weight": (hidden,),
                   f"{name}post_attention_layernorm.weight": (hidden,)}
    return shapes


def random_weights(config, seed=1):
    chance = np.random.default_rng(seed)
    return {name: (1 if name.endswith("norm.weight") else 0) + 0.3 * chance.standard_normal(shape)
            for name, shape in tensor_shapes(config).items()}


class Weights:
    """A safetensors file as header and data, which a case may change separately."""

    def __init__(self, tensors, dtype="F32"):
        self.header, self.data = {}, b""
        for name, values in tensors.items():
            raw = np.asarray(values, STORED[dtype]).tobytes()
            self.header[name] = {"dtype": dtype, "shape": list(np.shape(values)),
                                 "data_offsets": [len(self.data), len(self.data) + len(raw)]}
            self.data += raw

    def write(self, path, header=None, length=None):
        text = (header or json.dumps(self.header)).encode()
        path.write_bytes((length or len(text)).to_bytes(8, "little") + text + self.data)


class Sample:
    def __init__(self, folder):
        self.folder = folder
        self.model = folder / "model"
        self.write_model()
        self.write_tokens(np.random.default_rng(2).integers(2, 32, 400))

    def path(self, name):
        return self.folder / name

    def write_model(self, name="model", **changes):
        """Applies `changes` to config.json; None removes a field."""
        config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
        self.path(name).mkdir(exist_ok=True)
        (self.path(name) / "config.json").write_text(json.dumps(config))
        sizes = [config.get(key) for key in CONFIG if key.endswith(("size", "heads", "layers"))]
        fits = all(isinstance(size, int) and size > 0 for size in sizes)  # else the weights are those of CONFIG
        Weights(random_weights(config if fits else CONFIG)).write(self.path(name) / "model.safetensors")

    def write_shards(self):
        """Writes two shards and their index instead of the single file."""
        (self.model / "model.safetensors").unlink()
        tensors, index = random_weights(CONFIG), {}
        names = sorted(tensors)
        for number, part in ((1, names[::2]), (2, names[1::2])):
            shard = f"model-{number:05}-of-00002.safetensors"
            Weights({name: tensors[name] for name in part}).write(self.model / shard)
            index |= dict.fromkeys(part, shard)
        (self.model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))

    def write_tokens(self, ids, dtype="<u2"):
        np.asarray(ids, dtype).tofile(self.path("tokens.bin"))

    def write_megatron(self, pointers, lengths=(200, 200)):
        """Writes m.bin and m.idx: two documents with these numbers of ids, 400 in total, that begin at these bytes."""
        (np.arange(400) % 29 + 2).astype("<u2").tofile(self.path("m.bin"))
        header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
        arrays = np.array(lengths, "<i4"), np.array(pointers, "<i8"), np.array([0, 1, 2], "<i8")
        self.path("m.idx").write_bytes(header + b"".join(array.tobytes() for array in arrays))

    def write_sidecar(self, **fields):
        self.path("tokens.json").write_text(json.dumps(fields))

    def write_manifest(self, *rows, header="name\tstep\ttokens\tpath"):
        self.path("manifest.tsv").write_text("\n".join([header, *rows]) + "\n")

    def write_activations(self, z, layer=None, **attributes):
        """Writes z: [token, head, coordinate]; all heads are in layer 0 by default. Sequences of eight tokens."""
        tokens, heads = z.shape[:2]
        layer = np.zeros(heads, int) if layer is None else np.asarray(layer)
        with h5py.File(self.path("z.h5"), "w") as file:
            file["activations"], file["layer"] = z, layer
            file["head"] = [int((layer[:h] == layer[h]).sum()) for h in range(heads)]
            file["sequence"] = np.arange(tokens) // 8
            file.attrs.update(attributes)

    def write_plan(self):
        """Writes a plan of four random 4-bit latents of the eight columns of each layer."""
        chance = np.random.default_rng(3)
        columns, stored, layers = 8, 4, CONFIG["num_hidden_layers"]
        with h5py.File(self.path("plan.h5"), "w") as file:
            file.attrs.update({
                "headspan_schema": "1.0", "algorithm": "latent", "streams": "k,v", "layers": layers,
                "kv_heads": CONFIG["num_key_value_heads"], "head_size": 4, "exact_first": 1, "references": 0,
                "expected_loss": 0.1,
                "config_sha256": hashlib.sha256((self.model / "config.json").read_bytes()).hexdigest()})
            for group in (file.create_group(f"{stream}/{layer}") for stream in "kv" for layer in range(layers)):
                group.attrs.update({"band_columns": [stored], "band_bits": [4], "expected_loss": 0.1})
                for name, shape in (("mean", columns), ("bias", columns), ("eigenvalues", columns),
                                    ("projection", (columns, stored)), ("lift", (stored, columns))):
                    values = chance.standard_normal(shape)
                    group[name] = values.astype("<f4") if values.ndim == 2 else values

    def write_lines(self, name, *objects):
        """Writes each value as JSON; a text is written unchanged."""
        self.path(name).write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in objects))
