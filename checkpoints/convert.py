#!/usr/bin/env python3
"""Converts the weights of a checkpoint folder from PyTorch's format to safetensors.

    python3 checkpoints/convert.py FOLDER...

FOLDER holds config.json and pytorch_model.bin, or pytorch_model.bin.index.json and its shards, as fetch.py leaves them. For
each .bin a .safetensors appears beside it, and SHA256SUMS then lists these; one shard at a time is in memory. Pickled code is
not run. Tensors that share memory are written once if config.json ties them, otherwise each. The .bin files stay. A folder
that is converted already is left alone; an interrupted conversion begins anew with the same command.

Needs torch and safetensors. Exit codes: 0 done; 1 the environment failed; 2 the input is at fault.
"""
import argparse
import json
import os
import pickle
import re
import sys
from pathlib import Path

import manifest
from manifest import InputError

INDEX, SAFE_INDEX, SUMS = "pytorch_model.bin.index.json", "model.safetensors.index.json", "SHA256SUMS"
TIED = re.compile(r"(^|\.)(lm_head|embed_out)\.weight$")  # copies of the embedding where tie_word_embeddings says so


def say(message):
    print(f"convert: {message}", file=sys.stderr, flush=True)


def sources(folder):
    """Returns [(.bin, its .safetensors)] of a folder, and the index of several, or None."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: holds no config.json; give the folder of a checkpoint")
    if (folder / INDEX).is_file():
        try:
            index = json.loads((folder / INDEX).read_text())
            names = sorted(set(index["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{folder / INDEX}: is no index of shards ({error}); fetch it again") from error
        for name in names:
            if not re.fullmatch(r"pytorch_model-\d{5}-of-\d{5}\.bin", name):
                raise InputError(f"{folder / INDEX}: weight_map = {name}: is no shard; fetch it again")
        return [(name, name.replace("pytorch_model", "model").replace(".bin", ".safetensors")) for name in names], index
    return [("pytorch_model.bin", "model.safetensors")], None


def read_tensors(path, tied):
    """Returns name -> contiguous tensor of a .bin."""
    import torch
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise InputError(f"{path}: does not exist; fetch the checkpoint, or give its folder") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(f"{path}: cannot be read without running code in it ({' '.join(str(error).split())[:200]}); "
                         "fetch it again") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise InputError(f"{path}: holds other things than tensors; give the weights of a model")
    return {name: tensor.clone(memory_format=torch.contiguous_format)
            for name, tensor in found.items() if not (tied and TIED.search(name))}


def write_tensors(path, tensors):
    from safetensors.torch import save_file
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        save_file(tensors, temporary, metadata={"format": "pt"})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def digest(path):
    import hashlib
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_converted(folder, targets):
    """Returns whether SHA256SUMS lists every target: it is written last."""
    sums = folder / SUMS
    lines = sums.read_text().splitlines() if sums.exists() else []
    listed = {line.split("  ", 1)[1] for line in lines}
    return all(target in listed and (folder / target).is_file() for target in targets)


def convert(folder):
    parts, index = sources(folder)
    targets = [target for _, target in parts]
    if is_converted(folder, targets):
        say(f"{folder}: is converted already")
        return
    tied = json.loads((folder / "config.json").read_text()).get("tie_word_embeddings", False)
    names = {}
    for source, target in parts:
        tensors = read_tensors(folder / source, tied)
        say(f"{folder}: {source}: {len(tensors)} tensors")
        write_tensors(folder / target, tensors)
        names.update(dict.fromkeys(tensors, target))
    if index is not None:
        size = sum((folder / target).stat().st_size for target in targets)
        manifest.replace_text(folder / SAFE_INDEX, json.dumps({"metadata": {"total_size": size}, "weight_map": names}))
    listed = ["config.json", *([SAFE_INDEX] if index is not None else []), *targets]
    manifest.replace_text(folder / SUMS, "".join(f"{digest(folder / name)}  {name}\n" for name in sorted(listed)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    folders = parser.parse_args().folders
    try:
        for folder in folders:
            convert(folder)
    except InputError as error:
        say(error)
        return 2
    except ImportError as error:
        say(f"the package {error.name} is missing: pip install torch safetensors")
        return 1
    except OSError as error:
        say(f"{' '.join(str(error).split())}; the same command begins anew")
        return 1
    print(f"status=done folders={len(folders)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
