"""What latents shared by 2 to 4 neighbouring layers would lose, against latents of one layer, in the metric of the attention
output: a prototype, which stores nothing. It replaces the keys and values of an exact run by what codes with one gain per
token and record would give back, lets every query read them, and prints KL to the exact run at equal bytes that a layer
reads, and at equal bytes stored. A layer of a group reads the record of the whole group. Takes half an hour on one core.

usage: shared_latents.py MODEL FIT.bin HELDOUT.bin     (a Llama of transformers; uint16 tokens; 0 ends a document)
"""
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

LENGTH, EXACT_FIRST, FIT_WINDOWS, UNIT_WINDOWS, HELDOUT_WINDOWS = 512, 4, 24, 2, 12
SHARES, GROUPS, GAIN_BITS, MOST_BITS = (0.27, 0.16, 0.125), (1, 2, 3, 4), 16, 8
MULTIPLES = (.6, .7, .8, .9, 1, 1.1, 1.25, 1.5, 1.8, 2.2, 2.8, 3.6)  # of a token's root mean square, tried as its gain


class Model:
    """Runs windows of tokens; sees, and can replace, keys after RoPE and values."""

    def __init__(self, path):
        self.seen, self.given = {}, {}
        ALL_ATTENTION_FUNCTIONS["shared_latents"] = self.attend
        ALL_MASK_ATTENTION_FUNCTIONS["shared_latents"] = eager_mask
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="shared_latents").eval()
        config = self.model.config
        self.layers, self.heads, self.kv_heads = config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads
        self.hidden = config.hidden_size
        self.d = self.hidden // self.heads
        self.columns = self.kv_heads * self.d
        self.inverse_squares = [[] for _ in range(self.layers)]  # of what each block has added to: 1 / mean square
        for layer, block in enumerate(self.model.model.layers):
            block.post_attention_layernorm.register_forward_pre_hook(
                lambda _, given, layer=layer: self.inverse_squares[layer].append((1 / given[0].square().mean(-1)).mean().item()))

    def attend(self, module, query, key, value, mask, scaling, dropout=0.0, **rest):
        layer = module.layer_idx
        self.seen[layer] = (query, key, value)
        key, value = self.given.get((layer, "k"), key), self.given.get((layer, "v"), value)
        return eager_attention_forward(module, query, key, value, mask, scaling, dropout, **rest)

    def run(self, ids, given=()):
        """Returns log-probabilities: [tokens, vocabulary]. given: (layer, stream) -> [tokens, columns]."""
        self.given = {name: x.float().reshape(1, LENGTH, self.kv_heads, self.d).transpose(1, 2) for name, x in dict(given).items()}
        return self.model(ids).logits[0].log_softmax(-1)

    def stored(self):
        """Returns (layer, stream) -> [tokens, columns] of the last run."""
        return {(layer, stream): self.seen[layer][1 + i][0].transpose(0, 1).reshape(LENGTH, self.columns).double()
                for layer in range(self.layers) for i, stream in enumerate("kv")}

    def output_metric(self, layer):
        """Returns W_h^T W_h / hidden size: [heads, d, d]."""
        weight = self.model.model.layers[layer].self_attn.o_proj.weight.double().reshape(self.hidden, self.heads, self.d)
        return torch.einsum("mhi,mhj->hij", weight, weight) / self.hidden


def windows(path, count):
    ids = np.fromfile(path, "<u2").astype(np.int64)
    return [torch.from_numpy(ids[start:start + LENGTH])[None] for start in np.linspace(0, len(ids) - LENGTH, count).astype(int)]


def exact_tokens(ids):
    """Returns which tokens stay as they are: the first ones of every document."""
    exact = torch.zeros(LENGTH, dtype=torch.bool)
    for start in [0, *(ids[0] == 0).nonzero()[:, 0].tolist()]:
        exact[start:start + EXACT_FIRST] = True
    return exact


