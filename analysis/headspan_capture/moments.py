"""What attention does with keys and values, for headspan calibrate: the moments of src/stats/compression/attention_metric.h,
summed over the fit part."""
import torch

from .model import NORM_AFTER, OUTPUTS

# Types whose layers are as the moments suppose: norms before attention and a sum after it, or a norm after attention.
KNOWN = ("apertus", "gemma2", "gemma3_text", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "olmo3", "phi3", "qwen2",
         "qwen3", "seed_oss", "smollm3")


class AttentionMoments:
    """Sums of 1 / mean square of the attention block's output (or of the residual stream after it is added), and second
    moments of queries."""

    def __init__(self, capture):
        self.capture, self.config = capture, capture.config
        modules = dict(capture.model.named_modules())
        self.parents = [modules[name.rpartition(".")[0]] for name, _ in capture.layers]
        self.norm_after = NORM_AFTER.get(self.config.model_type)
        self.norms = [norm_of(parent, self.norm_after) for parent in self.parents]
        d = getattr(capture.layers[0][1], "head_dim", None) or self.config.hidden_size // capture.heads
        self.tokens, self.scale = 0, torch.zeros(len(self.parents), dtype=torch.float64)
        self.query = torch.zeros(len(self.parents), capture.heads, d, d, dtype=torch.float64)
        self.inputs, self.squares = {}, {}

    def hooks(self):
        """Returns (module, hook) for Capture.run."""
        watched = []
        for i, (_, attention) in enumerate(self.capture.layers):
            if not self.norm_after:
                watched.append((self.norms[i], lambda module, inputs, output, i=i: self.inputs.update({i: inputs[0]})))
            watched.append((attention, lambda module, inputs, output, i=i: self.keep(i, output[0])))
        return watched

    def keep(self, layer, output):
        rows = output if self.norm_after else self.inputs.pop(layer) + output
        rows = rows.to(torch.float64)
        if is_layer_norm(self.norms[layer]):
            rows = rows - rows.mean(-1, keepdim=True)
        self.squares[layer] = rows.square().mean(-1) + eps_of(self.norms[layer], self.config)

    def add(self, kept):
        """Adds the last run's tokens: kept: [sequences, tokens], True for those of the fit part that count."""
        self.tokens += int(kept.sum())
        for layer, squares in self.squares.items():
            self.scale[layer] += (1 / squares[kept]).sum().cpu()
            q = self.capture.found["q", layer][kept].to(torch.float64)
            self.query[layer] += torch.einsum("thi,thj->hij", q, q).cpu() / q.shape[-1]

    def output(self):
        """Returns W^T diag(g)^2 W / hidden size for the columns W of each head: [layer, head, d, d]."""
        found = []
        for parent, (_, attention) in zip(self.parents, self.capture.layers):
            project = next(getattr(attention, name) for name in OUTPUTS if hasattr(attention, name))
            w = project.weight.detach().to(torch.float64).cpu()
            if type(project).__name__ == "Conv1D":
                w = w.T
            if self.norm_after:
                norm = getattr(parent, self.norm_after)
                gain = norm.weight.detach().to(torch.float64).cpu()
                w = w * (gain + 1 if type(norm).__name__.startswith("Gemma") else gain)[:, None]
            w = w.reshape(w.shape[0], self.capture.heads, -1).permute(1, 0, 2)
            found.append(w.transpose(1, 2) @ w / w.shape[1])
        return torch.stack(found)

    def finish(self):
        """Returns the group `attention` of a Gram file."""
        return {"tokens": self.tokens, "scale": (self.scale / self.tokens).numpy(),
                "query": (self.query / self.tokens).numpy(), "output": self.output().numpy()}


def norm_of(parent, after):
    """Returns the norm after attention if there is one, else the one before it."""
    return getattr(parent, after or ("attention_layernorm" if hasattr(parent, "attention_layernorm") else "input_layernorm"))


def is_layer_norm(norm):
    return isinstance(norm, torch.nn.LayerNorm) or type(norm).__name__.endswith("LayerNorm")


def eps_of(norm, config):
    for name in ("variance_epsilon", "eps"):
        if isinstance(getattr(norm, name, None), float):
            return getattr(norm, name)
    return getattr(config, "rms_norm_eps", None) or getattr(config, "layer_norm_eps", None) or 1e-5
