"""The model with a compressed cache in mode `simulated`, and the statistics that `evaluate` reports, in numpy and
float64.

Attention reads x^ instead of the keys and values of tokens at positions >= exact_first of their document, including the
current token's. The last `recent` tokens up to the query's own are read as they are, and so are tokens of kivi's groups that
are not complete before these. With an exact prefill, the keys and values of prompts are those of a run with the full cache.
References to an earlier layer are the kept heads of that layer as they are stored: exact, and from the model that runs
with the compressed cache. An independent reference for the tests, slow and obvious.
"""
from dataclasses import dataclass

import h5py
import numpy as np

from latents import restore
from rounding import BLOCK, kivi, read_back


ROUNDING = "quantise", "hadamard", "rotated-q4", "rotated-q8", "kivi", "oscar"


@dataclass
class Plan:
    algorithm: str
    exact_first: int
    streams: dict  # stream -> [the group of each layer: {name: values}]


def read_plan(path):
    with h5py.File(path) as file:
        streams = {s: [read_group(file[s][str(layer)]) for layer in range(len(file[s]))] for s in "kv" if s in file}
        return Plan(np.bytes_(file.attrs["algorithm"]).decode(), int(file.attrs["exact_first"]), streams)


def read_group(group):
    values = {name: group[name][...] for name in group}
    return {**values, **{name: np.array(value) for name, value in group.attrs.items()}}


class Cache:
    """x^ of one sequence, layer by layer. `replace` is the argument `cached` of Model.attention."""

    def __init__(self, plan, starts=(), recent=0):
        self.plan, self.starts, self.recent = plan, list(starts), recent  # starts: first tokens of further documents
        self.stored = {s: [] for s in plan.streams}  # exact rows of each layer so far: [tokens, heads, d]

    def replace(self, layer, k, v):
        return tuple(self.stream(s, layer, x) if s in self.plan.streams else x for s, x in (("k", k), ("v", v)))

    def stream(self, s, layer, x):
        """Returns what is read of x: [tokens, heads, d] of one layer, or what each query reads, [query, tokens, heads, d]."""
        self.stored[s].append(x)
        group, rows = self.plan.streams[s][layer], x.reshape(len(x), -1)
        if self.plan.algorithm == "kivi":
            out = kivi(s, x, int(group["band_bits"][0]), self.plan.exact_first, self.starts)
        elif self.plan.algorithm == "latent":
            out = restore(rows, group).reshape(x.shape)
        elif self.plan.algorithm in ROUNDING:
            out = read_back(self.plan.algorithm, group, x)
        else:
            out = self.predict(s, group, x)
        exact = [*range(min(len(x), self.plan.exact_first)), *self.starts]
        out[exact] = x[exact]
        grouped = BLOCK if self.plan.algorithm == "kivi" else 1
        if self.recent == 0 and grouped == 1:
            return out
        return np.where(self.near(len(x), grouped)[..., None, None], x, out)

    def near(self, tokens, grouped):
        """Returns [query, token]: whether the token is one of the last `recent` or in a group with some of them or of later
        tokens."""
        query, token, first = np.arange(tokens)[:, None], np.arange(tokens), self.plan.exact_first
        behind = query + 1 - self.recent
        whole = np.maximum(0, behind - first) // grouped * grouped
        return token >= np.minimum(behind, first + whole)

    def predict(self, s, group, x):
        heads, d = x.shape[1:]
        out = x.copy()
        for target, references, w, bias in zip(group["targets"], group["references"], group["map"], group["bias"]):
            out[:, target] = bias
            for i, reference in enumerate(references):
                if reference >= 0:
                    layer, head = divmod(int(reference), heads)
                    if head not in self.plan.streams[s][layer]["kept"]:
                        raise ValueError(f"{s}: head {head} of layer {layer} is a reference and not stored")
                    out[:, target] += self.stored[s][layer][:, head] @ w[i * d:(i + 1) * d]
        return out


class PrefilledCache(Cache):
    """The same behind an exact prefill of the first `prompt` tokens, whose keys and values `full` has by layer."""

    def __init__(self, plan, starts, recent, prompt, full):
        super().__init__(plan, starts, recent)
        self.prompt, self.full = prompt, full

    def replace(self, layer, k, v):
        return super().replace(layer, *(np.concatenate((exact[:self.prompt], x[self.prompt:]))
                                        for exact, x in zip(self.full[layer], (k, v))))


def document_starts(tokens, first, ends):
    """Returns the positions of the first `first` tokens of every document but the first one."""
    begins = [i + 1 for i, token in enumerate(tokens) if token in ends]
    return sorted({i for begin in begins for i in range(begin, begin + first) if first <= i < len(tokens)})


def logits(model, tokens, plan, ends=(), prompt=0, recent=0):
    """Returns [tokens, vocabulary]. plan None: the full cache; ends: ids that end a document; prompt: how many tokens are
    prefilled exactly; recent: how many last tokens a query reads as they are, its own among them."""
    if not plan:
        return model.logits(tokens)
    starts = document_starts(tokens, plan.exact_first, ends)
    if not prompt:
        return model.logits(tokens, Cache(plan, starts, recent).replace)
    full = []

    def record(layer, k, v):
        full.append((k.copy(), v.copy()))
        return k, v
    model.logits(tokens, record)
    return model.logits(tokens, PrefilledCache(plan, starts, recent, prompt, full).replace)


def log_probabilities(values):
    shifted = values - values.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def sequence_totals(model, tokens, plan, ends=(), prefilled=False, recent=0):
    """Returns the number of positions with a next token, and sums over them: loss, loss with the full cache, KL(full ||
    compressed)."""
    tokens = np.asarray(tokens)
    ours = log_probabilities(logits(model, tokens, plan, ends, len(tokens) if prefilled else 0, recent)[:-1])
    full = log_probabilities(logits(model, tokens, None)[:-1])
    positions = np.arange(len(tokens) - 1)
    return (len(positions), -ours[positions, tokens[1:]].sum(), -full[positions, tokens[1:]].sum(),
            (np.exp(full) * (full - ours)).sum())


def ratio(totals, counts):
    """Returns the mean over tokens and its standard error over sequences; NaN for one sequence."""
    n, size = counts.sum(), len(counts)
    mean = totals.sum() / n
    spread = ((totals - mean * counts) ** 2).sum()
    return mean, np.sqrt(spread * size / (size - 1)) / n if size > 1 else np.nan


def summary(model, sequences, plan, ends=(), prefilled=False, recent=0):
    """tokens: the number scored. Sequences of one token have nothing to score and do not count as sequences.
    prefilled: each token is the first one behind an exact prefill."""
    rows = [sequence_totals(model, tokens, plan, ends, prefilled, recent) for tokens in sequences if len(tokens) > 1]
    counts, loss, full_loss, kl = np.array(rows, float).T
    found = {"tokens": int(counts.sum()), "full_loss": full_loss.sum() / counts.sum()}
    found["loss"], found["loss_se"] = ratio(loss, counts)
    found["kl"], found["kl_se"] = ratio(kl, counts)
    found["dloss"], found["dloss_se"] = ratio(loss - full_loss, counts)
    return {**found, "perplexity": np.exp(found["loss"])}
