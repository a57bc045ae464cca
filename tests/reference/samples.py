"""Data for the tests of the compression reference: small models, random heads, losses from the tokens."""
import json
import shutil
from pathlib import Path

import numpy as np

import elimination
from forward import Model, read_safetensors, write_safetensors
from regression import take

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"


def golden(name):
    """Returns the model, its sequences, and the output of transformers for them in float64: {name: [all tokens, ...]}.
    """
    tensors = read_safetensors(GOLDEN / name / "golden.safetensors")
    ends = np.cumsum(tensors["lengths"]).astype(int)
    found = {key[8:]: value for key, value in tensors.items() if key.startswith("float64/")}
    return Model(GOLDEN / name), np.split(tensors["tokens"].astype(int), ends[:-1]), found


def predictable_ids(rng, count, vocabulary):
    """Returns token ids, every second of which follows from the previous one."""
    ids = rng.integers(0, vocabulary, count)
    ids[1::2] = (ids[::2] * 5 + 1) % vocabulary
    return ids


def structured(rng, tokens, layers, heads, d):
    """Returns heads of unequal size with a few directions in common: [tokens, layers * heads, d], and an
    elimination.Stream of them."""
    columns = layers * heads * d
    z = rng.standard_normal((tokens, 5)) @ rng.standard_normal((5, columns)) + 0.4 * rng.standard_normal((tokens, columns))
    z = z.reshape(tokens, layers * heads, d) * rng.uniform(0.5, 2, layers * heads)[:, None] + 3
    return z, stream_of(rng, z, np.repeat(np.arange(layers), heads))


def stream_of(rng, z, layer):
    heads, d = z.shape[1:]
    flat, roots = z.reshape(len(z), -1), rng.standard_normal((heads, d, d))
    return elimination.Stream(flat.mean(0), np.cov(flat.T, ddof=0), roots @ roots.transpose(0, 2, 1), layer)


def least_squares_loss(z, stream, target, references):
    """Returns tr(M E) from the tokens, with an intercept."""
    x = np.column_stack([np.ones(len(z)), take(z, references)])
    residual = z[:, target] - x @ np.linalg.lstsq(x, z[:, target], rcond=None)[0]
    return np.einsum("ni,ij,nj", residual, stream.metric[target], residual) / len(z)


def plant_sink(folder, sinks, times):
    """Writes a llama model of two layers, each with 2 KV heads of 8, to a new folder. In its first layer the keys and
    values of the tokens 0 .. sinks - 1 are `times` as long as the projection would make them, and attention goes to
    such a token at any position: all their keys have a large coordinate that RoPE hardly rotates, and to which the bias
    of all queries points."""
    source, own = GOLDEN / "llama_gqa", slice(24, 32)  # channels that only the embeddings of sinks have
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    weights, rng = read_safetensors(source / "model.safetensors"), np.random.default_rng(4)
    embeddings = weights["model.embed_tokens.weight"]
    embeddings[:, own] = 0
    embeddings[:sinks] = 0
    embeddings[:sinks, own] = rng.standard_normal((sinks, 8))
    embeddings[:sinks, 31] = 3
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn."
        for stream in "kv":
            weights[f"{name}{stream}_proj.weight"][:, own] *= times
        weights[name + "k_proj.weight"][3::8, 31] = times  # coordinate 3 of 8 rotates by 0.001 per token
        weights[name + "q_proj.bias"][3::8] = 4
    write_safetensors(folder / "model.safetensors", weights)
    return folder


def write_wide_heads(folder, rng, d):
    """Writes a llama model of two layers, each with 4 query and 2 KV heads of size d, with random weights to a new folder. Some
    coordinates of keys and of values are larger than the others, as they are in trained models."""
    source, hidden = GOLDEN / "llama_gqa", 32
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "head_dim": d}))
    weights = read_safetensors(source / "model.safetensors")
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn."
        for stream, heads in (("q", 4), ("k", 2), ("v", 2)):
            size = np.exp(rng.standard_normal(heads * d))
            weights[f"{name}{stream}_proj.weight"] = 0.5 * size[:, None] * rng.standard_normal((heads * d, hidden)) / hidden**0.5
            weights[f"{name}{stream}_proj.bias"] = size * rng.standard_normal(heads * d) / 2
        weights[name + "o_proj.weight"] = rng.standard_normal((hidden, 4 * d)) / d**0.5
    write_safetensors(folder / "model.safetensors", weights)
    return folder
