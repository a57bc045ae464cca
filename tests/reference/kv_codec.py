"""A codec of keys and values of a model that does not exist, and what it does with them, in numpy."""
import h5py
import numpy as np

LAYERS, HEADS, D, EXACT = 5, 2, 8, 4
GROUPS = {"k": (3, 2), "v": (2, 2, 1)}  # layers
CLASSES, SLOTS, ROUNDING, LOWEST = 8, 4096, 0.38, -36
OFFSETS = 0.1, 0.05
FREQUENCIES = np.array([1, 0.3, 0.02], "<f4")  # of 6 of the 8 coordinates
LENGTH = 1.2
NOT_ROTATED = 3  # a layer


def below(x):
    """The normal distribution, by its series."""
    from math import erf
    return 0.5 * (1 + erf(x / np.sqrt(2)))


def level_models():
    """Returns (slots, shift, offsets) of normal distributions, for deviations from 2^(LOWEST / 16) steps on."""
    def begin(level):
        return level - ROUNDING if level > 0 else level - 1 + ROUNDING

    most, slots, shifts = 24, [], []
    for i in range(12 * 16 - LOWEST):
        deviation = 2 ** ((LOWEST + i) / 16)
        shift = max(0, int(np.ceil(np.log2(deviation / 4))))
        edges = [below(begin(symbol << shift) / deviation) for symbol in range(-most, most + 2)]
        shares = np.append(np.diff(edges), 1e-4)
        counts = np.maximum(1, np.floor(shares / shares.sum() * (SLOTS - len(shares)))).astype(int)
        counts[most] += SLOTS - counts.sum()
        slots.append(counts)
        shifts.append(shift)
    return np.array(slots, "<u2"), np.array(shifts, "<i8"), np.tile(np.array(OFFSETS, "<f4"), (len(slots), 1))


class Codec:
    """Writes itself to `path`. Groups have a mean, S for each head, an orthogonal basis with rows of rounded numbers."""

    def __init__(self, path, seed=0):
        rng = np.random.default_rng(seed)
        self.path, self.groups = path, {}
        slots, shift, offsets = level_models()
        with h5py.File(path, "w") as file:
            file.attrs.update(headspan_codec="1.0", config_sha256="c" * 64, weights_digest="d" * 64, layers=np.int64(LAYERS),
                              kv_heads=np.int64(HEADS), head_size=np.int64(D), exact_first=np.int64(EXACT),
                              lowest_deviation=np.int64(LOWEST))
            file.attrs["rotary_of_layer"] = np.array([-1 if layer == NOT_ROTATED else 0 for layer in range(LAYERS)], "<i8")
            file["models/slots"], file["models/shift"], file["models/offsets"] = slots, shift, offsets
            file["rotary/0/frequencies"] = FREQUENCIES
            file["rotary/0"].attrs["length"] = LENGTH
            file["curve/step"] = np.array([-160, -80, -16], "<i8")
            file["curve/bits"], file["curve/kl"] = np.array([11.0, 6, 2]), np.array([1e-6, 1e-4, 1e-2])
            for stream, sizes in GROUPS.items():
                first = 0
                for number, layers in enumerate(sizes):
                    self.add(file.create_group(f"{stream}/{number}"), rng, first, layers)
                    self.groups[stream, number] = self.read(file[f"{stream}/{number}"])
                    first += layers

    @staticmethod
    def add(group, rng, first, layers):
        columns = layers * HEADS * D
        group.attrs.update(first_layer=np.int64(first), layers=np.int64(layers))
        roots = np.eye(D) + 0.3 * rng.normal(size=(layers, HEADS, D, D))
        roots = roots @ roots.transpose(0, 1, 3, 2)
        basis = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
        scale = np.abs(basis).max(1) / 127
        group["mean"] = rng.normal(size=columns).astype("<f4")
        group["whitening"], group["unwhitening"] = roots.astype("<f4"), np.linalg.inv(roots).astype("<f4")
        group["basis"], group["scale"] = np.round(basis / scale[:, None]).astype("i1"), scale.astype("<f4")
        group["deviations"] = np.tile(np.arange(32, 32 - columns, -1, dtype="<i2"), (CLASSES, 1))
        group["class_weights"] = np.ones(columns, "<f4")
        group["class_edges"] = np.linspace(60, 600, CLASSES - 1).astype("<f4")

    @staticmethod
    def read(group):
        return {"first_layer": int(group.attrs["first_layer"]), "layers": int(group.attrs["layers"]),
                **{name: np.asarray(group[name], float) for name in ("mean", "whitening", "basis", "scale")}}

    def coefficients(self, stream, values, positions):
        """values: [layer, head, token, d]. Returns the coefficients of each group, [token, columns]."""
        found = []
        for (of, _), group in self.groups.items():
            if of != stream:
                continue
            layers = range(group["first_layer"], group["first_layer"] + group["layers"])
            x = np.stack([unrotate(values[layer], positions, layer) if stream == "k" else values[layer] for layer in layers])
            rows = x.transpose(2, 0, 1, 3) - group["mean"].reshape(len(layers), HEADS, D)
            rows = np.einsum("tlhi,lhij->tlhj", rows, group["whitening"]).reshape(len(positions), -1)
            basis = group["basis"] * group["scale"][:, None]
            found.append(np.linalg.solve(basis @ basis.T, basis @ rows.T).T)
        return found


def unrotate(heads, positions, layer):
    """heads: [head, token, d]."""
    if layer == NOT_ROTATED:
        return heads
    half = len(FREQUENCIES)
    angles = np.asarray(positions)[:, None] * FREQUENCIES.astype(float)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = heads[..., :half] / LENGTH, heads[..., half:2 * half] / LENGTH
    return np.concatenate([a * cos + b * sin, b * cos - a * sin, heads[..., 2 * half:]], axis=-1)