class Moments:
    """What the fit windows say: columns of each block, and the root of its metric and its inverse."""

    def __init__(self, model, fit):
        x = {(layer, stream): [] for layer in range(model.layers) for stream in "kv"}
        queries = torch.zeros(model.layers, model.heads, model.d, model.d, dtype=torch.float64)
        for ids in fit:
            model.run(ids)
            rest = ~exact_tokens(ids)
            for name, columns in model.stored().items():
                x[name].append(columns[rest])
            for layer in range(model.layers):
                q = model.seen[layer][0][0][:, rest].double()
                queries[layer] += torch.einsum("hti,htj->hij", q, q) / (model.d * len(fit) * int(rest.sum()))
        self.x = {name: torch.cat(parts) for name, parts in x.items()}
        self.mean = {name: columns.mean(0) for name, columns in self.x.items()}
        self.root, self.inverse = {}, {}
        for layer in range(model.layers):
            output = float(np.mean(model.inverse_squares[layer])) * model.output_metric(layer)
            values = torch.cov(self.x[layer, "v"].T)
            for stream in "kv":
                self.set_root(model, (layer, stream), self.metrics(model, stream, output, queries[layer], values))

    @staticmethod
    def metrics(model, stream, output, queries, values):
        """Returns M of each KV head (src/stats/compression/attention_metric.h)."""
        found = []
        for head in range(model.kv_heads):
            own = slice(head * model.d, (head + 1) * model.d)
            readers = range(head * model.heads // model.kv_heads, (head + 1) * model.heads // model.kv_heads)
            found.append(sum(output[h] if stream == "v" else torch.trace(output[h] @ values[own, own]) * queries[h] for h in readers))
        return found

    def set_root(self, model, name, metrics):
        roots, inverses = [], []
        for metric in metrics:
            values, vectors = torch.linalg.eigh(metric)
            values = values.clamp_min(values.max() * 1e-9)
            roots.append(vectors * values.sqrt() @ vectors.T)
            inverses.append(vectors / values.sqrt() @ vectors.T)
        self.root[name], self.inverse[name] = torch.block_diag(*roots), torch.block_diag(*inverses)


class Measured:
    """KL to exact runs over windows."""

    def __init__(self, model, texts):
        self.model, self.texts, self.exact = model, texts, []
        for ids in texts:
            base = model.run(ids)
            self.exact.append((base, model.stored(), exact_tokens(ids)))

    def kl(self, change):
        """change: the stored columns of a window -> those that are replaced. Returns the mean and its standard error."""
        found = []
        for ids, (base, stored, exact) in zip(self.texts, self.exact):
            given = {name: torch.where(exact[:, None], stored[name], x) for name, x in change(stored).items()}
            found.append((base.exp() * (base - self.model.run(ids, given))).sum(-1).mean().item())
        return np.mean(found), np.std(found, ddof=1) / len(found) ** .5


def measure_units(model, moments, measured):
    """Returns what a unit of the metric costs in KL, block by block, by noise that is white in it."""
    units = {}
    for name, root in moments.root.items():
        size = torch.trace(root @ torch.cov(moments.x[name].T) @ root) * 3e-3
        noise = torch.randn(LENGTH, model.columns, dtype=torch.float64) * (size / model.columns).sqrt() @ moments.inverse[name]
        units[name] = measured.kl(lambda stored, name=name, noise=noise: {name: stored[name] + noise})[0] / size.item()
    return units


def normal_levels(bits):
    """Returns the levels at which a normal number loses least (Lloyd, Max), and what it loses."""
    z = torch.linspace(-5, 5, 200001, dtype=torch.float64)
    weight = (-z * z / 2).exp()
    weight /= weight.sum()
    levels = torch.linspace(-2.5, 2.5, 2**bits, dtype=torch.float64) if bits else torch.zeros(1, dtype=torch.float64)
    for _ in range(400):
        near = torch.bucketize(z, (levels[1:] + levels[:-1]) / 2)
        mass = torch.zeros_like(levels).index_add_(0, near, weight)
        levels = torch.where(mass > 0, torch.zeros_like(levels).index_add_(0, near, weight * z) / mass.clamp_min(1e-300), levels)
    return levels, (weight * (z - levels[torch.bucketize(z, (levels[1:] + levels[:-1]) / 2)]).square()).sum().item()


LEVELS, LOST = zip(*(normal_levels(bits) for bits in range(MOST_BITS + 1)))


class Group:
    """The record of some neighbouring layers of a stream."""

    def __init__(self, moments, units, layers, stream):
        self.names = [(layer, stream) for layer in layers]
        self.mean = torch.cat([moments.mean[name] for name in self.names])
        self.root = torch.block_diag(*(moments.root[name] * units[name] ** .5 for name in self.names))
        self.inverse = torch.block_diag(*(moments.inverse[name] / units[name] ** .5 for name in self.names))
        z = (torch.cat([moments.x[name] for name in self.names], 1) - self.mean) @ self.root
        values, vectors = torch.linalg.eigh(z.T @ z / len(z))
        self.variances, self.axes = values.flip(0).clamp_min(0), vectors.flip(1)
        self.bits = torch.zeros(len(values), dtype=torch.int64)

    def read_back(self, stored):
        """Returns what the record gives back of the layers' columns."""
        z = (torch.cat([stored[name] for name in self.names], 1) - self.mean) @ self.root @ self.axes
        kept = self.bits > 0
        found = torch.zeros_like(z)
        if kept.any():
            deviations = self.variances[kept].sqrt()
            found[:, kept] = quantise(z[:, kept] / deviations, self.bits[kept], self.variances[kept]) * deviations
        x = found @ self.axes.T @ self.inverse + self.mean
        return dict(zip(self.names, x.split(x.shape[1] // len(self.names), 1)))


def quantise(u, bits, weights):
    """Rounds each token, times the gain that loses least, to the levels of its columns."""
    size = u.square().mean(1).sqrt()
    best, least = torch.zeros_like(u), torch.full_like(size, float("inf"))
    for multiple in MULTIPLES:
        gain = (size * multiple)[:, None]
        found = torch.zeros_like(u)
        for width in bits.unique():
            columns, levels = bits == width, LEVELS[int(width)]
            found[:, columns] = gain * levels[torch.bucketize((u[:, columns] / gain).contiguous(), (levels[1:] + levels[:-1]) / 2)]
        lost = ((found - u).square() * weights).sum(1)
        best, least = torch.where((lost < least)[:, None], found, best), torch.minimum(lost, least)
    return best


def allocate(groups, bits):
    """Divides the bits of a token among all columns by what they save."""
    values, lost = np.concatenate([group.variances.numpy() for group in groups]), np.array([1, *LOST[1:]])
    widths, low, high = np.zeros(len(values), int), 1e-30, values.max()
    for _ in range(100):
        price = (low * high) ** .5
        found = (values[:, None] * lost + price * np.arange(MOST_BITS + 1)).argmin(1)
        if found.sum() + GAIN_BITS * len(groups) > bits:
            low = price
        else:
            widths, high = found, price
    begin = 0
    for group in groups:
        group.bits = torch.from_numpy(widths[begin:begin + len(group.variances)])
        begin += len(group.variances)


def main():
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    model, fit = Model(sys.argv[1]), windows(sys.argv[2], FIT_WINDOWS)
    moments = Moments(model, fit)
    units = measure_units(model, moments, Measured(model, fit[:UNIT_WINDOWS]))
    measured = Measured(model, windows(sys.argv[3], HELDOUT_WINDOWS))
    all_bits = 16 * 2 * model.layers * model.columns
    for size in GROUPS:
        groups = [Group(moments, units, range(first, min(first + size, model.layers)), stream)
                  for first in range(0, model.layers, size) for stream in "kv"]
        for share in SHARES:
            for stored in {share / size: "read", share: "stored"}:
                allocate(groups, stored * all_bits)
                kl, error = measured.kl(lambda x, groups=groups: {k: v for group in groups for k, v in group.read_back(x).items()})
                print(f"layers={size} stored={stored:.4f} read={stored * size:.4f} kl={kl:.5f} se={error:.5f}", flush=True)


if __name__ == "__main__":
    main()
