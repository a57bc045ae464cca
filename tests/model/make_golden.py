"""Makes the golden files of the model tests with transformers, the independent source they are held against.

    python make_golden.py FOLDER         needs torch, transformers 5, safetensors; writes FOLDER/<name>/

Each folder is a small random checkpoint (config.json, model.safetensors or shards) and golden.safetensors:
`tokens`, `lengths`, and for float32, float64 and bfloat16 `<dtype>/<stream>.<point>.<layer>` [tokens, heads, head_size] and
`<dtype>/logits` [tokens, vocabulary]. Every sequence is run alone: no padding, positions from 0.
In float64 everything is float64: transformers keeps norms and RoPE tables in float32, so they are replaced here.
To stay small, float32 holds the logits and layer 1, bfloat16 layer 0; `rounding.safetensors` holds one norm and one rotation in
bfloat16, where every bit counts.
"""
import itertools
import json
import math
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.llama import modeling_llama
from transformers.models.olmo2 import modeling_olmo2
from transformers.models.qwen3 import modeling_qwen3

MODULES = {"llama": modeling_llama, "olmo2": modeling_olmo2, "qwen3": modeling_qwen3}
LENGTHS = [9, 1, 5, 30]
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5,
             pad_token_id=None, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64, rope_theta=500.0)
PLAIN = dict(rope_type="default", rope_theta=10000.0)

MODELS = {
    "olmo2_mha": ("olmo2", dict(num_key_value_heads=4, rope_parameters=PLAIN)),
    "olmo2_gqa": ("olmo2", dict(rope_parameters=PLAIN, attention_bias=True)),
    "llama_gqa": ("llama", dict(rope_parameters=PLAIN, attention_bias=True, mlp_bias=True)),
    "llama3_scaled": ("llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "falcon3": ("llama", dict(head_dim=16, rope_parameters=dict(PLAIN, rope_theta=1000042.0))),
    "qwen3": ("qwen3", dict(head_dim=12, rope_parameters=PLAIN, tie_word_embeddings=True)),
    "qwen3_bias": ("qwen3", dict(head_dim=16, rope_parameters=PLAIN, attention_bias=True)),
    "olmo2_sharded_bf16": ("olmo2", dict(rope_parameters=PLAIN)),
}


def randomize(model):
    """Draws weights that reveal an omitted gain or bias, or a head in the wrong place."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = 1 + 0.3 * noise
        else:
            parameter.data = (0.3 if parameter.dim() == 1 else 0.25) * noise


def inverse_frequencies(rope, head_size):
    """Returns RoPE's angles per position in float64, from the published formulas."""
    inverse = [rope["rope_theta"] ** (-2 * i / head_size) for i in range(head_size // 2)]
    if rope["rope_type"] == "default":
        return torch.tensor(inverse, dtype=torch.float64)
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    scaled = []
    for value in inverse:
        wavelength = 2 * math.pi / value
        smooth = min(max((old / wavelength - low) / (high - low), 0.0), 1.0)
        scaled.append((1 - smooth) * value / rope["factor"] + smooth * value)
    return torch.tensor(scaled, dtype=torch.float64)


def widen(model):
    """Converts norms and rotary tables of a model to float64."""
    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotary(self, x, position_ids):
        head_size = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        angles = position_ids[..., None].double() * inverse_frequencies(self.config.rope_parameters, head_size)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm.__get__(module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = rotary.__get__(module)


def capture(model, kind, tokens):
    """Returns Q, K and V of every layer and the logits of one sequence."""
    found, roped, hooks = {}, [], []
    config, library = model.config, MODULES[kind]
    head_size = model.model.layers[0].self_attn.head_dim

    def keep(name):
        return lambda module, inputs, output: found.__setitem__(name, output.reshape(len(tokens), -1, head_size).clone())

    for i, layer in enumerate(model.model.layers):
        for stream in "qkv":
            hooks.append(getattr(layer.self_attn, f"{stream}_proj").register_forward_hook(keep(f"{stream}.proj.{i}")))
            norm = getattr(layer.self_attn, f"{stream}_norm", None)
            if norm is not None:
                hooks.append(norm.register_forward_hook(keep(f"{stream}.normed.{i}")))
    original = library.apply_rotary_pos_emb

    def rotate(*arguments, **keywords):
        roped.append(original(*arguments, **keywords))
        return roped[-1]

    library.apply_rotary_pos_emb = rotate
    found["logits"] = model(torch.tensor([tokens]), use_cache=False).logits[0]
    library.apply_rotary_pos_emb = original
    for hook in hooks:
        hook.remove()
    for i, (q, k) in enumerate(roped):
        found[f"q.roped.{i}"], found[f"k.roped.{i}"] = q[0].transpose(0, 1), k[0].transpose(0, 1)
    assert len(roped) == config.num_hidden_layers
    return found


def golden(folder, kind, sequences):
    tensors = {"tokens": torch.tensor(list(itertools.chain.from_iterable(sequences))), "lengths": torch.tensor([len(s) for s in sequences])}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        if dtype == torch.float64:
            widen(model)
        parts = [capture(model, kind, s) for s in sequences]
        for name in parts[0]:
            kept = {torch.float32: ("logits", ".1"), torch.float64: ("",), torch.bfloat16: (".0",)}[dtype]
            if name.endswith(kept):
                tensors[f"{str(dtype)[6:]}/{name}"] = torch.cat([p[name] for p in parts]).contiguous()
    return tensors


def rounding():
    """Returns one norm and one rotation of each rounding order in bfloat16."""
    torch.manual_seed(3)
    x, gain = torch.randn(64, 32).bfloat16(), (1 + 0.3 * torch.randn(32)).bfloat16()
    heads = torch.randn(1, 3, 64, 32).bfloat16()
    tensors = {"x": x, "gain": gain, "heads": heads[0].transpose(0, 1).contiguous()}
    for kind, library in (("olmo2", modeling_olmo2), ("llama", modeling_llama)):
        config = transformers.AutoConfig.for_model(kind, **dict(SIZES, num_attention_heads=1, num_key_value_heads=1, rope_parameters=PLAIN))
        norm = getattr(library, kind.capitalize() + "RMSNorm")(32, 1e-5)
        norm.weight.data = gain
        rotary = getattr(library, kind.capitalize() + "RotaryEmbedding")(config)
        cos, sin = rotary(heads, torch.arange(64)[None])
        tensors[f"{kind}/normed"] = norm(x)
        tensors[f"{kind}/roped"] = library.apply_rotary_pos_emb(heads, heads, cos, sin)[0][0].transpose(0, 1).contiguous()
    return tensors


def spell_as_version_4(path):
    """Puts rope_theta, rope_scaling and torch_dtype at the top level, as transformers wrote them before version 5."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    path.with_name("config_4.json").write_text(json.dumps(config, indent=1) + "\n")


@torch.no_grad()
def main(folder):
    generator = torch.Generator().manual_seed(2)
    for name, (kind, options) in MODELS.items():
        config = transformers.AutoConfig.for_model(kind, **dict(SIZES, **options))
        model = transformers.AutoModelForCausalLM.from_config(config)
        randomize(model)
        bf16 = name.endswith("bf16")
        model.to(torch.bfloat16 if bf16 else torch.float32).save_pretrained(folder / name, max_shard_size="20KB" if bf16 else "1GB")
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        spell_as_version_4(folder / name / "config.json")
        sequences = [torch.randint(0, 64, (n,), generator=generator).tolist() for n in LENGTHS]
        save_file(golden(folder / name, kind, sequences), folder / name / "golden.safetensors")
    save_file(rounding(), folder / "rounding.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
