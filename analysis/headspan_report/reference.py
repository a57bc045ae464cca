"""What the heads of a checkpoint and those of a reference model say of each other (cross.model): from which heads a head
of the reference is known, and whether the two models have the same heads. Reads nothing (result.py)."""
import numpy as np
from scipy.optimize import linear_sum_assignment

from headspan.statistics import parts_of

KNOWN_FROM = ("same", "best", "one_to_one", "layer")
AXES = {"known_from": KNOWN_FROM}
SHUFFLES = 5

# Name -> axes, long name; as those of measure.py.
VARIABLES = {
    "reference_r2": (("known_from", "part", "reference_layer"), "R2 of the reference's heads, mean over a layer, from the "
                     "checkpoint's: from the head of the same layer and number, from the best (chosen in-sample), from the "
                     "one that a one-to-one assignment gives, from all heads of the layer of the same number"),
    "checkpoint_r2": (("known_from", "part"), "the same of the checkpoint's heads from the reference's, mean over heads"),
    "match_null": (("part",), "R2 of a one-to-one assignment if no two heads of two layers were a pair: what is left of R2 "
                   "after the means of target and source is shuffled among the heads of every two layers"),
    "reference_map": (("layer", "reference_layer"), "R2 of the reference's heads, mean over a layer, from the best head of a "
                      "layer of the checkpoint (chosen in-sample), held-out if there is a held-out part"),
    "reference_cka": (("known_from", "reference_layer"), "linear CKA of the reference's heads, mean over a layer, with the "
                      "head of the same layer and number, and with the most alike")}


def measure_reference(stream, reference):
    """Returns name -> array over the axes of VARIABLES."""
    layers = np.unique(reference.layer)
    member = reference.layer == layers[:, None]  # [layer, head]
    own, other = (np.stack([of.layer, of.head], 1) for of in (stream, reference))
    forth = known_from(stream, reference.of_reference, own, other, stream.head_size)
    back = known_from(stream, reference.of_checkpoint, other, own, reference.head_size)
    tables = reference.of_reference
    found = {"reference_r2": mean_by(forth, member), "checkpoint_r2": mean_of(back),
             "match_null": match_null(stream, reference),
             "reference_map": best_by_layer(tables, stream.layer, member)}
    if "cka" in tables:
        same, cka = same_place(own, other), tables["cka"]
        alike = np.full((len(KNOWN_FROM), len(cka)), np.nan)
        alike[:2] = at(cka, same), cka.max(axis=1)
        found["reference_cka"] = mean_by(alike, member)
    return found


def same_place(sources, targets):
    """Returns the index of the source of each target's layer and number, -1 where there is none. [heads, 2] each."""
    place = {tuple(source): index for index, source in enumerate(sources.tolist())}
    return np.array([place.get(tuple(target), -1) for target in targets.tolist()])


def at(values, sources):
    """Returns the value of [target, source] at one source of each target; NaN for source -1."""
    return np.where(sources < 0, np.nan, values[np.arange(len(values)), sources])


def assigned(values):
    """Returns the source of each target, each source once, whose values have the largest sum; -1 for those left over."""
    sources = np.full(len(values), -1)
    if np.all(np.isfinite(values)):
        targets, chosen = linear_sum_assignment(values, maximize=True)
        sources[targets] = chosen
    return sources


def known_from(stream, tables, sources, targets, size):
    """Returns R² of each target from each of KNOWN_FROM: [known_from, part, target]. sources, targets: [heads, (layer,
    head)]; size: of a source; stream: for its number of tokens."""
    r2 = tables["r2"]
    known = np.all(np.isfinite(r2), axis=1)
    best = np.where(known, np.argmax(np.where(np.isfinite(r2), r2, -np.inf), axis=1), -1)
    in_layer = np.array([np.count_nonzero(sources[:, 0] == layer) for layer in targets[:, 0]])
    rows = []
    for chosen in (same_place(sources, targets), best, assigned(r2)):
        heldout = at(tables["r2_heldout"], chosen) if "r2_heldout" in tables else None
        rows.append(parts_of(stream.n_fit, at(r2, chosen), heldout, size))
    rows.append(parts_of(stream.n_fit, tables["r2_layer"], tables.get("r2_layer_heldout"), in_layer * size))
    return np.array(rows)


def match_null(stream, reference):
    """Returns the mean over shuffles, in-sample, adjusted and held-out. The same pairs of heads are shuffled in both."""
    tables, random, found = reference.of_reference, np.random.default_rng(0), []
    blocks = [np.ix_(np.flatnonzero(reference.layer == target), np.flatnonzero(stream.layer == source))
              for target in np.unique(reference.layer) for source in np.unique(stream.layer)]
    parts = [tables["r2"], *([tables["r2_heldout"]] if "r2_heldout" in tables else [])]
    for _ in range(SHUFFLES):
        shuffled = [np.array(part) for part in parts]
        for block in blocks:
            order = random.permutation(parts[0][block].size)
            for part in shuffled:
                part[block] = shuffle_residuals(part[block], order)
        chosen = assigned(shuffled[0])
        in_sample, heldout = [*(at(part, chosen) for part in shuffled), None][:2]
        found.append(mean_of(np.array(parts_of(stream.n_fit, in_sample, heldout, stream.head_size))))
    return np.mean(found, axis=0)


def shuffle_residuals(values, order):
    """Returns [target, source] with the means of its rows and columns, and the rest in another order."""
    means = values.mean(axis=1, keepdims=True) + values.mean(axis=0) - values.mean()
    return means + (values - means).ravel()[order].reshape(values.shape)


def best_by_layer(tables, layer, member):
    """Returns [layer of the sources, layer of the targets]."""
    scored, rows = tables.get("r2_heldout", tables["r2"]), []
    for number in np.unique(layer):
        sources = np.flatnonzero(layer == number)
        r2 = tables["r2"][:, sources]
        best = np.argmax(np.where(np.isfinite(r2), r2, -np.inf), axis=1)
        rows.append(np.where(np.isfinite(r2).all(axis=1), scored[np.arange(len(r2)), sources[best]], np.nan))
    return mean_by(np.array(rows), member)


def mean_of(values):
    """Returns the means over the last axis without NaN; NaN if there are no others."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0).sum(axis=-1) / known.sum(axis=-1)


def mean_by(values, member):
    """Returns the means of [..., head] over the heads of each layer: [..., layer]. member: [layer, head]."""
    return np.stack([mean_of(values[..., heads]) for heads in member], axis=-1)
