"""What hub.py offers, from the cache of huggingface_hub on this machine, without a network: for HF_HUB_OFFLINE=1. A snapshot
of the cache holds the files of a commit; they are copied."""
import shutil
from pathlib import Path

from huggingface_hub.constants import HF_HUB_CACHE

import hub
from hub import SUMS, NetworkError, TransferError, is_there, record, weights_digest, weights_size  # noqa: F401, of hub.py
from manifest import InputError

ENDPOINT = f"the cache {HF_HUB_CACHE}"


def repository_folder(repository):
    folder = Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    if not folder.is_dir():
        raise InputError(f"repository = {repository}: is not in {ENDPOINT}, and HF_HUB_OFFLINE is set; unset it")
    return folder


def revisions(repository):
    """Returns the branches and tags that the cache knows, with their commits."""
    folder = repository_folder(repository) / "refs"
    return {ref.relative_to(folder).as_posix(): ref.read_text().strip() for ref in folder.rglob("*") if ref.is_file()}


def list_files(repository, commit, tokenizer=False):
    """Returns the files of a commit as hub.list_files does."""
    snapshot = repository_folder(repository) / "snapshots" / commit
    if not snapshot.is_dir():
        raise InputError(f"commit = {commit}: {repository} has no such snapshot in {ENDPOINT}; unset HF_HUB_OFFLINE")
    listed = {path.name: hub.RemoteFile(path.name, path.stat().st_size, hub.digest(path, "sha256"), "")
              for path in snapshot.iterdir() if path.is_file()}
    return hub.chosen_files(f"{repository} {commit}", listed, tokenizer)


def fetch(repository, commit, file, folder):
    """Copies one file of a snapshot into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, SUMS).unlink(missing_ok=True)
    partial = folder / (file.name + ".incomplete")
    shutil.copyfile(repository_folder(repository) / "snapshots" / commit / file.name, partial)
    hub.settle(partial, file)
