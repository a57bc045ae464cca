"""The overlap of projections, computed from their weights by numpy's SVD and QR as analysis/README.md defines it.

An independent reference for the tests, slow and obvious.
"""
import h5py
import numpy as np


def projection(model, layer, name):
    """Returns W: [hidden, heads, d] of q, k or v, and the gain of each column."""
    prefix = f"model.layers.{layer}.self_attn."
    w = model.weights[f"{prefix}{name}_proj.weight"].T
    heads = model.heads if name == "q" else model.kv_heads
    gain = model.weights.get(f"{prefix}{name}_norm.weight", np.ones(1))
    return w.reshape(len(w), heads, model.d), np.tile(gain, w.shape[1] // len(gain)).reshape(heads, model.d)


def rank(values, shape, tolerance, largest):
    if tolerance == "paper":
        return (values > max(shape) * np.finfo(np.float32).eps * values[0]).sum()
    return (values > float(tolerance) * largest).sum()


def ranks(w, tolerance):
    """Returns the sum of the ranks of the heads, and the joint rank."""
    joint = w.reshape(len(w), -1)
    values = np.linalg.svd(joint, compute_uv=False)
    own = [rank(np.linalg.svd(w[:, h], compute_uv=False), w[:, h].shape, tolerance, values[0])
           for h in range(w.shape[1])]
    return sum(own), rank(values, joint.shape, tolerance, values[0])


def alignment(w):
    """Returns [heads, heads] ||Q_i^T Q_j||_F^2 / d."""
    bases = [np.linalg.qr(w[:, h])[0] for h in range(w.shape[1])]
    return np.array([[((a.T @ b) ** 2).sum() / w.shape[2] for b in bases] for a in bases])


def compare_overlap(path, model):
    """Returns what in the group `overlap` differs from the weights of a numpy Model; empty if nothing does."""
    failures = []

    def close(what, ours, expected, tolerance):
        expected = np.asarray(expected, float)
        same = ours.shape == expected.shape and np.allclose(ours, expected, rtol=0, atol=tolerance, equal_nan=True)
        if not same:
            failures.append(f"{what}: {ours}, expected {expected}")

    def padded(values, *shape):
        out = np.full(shape, np.nan)
        out[tuple(slice(size) for size in values.shape)] = values
        return out

    with h5py.File(path) as file:
        group = file["overlap"]
        names = {axis: list(group[axis].asstr()[:]) for axis in ("projection", "effective", "tolerance")}
        values, heads = len(group["value"]), len(group["head"])
        layers = model.config["num_hidden_layers"]
        close("layer", group["layer"][:], np.arange(layers), 0)
        for (p, name), layer in ((pair, layer) for pair in enumerate(names["projection"]) for layer in range(layers)):
            w, gain = projection(model, layer, name)
            close(f"alignment {name}{layer}", group["alignment"][p, layer], padded(alignment(w), heads, heads), 1e-9)
            for e, effective in enumerate(names["effective"]):
                scaled = w * gain if effective == "effective" else w
                singular = np.linalg.svd(scaled.reshape(len(w), -1), compute_uv=False)
                close(f"singular_values {name}{layer} {effective}", group["singular_values"][p, e, layer],
                      padded(singular, values), 1e-7 * singular[0])
                for t, tolerance in enumerate(names["tolerance"]):
                    total, joint = ranks(scaled, tolerance)
                    for variable, expected in (("rank_sum", total), ("rank_joint", joint),
                                               ("overlap_dimension", total - joint)):
                        close(f"{variable} {name}{layer} {effective} {tolerance}", group[variable][p, e, t, layer],
                              expected, 0)
        close("alignment_null", group.attrs["alignment_null"], model.d / model.config["hidden_size"], 1e-15)
    return failures
