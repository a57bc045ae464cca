"""Requests of fetch.py to the Hugging Face hub: the revisions of a repository, the files of a checkpoint that headspan
reads, and their contents, checked. Needs huggingface_hub.

The downloads of huggingface_hub start a file again when they are interrupted, and put it in place unchecked. Here only
the rest of NAME.incomplete is requested, and NAME appears when its size and digest match those that the hub lists.
While an .incomplete file is there, headspan refuses the folder.
"""
import fcntl
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.constants import ENDPOINT  # noqa: F401, for messages
from huggingface_hub.errors import HTTPError as NetworkError  # noqa: F401, for fetch.py: the base class of all that its HTTP library raises
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers

from manifest import InputError

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
             "merges.txt")
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
BIN_SHARD = re.compile(r"pytorch_model-\d{5}-of-\d{5}\.bin")
SUMS = "SHA256SUMS"  # of the files of a folder that were checked, as sha256sum writes and reads it


class TransferError(Exception):
    """A file could not be downloaded, or is not what the hub lists; reported in one line, exit code 1."""


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub lists it: large ones with their sha256, others with git's digest of their content."""
    name: str
    size: int
    sha256: str  # "" for a file that lies in git
    git_digest: str  # of the content only where sha256 is ""


def revisions(repository):
    """Returns the branches and tags of a repository, with their commits."""
    try:
        refs = HfApi().list_repo_refs(repository)
    except RepositoryNotFoundError as error:
        raise InputError(f"repository = {repository}: does not exist, or needs a login: "
                              "check the name, or give HF_TOKEN") from error
    return {ref.name: ref.target_commit for ref in [*refs.tags, *refs.branches]}


def list_files(repository, commit, tokenizer=False):
    """Returns the files of a commit that headspan reads: the configuration, then the weights; if they are not in
    safetensors, those of PyTorch, which convert.py converts. `tokenizer`: also the files of the tokenizer."""
    try:
        tree = HfApi().list_repo_tree(repository, revision=commit)
        listed = {entry.path: RemoteFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else "", entry.blob_id)
                  for entry in tree if isinstance(entry, RepoFile)}
    except RevisionNotFoundError as error:
        raise InputError(f"commit = {commit}: {repository} has no such commit; "
                              "empty the cell to take the revision as it is now") from error
    return chosen_files(f"{repository} {commit}", listed, tokenizer)


def chosen_files(where, listed, tokenizer):
    """Returns those of listed: name -> RemoteFile that list_files returns."""
    kinds = [(SINGLE, INDEX, SHARD), (BIN, BIN_INDEX, BIN_SHARD)]
    single, index, shard = next((kind for kind in kinds if kind[0] in listed or kind[1] in listed), kinds[0])
    weights = [single] if single in listed else sorted(name for name in listed if shard.fullmatch(name))
    names = [CONFIG, *([] if single in listed else [index]), *weights]
    for name in names:
        if name not in listed:
            raise InputError(f"{where}: holds no {name}")
    for name in weights:
        if not listed[name].sha256:
            raise InputError(f"{where}: {name}: is listed without a sha256")
    return [listed[name] for name in [*names, *(name for name in TOKENIZER if tokenizer and name in listed)]]


def is_weights(name):
    return name.endswith((".safetensors", ".bin"))


def weights_size(files):
    return sum(file.size for file in files if is_weights(file.name))


def weights_digest(files):
    """Returns the sha256 of a single weights file; for several, that of the lines "sha256  name" that sha256sum prints
    for them in the order of their names."""
    weights = sorted((file.name, file.sha256) for file in files if is_weights(file.name))
    if len(weights) == 1:
        return weights[0][1]
    return hashlib.sha256("".join(f"{sha256}  {name}\n" for name, sha256 in weights).encode()).hexdigest()


def digest(path, algorithm, prefix=b""):
    """Returns the digest of `prefix` and the content of a file."""
    total = hashlib.new(algorithm, prefix)
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()


def is_expected(path, file):
    """Returns whether a file on disk has the size and the digest that the hub lists."""
    if path.stat().st_size != file.size:
        return False
    if file.sha256:
        return digest(path, "sha256") == file.sha256
    return digest(path, "sha1", f"blob {file.size}\0".encode()) == file.git_digest


def read_sums(folder):
    """Returns file name -> sha256, for the files that were checked."""
    sums = Path(folder, SUMS)
    lines = sums.read_text().splitlines() if sums.exists() else []
    return {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}


def write_sums(folder, sums):
    new = Path(folder, SUMS + ".tmp")
    new.write_text("".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items())))
    os.replace(new, Path(folder, SUMS))


def is_there(folder, file):
    """Returns whether a file need not be fetched. A weights file is hashed once; after that SHA256SUMS is trusted."""
    path = Path(folder, file.name)
    if not path.exists() or path.stat().st_size != file.size:
        return False
    return bool(file.sha256) and read_sums(folder).get(file.name) == file.sha256 or is_expected(path, file)


def fetch(repository, commit, file, folder):
    """Fetches one file into `folder`, continuing where an earlier attempt stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, SUMS).unlink(missing_ok=True)  # until all files are there and checked
    partial = folder / (file.name + ".incomplete")
    with open(partial, "ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TransferError(f"{partial}: is being written by another fetch; wait for it") from None
        if stream.tell() > file.size:
            stream.truncate(0)
        download(repository, commit, file, stream)
        stream.flush()
        os.fsync(stream.fileno())
        settle(partial, file)


def download(repository, commit, file, stream):
    """Appends to `stream` what is missing. If the connection breaks, what has arrived remains for the next attempt."""
    url = hf_hub_url(repository, file.name, revision=commit)
    refused = f"{repository} {commit}: {file.name}"
    try:
        http_get(url, stream, resume_size=stream.tell(), headers=build_hf_headers(), expected_size=file.size)
    except HfHubHTTPError as error:
        if error.response.status_code == 416:  # the hub has less than the rest that was requested
            os.unlink(stream.name)
        first_line = str(error).splitlines()[0]
        raise TransferError(f"{refused}: the hub does not send it: {first_line}") from error
    except OSError as error:
        if error.errno is not None:
            raise  # the disk's, not the hub's
        os.unlink(stream.name)
        raise TransferError(f"{refused}: size: what the hub sent has not the {file.size} bytes that it lists; "
                              "nothing of it was kept") from error


def settle(partial, file):
    """Renames a complete download if it is what the hub lists."""
    if not is_expected(partial, file):
        found, kind, listed = digest(partial, "sha256"), "sha256", file.sha256
        if not listed:
            kind, listed = "git digest", file.git_digest
            found = digest(partial, "sha1", f"blob {partial.stat().st_size}\0".encode())
        os.unlink(partial)
        raise TransferError(f"{partial.with_suffix('')}: {kind} = {found}: is not what the hub lists, {listed}; "
                              "nothing of it was kept")
    os.replace(partial, partial.with_suffix(""))


def record(folder, files):
    """Checks that the shards that the index names are there, and writes SHA256SUMS."""
    names = {file.name for file in files}
    for index in names & {INDEX, BIN_INDEX}:
        for shard in sorted(set(json.loads(Path(folder, index).read_text())["weight_map"].values())):
            if shard not in names:
                raise InputError(f"{Path(folder, index)}: weight_map = {shard}: is not in the repository")
    write_sums(folder, {file.name: file.sha256 or digest(Path(folder, file.name), "sha256") for file in files})
