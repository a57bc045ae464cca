"""Runs a causal language model of transformers and hands out what its attention heads compute. Queries and keys are taken
from the function through which transformers calls attention, after the rotation and before keys are repeated; what comes
before that from hooks on the projections."""
import contextlib
import hashlib
import json
import struct
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from headspan.error import InputError

logging.disable_progress_bar()
NAME = "headspan"  # of the attention function
# Where transformers normalises heads before it moves them in front of the tokens, heads come first.
HEADS_FIRST = ("apertus", "gemma3_text", "gemma3")
# Types that normalise the output of attention before they add it.
NORM_AFTER = {"olmo2": "post_attention_layernorm", "olmo3": "post_attention_layernorm",
              "gemma2": "post_attention_layernorm", "gemma3_text": "post_attention_layernorm"}
OUTPUTS = ("o_proj", "dense", "out_proj", "c_proj", "wo")


class KeepDouble(torch.overrides.TorchFunctionMode):
    """Leaves float64 values in float64 where a model casts them to float32: norms, rotations, softmax."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.float:
            return args[0].to(torch.float64)
        if function is torch.Tensor.to:
            args = tuple(torch.float64 if arg is torch.float32 else arg for arg in args)
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return function(*args, **kwargs)


class Capture:
    """A model, and what its attention gave in the last forward pass."""

    def __init__(self, folder, dtype=None, device="cpu"):
        """dtype: of the forward pass, a torch dtype; None: that of the stored weights."""
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise InputError(folder, "", "", "holds no config.json", "give the folder of a checkpoint")
        self.folder, self.device = folder, torch.device(device)
        ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
        try:
            self.config = AutoConfig.from_pretrained(folder).get_text_config()
            with self.wide(dtype):
                self.model = AutoModelForCausalLM.from_pretrained(
                    folder, dtype=dtype or "auto", attn_implementation=NAME).to(self.device).eval()
        except (ValueError, OSError, KeyError, ImportError) as error:
            raise InputError(folder, "", "", f"cannot be loaded by transformers ({' '.join(str(error).split())[:300]})",
                             "give a causal language model") from error
        self.dtype = self.model.dtype
        self.heads = self.config.num_attention_heads
        self.layers = [(name, module) for name, module in self.model.named_modules()
                       if hasattr(module, "layer_idx") and any(hasattr(module, output) for output in OUTPUTS)]
        if not self.layers:
            raise InputError(folder, "model_type", self.config.model_type, "has no attention that transformers can hand "
                             "over", "use headspan_capture.GramAccumulator with hooks of your own")
        self.found = {}
        for _, module in self.layers:
            module.headspan_found = self.found

    def wide(self, dtype):
        return KeepDouble() if dtype == torch.float64 else contextlib.nullcontext()

    @torch.inference_mode()
    def run(self, sequences, hooks):
        """Runs sequences of one length; hooks: see `watch`. Returns {(stream, layer): [tokens, heads, d]}."""
        self.found.clear()
        handles = [module.register_forward_hook(hook) for module, hook in hooks]
        try:
            with self.wide(self.dtype):
                self.model.base_model(input_ids=torch.tensor(sequences, device=self.device), use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        if ("k", len(self.layers) - 1) not in self.found:
            raise InputError(self.folder, "model_type", self.config.model_type, "does not call attention through the "
                             "interface of transformers", "use headspan_capture.GramAccumulator with hooks of your own")
        return self.found

    def watch(self, point):
        """Returns the (module, hook) that replace queries, keys and values by those of `point`: proj, normed or roped."""
        if point == "roped":
            return []
        return [hook for layer, (_, module) in enumerate(self.layers) for hook in self.hooks_of(layer, module, point)]

    def hooks_of(self, layer, module, point):
        d = getattr(module, "head_dim", None) or self.config.hidden_size // self.heads
        clip = getattr(self.config, "clip_qkv", None)

        def keep(stream, values):
            if clip is not None:
                values = values.clamp(-clip, clip)
            self.found["kept", stream, layer] = values.reshape(*values.shape[:2], -1, d)

        def split(function):
            def hook(_, inputs, output):
                for stream, values in function(output).items():
                    keep(stream, values)
            return hook

        norms = {stream: getattr(module, f"{stream}_norm", None) for stream in "qk"}
        if point == "normed" and all(norms.values()):
            heads_first = self.config.model_type in HEADS_FIRST
            return [(norm, lambda _, inputs, output, stream=stream: keep(
                stream, output.transpose(1, 2) if heads_first else output.flatten(2) if output.ndim == 4 else output))
                for stream, norm in norms.items()]
        if all(hasattr(module, f"{stream}_proj") for stream in "qkv"):
            return [(getattr(module, f"{stream}_proj"), split(lambda output, stream=stream: {stream: output}))
                    for stream in "qkv"]
        if hasattr(module, "query_key_value") and self.config.model_type == "gpt_neox":
            return [(module.query_key_value, split(lambda output: dict(zip(
                "qkv", output.reshape(*output.shape[:2], self.heads, 3, d).unbind(3)))))]
        if hasattr(module, "qkv_proj"):
            keys = self.config.num_key_value_heads * d
            return [(module.qkv_proj, split(lambda output: dict(zip("qkv", output.split([self.heads * d, keys, keys], -1)))))]
        raise InputError(self.folder, "capture", point, f"is not known where in {type(module).__name__}",
                         "capture roped: what attention receives")

    def values(self, stream, layer):
        """Returns what the last run gave: [sequences, tokens, heads, d]."""
        kept = self.found.get(("kept", stream, layer))
        return self.found[stream, layer] if kept is None or stream == "z" else kept


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, **rest):
    """The attention function: keeps what it gets and gives, and attends in the dtype of the queries, at least float32."""
    if rest.get("s_aux") is not None:
        raise InputError("", "model_type", type(module).__name__, "has attention sinks", "use GramAccumulator")
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    group = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(group, 1).to(wide) for x in (key, value))
    scores = query.to(wide) @ keys.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if attention_mask is None:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    else:
        scores = scores + attention_mask[..., :scores.shape[-1]].to(wide)
    z = (torch.softmax(scores, -1) @ values).transpose(1, 2).to(query.dtype).contiguous()
    for stream, x in (("q", query), ("k", key), ("v", value)):
        module.headspan_found[stream, module.layer_idx] = x.transpose(1, 2)
    module.headspan_found["z", module.layer_idx] = z
    return z, None


def weights_digest(folder):
    """Returns headspan's digest of the weights: of each tensor's name, type, shape and middle 8 KiB; empty if they are not
    in safetensors files."""
    files = [file for file in (Path(folder) / "model.safetensors",) if file.is_file()]
    index = Path(folder) / "model.safetensors.index.json"
    if index.is_file():
        files = sorted({Path(folder) / name for name in json.loads(index.read_text())["weight_map"].values()})
    tensors = {}
    for file in files:
        with open(file, "rb") as opened:
            size, = struct.unpack("<Q", opened.read(8))
            for name, entry in json.loads(opened.read(size)).items():
                if name != "__metadata__":
                    tensors[name] = file, 8 + size, entry
    digest = hashlib.sha256()
    for name in sorted(tensors):
        file, begin, entry = tensors[name]
        first, last = entry["data_offsets"]
        count = min(8 << 10, last - first)
        shape = "".join(f" {extent}" for extent in entry["shape"])
        digest.update(f"{name}\0{entry['dtype']}{shape}\0".encode())
        with open(file, "rb") as opened:
            opened.seek(begin + first + (last - first - count) // 2)
            digest.update(opened.read(count))
    return digest.hexdigest() if tensors else ""
