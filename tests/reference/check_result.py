"""Compares a result file of headspan with the definitions in regression.py on raw activations, number by number."""
import configparser

import h5py
import numpy as np

from regression import (all_pairs, covariance, effective_rank, forward, heldout_sequences, is_constant, joint,
                        kept_regressors, ranked, span, take, too_few)

DEFICIENT, CONSTANT, TOO_FEW, NOT_COMPUTED = 1, 2, 4, 16


class Comparison:
    """Collects the largest difference of each variable, and values that exceed their tolerance."""

    def __init__(self):
        self.failures = []
        self.largest = {}

    def close(self, name, ours, expected, tolerance):
        ours, expected = np.asarray(ours, float), np.asarray(expected, float)
        if ours.shape != expected.shape:
            self.failures.append(f"{name}: shape {ours.shape}, expected {expected.shape}")
            return
        if not np.array_equal(np.isnan(ours), np.isnan(expected)):
            self.failures.append(f"{name}: NaN in other places")
            return
        difference = np.max(np.abs(ours - expected)[~np.isnan(expected)], initial=0)
        self.largest[name] = max(self.largest.get(name, 0), difference)
        if not difference <= tolerance:
            self.failures.append(f"{name}: differs by {difference:.3g}, allowed {tolerance:.3g}")


def token_parts(file, skip_first):
    """Returns the positions of the fit and of the held-out tokens, in order of the run's tokens, from the split in the
    file."""
    parts, position = ([], []), 0
    for length, heldout in zip(file["tokens/length"][:], file["tokens/heldout"][:]):
        parts[int(heldout)].extend(range(position + skip_first, position + length))
        position += length
    return [np.array(sorted(p), int) for p in parts]


def compare_stream(path, stream, z, layer, seed=0, share=0.25, tolerance=1e-9, check_forward=True):
    """z: [tokens of the run, heads, d], as captured. Returns the Comparison."""
    with h5py.File(path) as file:
        return StreamCheck(file, stream, z, layer, tolerance).run(seed, share, check_forward)


