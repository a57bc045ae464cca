"""A decoder-only forward pass in numpy and float64, one sequence at a time: olmo2, llama and qwen3 from a Hugging Face
folder.

Returns the captured Q, K, V and Z of every layer, and the logits. An independent reference for the tests, slow and
obvious.
"""
import json
from pathlib import Path

import numpy as np

TYPES = ("olmo2", "llama", "qwen3")  # that Model runs


def read_safetensors(path):
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        data = raw[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).astype(float)
    return tensors


def write_safetensors(path, tensors):
    """Writes the tensors in float32."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.asarray(values, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(np.shape(values)), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_weights(folder):
    index = Path(folder) / "model.safetensors.index.json"
    if not index.exists():
        return read_safetensors(Path(folder) / "model.safetensors")
    files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return {name: t for f in files for name, t in read_safetensors(Path(folder) / f).items()}


class Model:
    def __init__(self, folder):
        self.config = c = json.loads((Path(folder) / "config.json").read_text())
        self.weights = read_weights(folder)
        self.layers, self.heads = c["num_hidden_layers"], c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.d = c.get("head_dim") or c["hidden_size"] // self.heads
        self.norm_after = c["model_type"] == "olmo2"
        rope = c.get("rope_parameters") or {**(c.get("rope_scaling") or {}), "rope_theta": c.get("rope_theta", 10000.0)}
        self.frequencies = self._frequencies(rope)

    def _frequencies(self, rope):
        f = 1 / rope["rope_theta"] ** (np.arange(0, self.d, 2) / self.d)
        if rope.get("rope_type", rope.get("type", "default")) != "llama3":
            return f
        old, low, high = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
        wavelength = 2 * np.pi / f
        smooth = np.clip((old / wavelength - low) / (high - low), 0, 1)
        return (1 - smooth) * f / rope["factor"] + smooth * f

    def norm(self, x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def rope(self, x):
        angle = np.outer(np.arange(len(x)), self.frequencies)[:, None, :]
        a, b = x[..., : self.d // 2], x[..., self.d // 2:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def project(self, x, layer, stream):
        """Returns [tokens, heads, d] at proj, normed and roped."""
        name = f"model.layers.{layer}.self_attn.{stream}"
        heads = self.heads if stream == "q" else self.kv_heads
        flat = self.linear(x, name + "_proj")
        proj = flat.reshape(len(x), heads, self.d)
        gain = name + "_norm.weight"
        if stream == "v":
            return {"proj": proj, "normed": proj, "roped": proj}
        normed = proj
        if gain in self.weights:
            whole = self.config["model_type"] == "olmo2"
            normed = self.norm(flat if whole else proj, gain).reshape(proj.shape)
        return {"proj": proj, "normed": normed, "roped": self.rope(normed)}

    def attention_weights(self, q, k):
        """Returns [query heads, query, key]. k: [tokens, heads, d], or what each query sees, [query, tokens, heads, d]."""
        keys = np.repeat(k, self.heads // self.kv_heads, -2)
        subscripts = "thd,tshd->hts" if k.ndim == 4 else "thd,shd->hts"
        scores = np.einsum(subscripts, q, keys) / np.sqrt(self.d) + np.triu(np.full((len(q), len(q)), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def attend(self, q, k, v):
        values = np.repeat(v, self.heads // self.kv_heads, -2)
        return np.einsum("hts,tshd->thd" if v.ndim == 4 else "hts,shd->thd", self.attention_weights(q, k), values).reshape(len(q), -1)

    def mlp(self, x, name):
        gate = self.linear(x, name + ".gate_proj")
        return self.linear(gate / (1 + np.exp(-gate)) * self.linear(x, name + ".up_proj"), name + ".down_proj")

    def embed(self, tokens):
        return self.weights["model.embed_tokens.weight"][np.asarray(tokens)]

    def attention(self, x, layer, cached=None):
        """Returns {stream: {point: values}}, and the block's output before it is normalised or added: [tokens, hidden].

        cached(layer, k, v): returns the keys and values that attention reads instead of the roped ones, for all queries
        or for each.
        """
        name = f"model.layers.{layer}"
        inner = x if self.norm_after else self.norm(x, name + ".input_layernorm.weight")
        streams = {s: self.project(inner, layer, s) for s in "kqv"}
        q, k, v = (streams[s]["roped"] for s in "qkv")
        if cached:
            k, v = cached(layer, k, v)
        z = self.attend(q, k, v)
        streams["z"] = dict.fromkeys(("proj", "normed", "roped"), z.reshape(q.shape))
        return streams, self.linear(z, name + ".self_attn.o_proj")

    def after_attention(self, x, y, layer):
        """Returns the residual stream after the layer, from that before it and the output of the attention block."""
        name, after = f"model.layers.{layer}", self.norm_after
        x = x + (self.norm(y, name + ".post_attention_layernorm.weight") if after else y)
        inner = x if after else self.norm(x, name + ".post_attention_layernorm.weight")
        y = self.mlp(inner, name + ".mlp")
        return x + (self.norm(y, name + ".post_feedforward_layernorm.weight") if after else y)

    def capture(self, tokens, point="roped"):
        """Returns {"k": [tokens, layers * kv_heads, d], "q": ..., "v": ..., "z": ...}."""
        x = self.embed(tokens)
        captured = {s: [] for s in "kqvz"}
        for layer in range(self.layers):
            streams, y = self.attention(x, layer)
            x = self.after_attention(x, y, layer)
            for s in captured:
                captured[s].append(streams[s][point])
        return {s: np.concatenate(values, 1) for s, values in captured.items()}

    def logits(self, tokens, cached=None):
        """Returns [tokens, vocabulary] for the next token."""
        x = self.embed(tokens)
        for layer in range(self.layers):
            x = self.after_attention(x, self.attention(x, layer, cached)[1], layer)
        tied = self.config.get("tie_word_embeddings", False)
        return self.linear(self.norm(x, "model.norm.weight"), "model.embed_tokens" if tied else "lm_head")


def cut(ids, eos, sequence_length, limit):
    """Returns (start, length) of each sequence, by the rules of src/io/README.md."""
    sequences, start = [], 0
    ids = ids[:limit]
    for i, token in enumerate(ids):
        if token in eos or i + 1 - start == sequence_length or i + 1 == len(ids):
            sequences.append((start, i + 1 - start))
            start = i + 1
    return sequences
