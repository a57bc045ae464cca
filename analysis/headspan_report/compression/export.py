"""What a plan says to caches that others maintain: its bits by layer and stream as JSON, with the settings of llama.cpp
and vLLM that come nearest to them, and rotations in the format of OSCAR. Reads plans that store few bits; measures nothing."""
import json
import math
from pathlib import Path

import numpy as np

from headspan.error import EnvironmentFailed, InputError
from headspan.opening import open_checked

from ..aggregate import replace

SCALE_BITS = {"symmetric": 16, "gguf": 16, "normal": 16, "range": 32, "gain": 16}  # of each band, but one gain for all
LLAMA_CPP = (("q4_0", 4.5), ("q4_1", 5.0), ("q5_0", 5.5), ("q5_1", 6.0), ("q8_0", 8.5), ("f16", 16.0))
ROTATIONS = {"k": ("k_rotation_qqt_r_h_pbr.pt", "qqt_r_h_pbr"), "v": ("v_rotation_sst_r_h_pbr.pt", "sst_r_h_pbr")}


def export(plan, skip=None):
    """Returns the JSON object of a Plan. skip: how many layers vLLM is told to leave as they are; at most 4 if it is None."""
    if plan.sixteen_bits:
        raise InputError(plan.path, "algorithm", plan.algorithm, "stores every number in 16 bits, which says nothing of the "
                         "bits that a layer needs", "export a plan of latent, or of another algorithm with bits")
    skip = min(4, int(plan.layers)) if skip is None else skip
    if not 0 <= skip <= plan.layers:
        raise InputError("", "--skip-layers", skip, "is not a number of layers", f"0 to {plan.layers}")
    columns = int(plan.kv_heads) * int(plan.head_size)
    streams = {s: [describe(plan, layer, columns) for layer in plan.stored_by[s]] if s in plan.stored_by
               else [whole_layer(columns)] * int(plan.layers) for s in "kv"}
    bits = {s: float(np.mean([layer["bits_per_number"] for layer in layers])) for s, layers in streams.items()}
    by_layer = np.array([k["bits_per_number"] + v["bits_per_number"] for k, v in zip(streams["k"], streams["v"])])
    most = np.argsort(-by_layer, kind="stable")[:skip]
    kept = sorted(most[by_layer[most] > np.median(by_layer)].tolist())  # where all have the same, none is to be kept
    return {"format": 1, "plan": str(plan.path), "model_type": str(plan.model_type), "config_sha256": str(plan.config_sha256),
            "weights_digest": str(plan.attributes.get("weights_digest", "")), "algorithm": str(plan.algorithm),
            "layers": int(plan.layers), "kv_heads": int(plan.kv_heads), "head_size": int(plan.head_size),
            "stored": float(plan.stored), "bits_per_number": bits, "streams": streams,
            "llama.cpp": {f"--cache-type-{s}": llama_type(bits[s]) for s in "kv"},
            "vllm": {"kv_cache_dtype_skip_layers": [str(layer) for layer in kept]}}


def describe(plan, layer, columns):
    """Returns what a Layer stores; bits_per_number counts scales."""
    if layer.coding not in SCALE_BITS:
        raise InputError(plan.path, "band_coding", layer.coding, "is not known", "a newer headspan-report")
    bands = [[int(c), int(b)] for c, b in zip(layer.columns, layer.bits) if c > 0]
    each = [SCALE_BITS[layer.coding] * (math.ceil(c / layer.group) if layer.group > 1 else 1) for c, b in bands if b < 16]
    bits = sum(8 * math.ceil(c * b / 8) for c, b in bands) + sum(each[:1] if layer.coding == "gain" else each)
    return {"bits_per_number": bits / columns, "bands": bands, "coding": layer.coding, "expected_loss": layer.expected_loss}


def whole_layer(columns):
    """Returns a layer of a stream that the plan leaves as it is."""
    return {"bits_per_number": 16.0, "bands": [[columns, 16]], "coding": "symmetric", "expected_loss": 0.0}


def llama_type(bits):
    """Returns the smallest type of llama.cpp's cache that has so many bits a number, or 16 bits."""
    return next(name for name, size in LLAMA_CPP if size >= bits or name == "f16")


def write_json(found, path):
    # a NaN is no JSON: what is not known is null
    text = json.dumps({**found, "streams": {s: [{name: None if value != value else value for name, value in layer.items()}
                                                for layer in layers] for s, layers in found["streams"].items()}}, indent=1)
    replace(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def rotation_files(plan, folder):
    return [Path(folder) / ROTATIONS[s][0] for s in plan.stored_by]


def write_rotations(plan, folder):
    """Writes K and V rotations as OSCAR's kernels read them: one matrix for all heads of a layer, R H P, of the mean of the
    heads' second moments: eigenvectors R, Hadamard matrix H, and P, which reverses the bits of the columns' numbers."""
    if plan.algorithm != "oscar":
        raise InputError(plan.path, "algorithm", plan.algorithm, "has no rotations", "compress.algorithm = oscar")
    d = int(plan.head_size)
    if d & (d - 1):
        raise InputError(plan.path, "head_size", d, "is no power of two, as kernels for these rotations need", "--output alone")
    try:
        import torch
    except ImportError as error:
        raise EnvironmentFailed("rotations are written by PyTorch, which is missing: pip install './analysis[cache]'") from error
    contents = {}
    with open_checked(plan.path) as file:
        for stream in plan.stored_by:
            layers = {}
            for layer in range(int(plan.layers)):
                rotation, values = shared_rotation(plan, file[stream][str(layer)])
                layers[layer] = {"layer_id": layer, "rotation": torch.from_numpy(rotation).float(),
                                 "eigenvalues": torch.from_numpy(values).float()}
            name, objective = ROTATIONS[stream]
            contents[name] = {"format_version": 1, "objective": objective, "source_grouping": "layer", "layers": layers}
    for name, content in contents.items():
        replace(Path(folder) / name, lambda path, content=content: torch.save(content, path))


def shared_rotation(plan, group):
    """Returns (R H P: [d, d], eigenvalues: [d], descending) of the mean of the heads' second moments."""
    heads, d = int(plan.kv_heads), int(plan.head_size)
    if "eigenvalues" not in group:
        raise InputError(plan.path, f"{group.name}: eigenvalues", "", "is missing, as in plans of older programs",
                         "calibrate again")
    spread = hadamard(d)
    vectors = np.asarray(group["rotation"], float) @ spread
    values = np.asarray(group["eigenvalues"], float).reshape(heads, 1, d)
    found, axes = np.linalg.eigh(np.mean((vectors * values) @ vectors.transpose(0, 2, 1), 0))
    reversed_bits = [int(format(i, f"0{d.bit_length() - 1}b")[::-1], 2) for i in range(d)] if d > 1 else [0]
    return (axes[:, ::-1] @ spread)[:, reversed_bits], found[::-1].copy()


def hadamard(d):
    """Returns the normalised Hadamard matrix of a power of two."""
    matrix = np.ones((1, 1))
    while len(matrix) < d:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(d)
