"""What calibration needs from a model's run over the fit sequences, in numpy and float64, from the activations.

Uses the n tokens at positions >= first of each sequence. The columns of a stream are in order of layers, then heads. An
independent reference for the tests, slow and obvious.
"""
from dataclasses import dataclass

import numpy as np

from regression import centred, is_constant


@dataclass
class Moments:
    z: dict  # stream: [n, layers * heads, d], roped; q has the query heads
    mean: dict  # stream: [layers * heads * d]
    covariance: dict  # stream: [columns, columns], divided by n
    queries: np.ndarray  # [layers, query heads, d, d] second moment of the query / sqrt(d), not centred
    output: np.ndarray  # [layers] w: mean of 1 / (mean square of what the block's change is measured against)
    projection: np.ndarray  # [layers, query heads, d, d] M: the block's relative squared change by a head's output
    metric: dict  # k, v: [layers, heads, d, d]

    def of_layer(self, stream, layer):
        """Returns mean and covariance of the columns of one layer."""
        size = self.metric[stream].shape[1] * self.metric[stream].shape[2]
        columns = slice(layer * size, (layer + 1) * size)
        return self.mean[stream][columns], self.covariance[stream][columns, columns]


def run(model, sequences, first):
    """Returns the roped streams {s: [n, layers * heads, d]}, and w: [layers]."""
    captured = {s: [] for s in "kqv"}
    inverse = []
    for tokens in sequences:
        x, streams, inverse_squares = model.embed(tokens), {s: [] for s in "kqv"}, []
        for layer in range(model.layers):
            found, y = model.attention(x, layer)
            for s in "kqv":
                streams[s].append(found[s]["roped"])
            measure = y if model.norm_after else x + y
            inverse_squares.append(1 / ((measure**2).mean(-1) + model.config["rms_norm_eps"]))
            x = model.after_attention(x, y, layer)
        for s in "kqv":
            captured[s].append(np.concatenate(streams[s], 1)[first:])
        inverse.append(np.array(inverse_squares)[:, first:])
    return {s: np.concatenate(values) for s, values in captured.items()}, np.concatenate(inverse, 1).mean(1)


def covariance_of(x):
    """Returns [columns, columns] for x: [tokens, columns], about the mean, divided by n; 0 where a column is constant.
    """
    varying = np.where(is_constant(x), 0, centred(x))
    return varying.T @ varying / len(x)


def query_moments(q, layers):
    """Returns [layers, query heads, d, d] for roped queries [n, layers * query heads, d]."""
    n, heads, d = q.shape
    moments = [q[:, h].T @ q[:, h] / (n * d) for h in range(heads)]
    return np.reshape(moments, (layers, heads // layers, d, d))


def projection_metrics(model, w):
    """Returns M_h = (w/m) W_h^T diag(g^2) W_h for every layer and query head; W_h: the columns of o_proj, [m, d]."""
    metrics = np.empty((model.layers, model.heads, model.d, model.d))
    for layer in range(model.layers):
        weight = model.weights[f"model.layers.{layer}.self_attn.o_proj.weight"]
        if model.norm_after:
            weight = model.weights[f"model.layers.{layer}.post_attention_layernorm.weight"][:, None] * weight
        for h in range(model.heads):
            own = weight[:, h * model.d:(h + 1) * model.d]
            metrics[layer, h] = w[layer] / len(weight) * own.T @ own
    return metrics


def head_metrics(covariance, queries, projection, kv_heads):
    """Returns the metrics of K and V: [layers, kv heads, d, d], sums over the query heads that read a KV head."""
    layers, heads, d, _ = projection.shape
    metric = {s: np.zeros((layers, kv_heads, d, d)) for s in "kv"}
    for layer in range(layers):
        for h in range(heads):
            t = h // (heads // kv_heads)
            columns = slice((layer * kv_heads + t) * d, (layer * kv_heads + t + 1) * d)
            weight = np.trace(projection[layer, h] @ covariance["v"][columns, columns])
            metric["k"][layer, t] += weight * queries[layer, h]
            metric["v"][layer, t] += projection[layer, h]
    return metric


def moments(model, sequences, first):
    """model: forward.Model. sequences: the token ids of each fit sequence. first: earlier positions are left out."""
    z, w = run(model, sequences, first)
    flat = {s: values.reshape(len(values), -1) for s, values in z.items()}
    covariance = {s: covariance_of(x) for s, x in flat.items()}
    queries = query_moments(z["q"], model.layers)
    projection = projection_metrics(model, w)
    return Moments(z, {s: x.mean(0) for s, x in flat.items()}, covariance, queries, w, projection,
                   head_metrics(covariance, queries, projection, model.kv_heads))
