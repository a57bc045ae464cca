"""Makes the golden files of the model tests with transformers, the independent source they are held against.

    python make_golden.py FOLDER         needs torch, transformers 5, safetensors; writes FOLDER/<name>/

Each folder is a small random checkpoint (config.json, model.safetensors or shards) and golden.safetensors:
`tokens`, `lengths`, and for float32, float64 and bfloat16 `<dtype>/<stream>.<point>.<layer>` [tokens, heads, head_size] and
`<dtype>/logits` [tokens, vocabulary]. Every sequence is run alone: no padding, positions from 0.
In float64 everything is float64: transformers keeps norms and RoPE tables in float32, so they are replaced here.
To stay small, float32 holds the logits and layer 1, bfloat16 layer 0; `rounding.safetensors` holds one norm and one rotation in
bfloat16, where every bit counts.
"""
import importlib
import itertools
import json
import math
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

LENGTHS = [9, 1, 5, 30]
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5,
             pad_token_id=None, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64, rope_theta=500.0)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
LINEAR = dict(rope_type="linear", factor=4.0, rope_theta=10000.0)
YARN = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0, rope_theta=500.0)
LONG = dict(rope_type="longrope", short_factor=[1.0, 1.5, 2.0], long_factor=[1.0, 4.0, 16.0], original_max_position_embeddings=16,
            rope_theta=10000.0)

MODELS = {
    "olmo2_mha": ("olmo2", dict(num_key_value_heads=4, rope_parameters=PLAIN)),
    "olmo2_gqa": ("olmo2", dict(rope_parameters=PLAIN, attention_bias=True)),
    "llama_gqa": ("llama", dict(rope_parameters=PLAIN, attention_bias=True, mlp_bias=True)),
    "llama3_scaled": ("llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "falcon3": ("llama", dict(head_dim=16, rope_parameters=dict(PLAIN, rope_theta=1000042.0))),
    "qwen3": ("qwen3", dict(head_dim=12, rope_parameters=PLAIN, tie_word_embeddings=True)),
    "qwen3_bias": ("qwen3", dict(head_dim=16, rope_parameters=PLAIN, attention_bias=True)),
    "olmo2_sharded_bf16": ("olmo2", dict(rope_parameters=PLAIN)),
    "olmo": ("olmo", dict(rope_parameters=PLAIN)),
    "olmo_clipped": ("olmo", dict(rope_parameters=PLAIN, clip_qkv=4.0)),
    "smollm3": ("smollm3", dict(rope_parameters=PLAIN, no_rope_layers=[1, 0], tie_word_embeddings=True)),
    "qwen2": ("qwen2", dict(rope_parameters=PLAIN)),
    "mistral": ("mistral", dict(rope_parameters=PLAIN, sliding_window=None)),
    "seed_oss": ("seed_oss", dict(rope_parameters=PLAIN, head_dim=12)),
    "gpt_neox": ("gpt_neox", dict(num_key_value_heads=None, rope_parameters=dict(PLAIN, partial_rotary_factor=0.25))),
    "gpt_neox_serial": ("gpt_neox", dict(num_key_value_heads=None, use_parallel_residual=False, attention_bias=False,
                                         rope_parameters=dict(PLAIN, partial_rotary_factor=1.0))),
    "apertus": ("apertus", dict(rope_parameters=LLAMA3)),
    "olmo3": ("olmo3", dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
        full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=500.0)))),
    "mistral_window": ("mistral", dict(rope_parameters=PLAIN, sliding_window=8, head_dim=16)),
    "qwen2_window": ("qwen2", dict(rope_parameters=dict(LINEAR), use_sliding_window=True, sliding_window=8, max_window_layers=1)),
    "gemma2": ("gemma2", dict(rope_parameters=PLAIN, sliding_window=8, query_pre_attn_scalar=13, head_dim=16,
                              attn_logit_softcapping=1.5, final_logit_softcapping=2.0)),
    "gemma3": ("gemma3_text", dict(sliding_window=8, query_pre_attn_scalar=13, head_dim=16, layer_types=[
        "sliding_attention", "full_attention"], rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                                                       sliding_attention=PLAIN))),
    "phi3_long": ("phi3", dict(rope_parameters=dict(LONG, partial_rotary_factor=0.75), original_max_position_embeddings=16)),
    "phi3": ("phi3", dict(rope_parameters=dict(PLAIN, partial_rotary_factor=0.75))),
}