class StreamCheck:
    def __init__(self, file, stream, z, layer, tolerance):
        self.result = Comparison()
        self.file, self.group, self.layer, self.tolerance = file, file[stream], np.asarray(layer), tolerance
        self.attributes = self.group.attrs
        self.references, self.pool = int(self.attributes["references"]), int(self.attributes["pool"])
        self.paper = file.attrs["mode"] == b"paper"
        exact = self.attributes["forward_dtype"] == self.attributes["precision"] == b"float64"
        self.unit = np.finfo(float).eps if exact else 10 * float(np.finfo(np.float32).eps) ** 2
        fit_part, heldout_part = token_parts(file, int(self.attributes["skip_first"]))
        self.z, self.zh = z.astype(float)[fit_part], z.astype(float)[heldout_part]

    def run(self, seed, share, check_forward):
        flags = heldout_sequences(len(self.file["tokens/heldout"]), share, seed)
        self.result.close("tokens/heldout", self.file["tokens/heldout"][:], flags, 0)
        self.check_attributes()
        self.check_pairs()
        self.check_heads()
        self.check_angles()
        self.check_ceilings()
        for rule in ("pairwise", "forward"):
            if "r2_" + rule in self.group and (rule == "pairwise" or check_forward):
                for target in range(self.z.shape[1]):
                    self.check_selection(rule, target)
        return self.result

    def close(self, name, expected, tolerance):
        self.result.close(name, self.group[name][...], expected, tolerance)

    def heldout_names(self, *names):
        """Returns the variables that the file must contain with held-out tokens, and must not contain without."""
        for name in names:
            if (name in self.group) != (len(self.zh) > 0):
                self.result.failures.append(f"{name}: present {name in self.group}, {len(self.zh)} held-out tokens")
        return [name for name in names if name in self.group]

    def check_attributes(self):
        n, heads, d = self.z.shape
        m = int(self.attributes["hidden_size"]) or np.nan
        counts = np.arange(1, self.references + 1)
        expected = {"n_fit": n, "n_heldout": len(self.zh), "head_size": d, "noise_floor": counts * d / (n - 1),
                    "geometric_null": counts * d / m, "ceiling_null": ((self.layer == self.layer[0]).sum() - 1) * d / m}
        for name, value in expected.items():
            self.result.close(name, self.attributes[name], value, 1e-15 * np.max(np.nan_to_num(value)))
        for axis in ("target", "source"):
            self.close(axis, np.arange(heads), 0)
            self.close(axis + "_layer", self.layer, 0)

    def flags(self, target, deficient):
        constant = is_constant(self.z[:, target]).any() or (len(self.zh) and is_constant(self.zh[:, target]).any())
        return CONSTANT * bool(constant) | DEFICIENT * bool(deficient)

    def check_pairs(self):
        heads, d = self.z.shape[1:]
        self.r2 = all_pairs(self.z, self.zh, self.paper)
        names = ["r2", "r2_weighted"] + self.heldout_names("r2_heldout")
        for name, expected in zip(names, self.r2):
            self.close(name, expected, self.tolerance)
        status = np.full((heads, heads), TOO_FEW if too_few(self.z, 1) else 0)
        np.fill_diagonal(status, NOT_COMPUTED)
        if not too_few(self.z, 1):
            kept = [kept_regressors(self.z[:, s], self.unit) for s in range(heads)]
            self.close("rank", [rank for rank, _ in kept], 0)
            self.close("pivot", [pivot for _, pivot in kept], self.tolerance)
            for t, s in np.argwhere(status == 0):
                status[t, s] = self.flags(t, kept[s][0] < d)
        self.close("status", status, 0)

    def check_heads(self):
        heads, d = self.z.shape[1:]
        scale = np.abs(self.z).max()
        self.close("mean", self.z.mean(0), 1e-12 * scale)
        self.close("variance", self.z.var(0, ddof=1), 1e-9 * scale**2)
        self.close("spectrum", [self.spectrum([h]) for h in range(heads)], 1e-9 * scale**2)
        self.close("effective_rank", [effective_rank(self.spectrum([h])) for h in range(heads)], 1e-7 * d)
        layers = [np.flatnonzero(self.layer == number) for number in np.unique(self.layer)]
        self.close("effective_rank_layer", [effective_rank(self.spectrum(own)) for own in layers], 1e-7 * d * heads)

    def spectrum(self, heads):
        return np.linalg.eigvalsh(covariance(take(self.z, heads)))[::-1]

    def check_angles(self):
        layers = [np.flatnonzero(self.layer == number) for number in np.unique(self.layer)]
        most = max(len(own) for own in layers)
        expected = np.full((len(layers), most, most), np.nan)
        bases = [span(self.z[:, h], kept_regressors(self.z[:, h], self.unit)[0]) for h in range(self.z.shape[1])]
        for i, own in enumerate(layers):
            for r, t in np.ndindex(len(own), len(own)):
                a, b = bases[own[r]], bases[own[t]]
                if min(a.shape[1], b.shape[1]) > 0 and not too_few(self.z, 1):
                    expected[i, r, t] = ((a.T @ b) ** 2).sum() / min(a.shape[1], b.shape[1])
        self.close("canonical_layer", expected, 10 * self.tolerance)

    def check_ceilings(self):
        job = configparser.ConfigParser()
        job.read_string(self.file.attrs["job"].decode())
        scope = job["ceiling"]["scope"] if job.getboolean("ceiling", "enabled") else ""
        for name, scopes in (("ceiling_layer", ("layer", "both")), ("ceiling_causal", ("causal", "both"))):
            if (name in self.group) != (scope in scopes):
                self.result.failures.append(f"{name}: present {name in self.group} for scope {scope}")
        if "ceiling_layer" in self.group:
            self.check_layer_ceiling()
        if "ceiling_causal" in self.group:
            heads = self.z.shape[1]
            expected = [joint(self.z, self.z[:0], t, range(t), self.paper)[0] if t else np.nan for t in range(heads)]
            self.close("ceiling_causal", expected, self.tolerance)

    def check_layer_ceiling(self):
        n, heads, d = self.z.shape
        r2, adjusted, heldout = np.full((3, heads), np.nan)
        status = np.full(heads, NOT_COMPUTED)
        for t in range(heads):
            others = [h for h in np.flatnonzero(self.layer == self.layer[t]) if h != t]
            if others and too_few(self.z, len(others)):
                status[t] = TOO_FEW
            elif others:
                r2[t], _, heldout[t] = joint(self.z, self.zh, t, others, self.paper)
                adjusted[t] = 1 - (1 - r2[t]) * (n - 1) / (n - len(others) * d - 1)
                regressors = take(self.z, others)
                status[t] = self.flags(t, kept_regressors(regressors, self.unit)[0] < regressors.shape[1])
        self.close("ceiling_layer", r2, self.tolerance)
        self.close("ceiling_layer_adjusted", adjusted, 10 * self.tolerance)
        for name in self.heldout_names("ceiling_layer_heldout"):
            self.close(name, heldout, 10 * self.tolerance)
        self.close("status_ceiling_layer", status, 0)

    def check_selection(self, rule, target):
        """Checks the chosen heads, which may differ if two choices differ by less than rounding; their R2 must be right
        anyway."""
        order = ranked(self.r2[0], self.layer, target)
        most = self.references
        expected = order[:most] if rule == "pairwise" else forward(self.z, target, order[:self.pool], most)
        ours = self.group["references_" + rule][target]
        chosen = [int(s) for s in ours if s >= 0]
        if len(chosen) != len(expected) or list(ours[len(chosen):]) != [-1] * (most - len(chosen)):
            self.result.failures.append(f"references_{rule}[{target}]: {ours}, expected {expected}")
            return
        self.heldout_names(f"r2_{rule}_heldout")
        for count in range(1, most + 1):
            self.check_joint(rule, target, count, chosen, expected)

    def check_joint(self, rule, target, count, chosen, expected):
        def close(name, value, tolerance):
            self.result.close(name, self.group[name][target, count - 1], value, tolerance)

        names = {name: f"{name}_{rule}" for name in ("r2", "status", "rank", "pivot")}
        causal = np.searchsorted(self.layer, self.layer[target], "right") - 1
        if count > len(chosen) or too_few(self.z, count):
            close(names["r2"], np.nan, 0)
            close(names["status"], TOO_FEW if too_few(self.z, count) and count <= causal else NOT_COMPUTED, 0)
            return
        fits = joint(self.z, self.zh, target, chosen[:count], self.paper)
        close(names["r2"], fits[0], self.tolerance)
        if chosen[:count] != expected[:count]:
            best = joint(self.z, self.zh, target, expected[:count], self.paper)[0]
            self.result.close(names["r2"] + " of the best choice", fits[0], best, self.tolerance)
        if len(self.zh):
            close(names["r2"] + "_heldout", fits[2], 10 * self.tolerance)
        regressors = take(self.z, chosen[:count])
        rank, pivot = kept_regressors(regressors, self.unit)
        close(names["rank"], rank, 0)
        close(names["pivot"], pivot, self.tolerance)
        close(names["status"], self.flags(target, rank < regressors.shape[1]), 0)