def randomize(model):
    """Draws weights that reveal an omitted gain or bias, or a head in the wrong place."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            parameter.data = 1 + 0.3 * noise
        else:
            parameter.data = (0.3 if parameter.dim() == 1 else 0.25) * noise


def library_of(kind):
    name = kind.removesuffix("_text")
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def inverse_frequencies(rope, head_size, length):
    """Returns RoPE's angles per position in float64 and the factor of its cosines, from the published formulas."""
    size = int(head_size * rope.get("partial_rotary_factor", 1.0))
    plain = [rope["rope_theta"] ** (-2 * i / size) for i in range(size // 2)]
    old, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
    kind, cosine = rope["rope_type"], 1.0
    if kind == "default":
        scaled = plain
    elif kind == "linear":
        scaled = [value / factor for value in plain]
    elif kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        keep = [min(max((old * value / (2 * math.pi) - low) / (high - low), 0.0), 1.0) for value in plain]
        scaled = [(1 - k) * value / factor + k * value for k, value in zip(keep, plain)]
    elif kind == "yarn":
        def pair_of(turns):
            return size * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))
        low, high = max(math.floor(pair_of(rope["beta_fast"])), 0), min(math.ceil(pair_of(rope["beta_slow"])), size - 1)
        divide = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(size // 2)]
        scaled = [value / factor * d + value * (1 - d) for d, value in zip(divide, plain)]
        cosine = 0.1 * math.log(factor) + 1
    else:
        assert kind == "longrope"
        factors = rope["long_factor" if length > old else "short_factor"]
        scaled = [value / f for f, value in zip(factors, plain)]
        cosine = math.sqrt(1 + math.log(SIZES["max_position_embeddings"] / old) / math.log(old))
    return torch.tensor(scaled, dtype=torch.float64), cosine


def wide_attention(module, query, key, value, attention_mask, scaling, softcap=None, **rest):
    """Does what eager_attention_forward does, with the softmax in the dtype of the queries."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return (torch.softmax(scores + attention_mask, -1) @ value).transpose(1, 2).contiguous(), None


def widen(model, library):
    """Makes a model compute in float64 what it would compute in float32: norms, rotary tables, softmax."""
    def norm(self, x):
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        gain = self.weight + 1 if type(self).__name__.startswith("Gemma") else self.weight
        return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))

    def rotary(self, x, position_ids, layer_type=None):
        config = self.config
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        rope = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
        inverse, factor = inverse_frequencies(rope, head_size, position_ids.max().item() + 1)
        angles = position_ids[..., None].double() * inverse
        angles = torch.cat((angles, angles), -1)
        return angles.cos() * factor, angles.sin() * factor

    library.eager_attention_forward = wide_attention
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm.__get__(module)
        if type(module).__name__ == "OlmoLayerNorm":
            module.forward = lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = rotary.__get__(module)
        if hasattr(module, "embed_scale"):
            module.embed_scale = torch.tensor(math.sqrt(model.config.hidden_size), dtype=torch.float64)


def attention_of(layer):
    return layer.attention if hasattr(layer, "attention") else layer.self_attn


def projections_of(attention, config):
    """Returns [(module, function)]: what the function makes of the module's output is {stream: projection}, [tokens, ...]."""
    d, heads = config.hidden_size // config.num_attention_heads, config.num_attention_heads
    if hasattr(attention, "query_key_value"):  # q, k and v of each head
        return [(attention.query_key_value, lambda x: dict(zip("qkv", x.view(-1, heads, 3, d).unbind(2))))]
    if hasattr(attention, "qkv_proj"):  # all of q, then k, then v
        keys = config.num_key_value_heads * d
        return [(attention.qkv_proj, lambda x: dict(zip("qkv", x.split([heads * d, keys, keys], -1))))]
    clip = getattr(config, "clip_qkv", None) or math.inf
    return [(getattr(attention, f"{stream}_proj"), lambda x, stream=stream: {stream: x.clamp(-clip, clip)}) for stream in "qkv"]


def capture(model, kind, tokens):
    """Returns Q, K, V and Z of every layer and the logits of one sequence."""
    found, roped, hooks = {}, [], []
    config, library = model.config, library_of(kind)
    layers = model.base_model.layers
    d = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def keep(i, point, parts):
        def hook(module, inputs, output):
            for stream, values in parts(output[0].clone()).items():
                found[f"{stream}.{point}.{i}"] = values.reshape(len(tokens), -1, d).clone()
        return hook

    for i, layer in enumerate(layers):
        attention = attention_of(layer)
        output = attention.dense if hasattr(attention, "dense") else attention.o_proj
        hooks.append(output.register_forward_hook(lambda module, inputs, _, i=i: found.update(
            {f"z.{i}": inputs[0][0].reshape(len(tokens), -1, d).clone()})))
        for module, parts in projections_of(attention, config):
            hooks.append(module.register_forward_hook(keep(i, "proj", parts)))
        for stream in "qk":
            norm = getattr(attention, f"{stream}_norm", None)
            if norm is not None:
                hooks.append(norm.register_forward_hook(keep(i, "normed", lambda x, stream=stream: {
                    stream: x.transpose(0, 1) if kind in ("apertus", "gemma3_text") else x})))  # whose heads come before the tokens
    original = library.apply_rotary_pos_emb

    def rotate(*arguments, **keywords):
        roped.append(original(*arguments, **keywords))
        return roped[-1]

    library.apply_rotary_pos_emb = rotate
    found["logits"] = model(torch.tensor([tokens]), use_cache=False).logits[0]
    library.apply_rotary_pos_emb = original
    for hook in hooks:
        hook.remove()
    rotating = [i for i in range(len(layers)) if getattr(config, "no_rope_layers", [1] * len(layers))[i]]
    assert len(roped) == len(rotating)
    for i, (q, k) in zip(rotating, roped):
        found[f"q.roped.{i}"], found[f"k.roped.{i}"] = q[0].transpose(0, 1), k[0].transpose(0, 1)
    return found


def golden(folder, kind, sequences):
    tensors = {"tokens": torch.tensor(list(itertools.chain.from_iterable(sequences))), "lengths": torch.tensor([len(s) for s in sequences])}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        # Only eager attention caps scores.
        eager = {"attn_implementation": "eager"} if kind == "gemma2" else {}
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **eager).eval()
        original = getattr(library_of(kind), "eager_attention_forward", None)
        if dtype == torch.float64:
            widen(model, library_of(kind))
        parts = [capture(model, kind, s) for s in sequences]
        for name in parts[0]:
            kept = {torch.float32: ("logits", ".1"), torch.float64: ("",), torch.bfloat16: (".0",)}[dtype]
            if name.endswith(kept):
                tensors[f"{str(dtype)[6:]}/{name}"] = torch.cat([p[name] for p in parts]).contiguous()
        library_of(kind).eager_attention_forward = original
    return tensors


def rounding():
    """Returns one norm and one rotation of each rounding order in bfloat16."""
    torch.manual_seed(3)
    x, gain = torch.randn(64, 32).bfloat16(), (1 + 0.3 * torch.randn(32)).bfloat16()
    heads = torch.randn(1, 3, 64, 32).bfloat16()
    tensors = {"x": x, "gain": gain, "heads": heads[0].transpose(0, 1).contiguous()}
    for kind in ("olmo2", "llama"):
        library = library_of(kind)
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
    if "full_attention" in rope:  # one object for each kind of layer
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    theta, share = ("rotary_emb_base", "rotary_pct") if config["model_type"] == "gpt_neox" else ("rope_theta", "partial_rotary_factor")
    config[theta] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config[share] = rope.pop("partial_rotary_factor")
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
