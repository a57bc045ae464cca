#!/usr/bin/env python3
"""Downloads checkpoints from the Hugging Face hub: those of a manifest, or of a repository.

    python3 checkpoints/fetch.py checkpoints/olmo-2-7b/manifest.tsv step150 step1000
    python3 checkpoints/fetch.py checkpoints/olmo-2-7b/manifest.tsv --list
    python3 checkpoints/fetch.py HuggingFaceTB/SmolLM2-135M
    python3 checkpoints/fetch.py EleutherAI/pythia-70m --revision step1000

Of a repository it takes one revision, into a folder of the repository's name beside this script, or all revisions
that are named after a training step, with a manifest of them (--all-revisions). It takes the files of the tokenizer
too.

Of a manifest it downloads all rows unless some are named. Every checkpoint goes to its row's path; only config.json
and the safetensors files are downloaded. Sizes and digests are checked. When a checkpoint is complete, its commit and
the size and sha256 of its weights are written to the manifest, and later downloads use this commit. After any
interruption the same command continues. Rows that do not exist on the hub are named, and the others are fetched.

Weights that a repository holds only in PyTorch's format are taken as they are; convert.py converts them. HF_TOKEN and
HF_ENDPOINT are honoured; with HF_HUB_OFFLINE=1 files are copied from the hub's cache on this machine. Exit codes: 0
done; 1 the environment failed; 2 the input is at fault, for example a row that does not exist; 3 stopped by a signal.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import manifest
from manifest import InputError

HERE = Path(__file__).resolve().parent
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
STEP = re.compile(r"(?:^|[-_])(?:step|ckpt)[-_]?(\d+)")


def say(message):
    print(f"fetch: {message}", file=sys.stderr, flush=True)


def load_hub():
    """Returns hub.py. If huggingface_hub is missing, starts this program again in the environment that has it."""
    try:
        if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
            import hub_cache
            return hub_cache
        import hub
        return hub
    except ImportError:
        if Path(sys.prefix) == HERE.parent / "build" / "fetch":
            raise
    script = subprocess.run(["bash", HERE / "environment.sh"], stdout=subprocess.PIPE, text=True, check=False)
    if script.returncode != 0:
        sys.exit(1)  # it has said why
    python = script.stdout.strip()
    os.execv(python, [python, *sys.argv])


@dataclass(frozen=True)
class Checkpoint:
    """A row that exists on the hub."""
    row: dict
    commit: str
    folder: Path
    files: list
    missing: list  # those of files that are not on disk

    @property
    def name(self):
        return self.row["name"]

    def missing_bytes(self):
        return sum(file.size for file in self.missing)


class Fetch:
    """One run over rows, of the manifest `path` unless `repository` is their only one; `status` becomes the exit code."""

    def __init__(self, hub, path, rows, repository=None):
        self.hub, self.path, self.rows, self.repository = hub, path, rows, repository
        self.status = 0
        self.revisions = {}
        for repository in dict.fromkeys(row["repository"] for row in rows):
            try:
                self.revisions[repository] = hub.revisions(repository)
            except InputError as error:
                self.refuse(error)
                self.revisions[repository] = None

    def refuse(self, message, status=2):
        """Names what is wrong with one row; the others go on. A failed environment (1) takes precedence over bad input
        (2)."""
        say(message)
        self.status = 1 if 1 in (self.status, status) else status

    def commit_of(self, row):
        """Returns the commit to fetch: that of the manifest, otherwise the current one of the revision. None if there
        is none."""
        if self.revisions[row["repository"]] is None:
            return None  # already reported
        now = self.revisions[row["repository"]].get(row["revision"])
        if now is None and not row["commit"]:
            self.refuse(f"{self.path}: {row['name']}: revision = {row['revision']}: does not exist in "
                        f"{row['repository']}; --list tells which do")
        elif row["commit"] and now != row["commit"]:
            say(f"{self.path}: {row['name']}: commit = {row['commit']}: {row['revision']} is {now or 'gone'} by now; "
                "taking the commit of the manifest")
        return row["commit"] or now

    def list_revisions(self):
        """Lists all revisions of the repositories, and which row each is."""
        print("repository", "revision", "commit", "name", sep="\t")
        for repository, commits in self.revisions.items():
            names = {row["revision"]: row["name"] for row in self.rows if row["repository"] == repository}
            for revision in sorted(commits or [], key=natural_order):
                print(repository, revision, commits[revision], names.get(revision, ""), sep="\t")
        for row in self.rows:
            self.commit_of(row)

    def plan(self):
        """Returns the rows that exist, with the files that each lacks on disk."""
        checkpoints = []
        for row in self.rows:
            commit = self.commit_of(row)
            try:
                if commit:
                    checkpoints.append(self.plan_row(row, commit))
            except InputError as error:
                self.refuse(f"{self.path}: {row['name']}: {error}")
        return checkpoints

    def plan_row(self, row, commit):
        files = self.hub.list_files(row["repository"], commit, tokenizer=self.repository is not None)
        listed = {"bytes": str(self.hub.weights_size(files)), "sha256": self.hub.weights_digest(files)}
        for column, value in listed.items():
            if row[column] and row[column].lower() != value:
                raise InputError(f"{column} = {row[column]}: {row['repository']} {commit} has {value}; "
                                 "empty the cells commit, bytes and sha256 to take what the revision is now")
        folder = self.path.parent / row["path"]
        if folder.is_dir() and not (folder / self.hub.SUMS).exists():
            say(f"{row['name']}: checking what is in {folder}")
        missing = [file for file in files if not self.hub.is_there(folder, file)]
        return Checkpoint(row, commit, folder, files, missing)

    def print_plan(self, checkpoints):
        print("name", "files", "bytes", "bytes_to_fetch", sep="\t")
        for checkpoint in checkpoints:
            size = sum(file.size for file in checkpoint.files)
            print(checkpoint.name, len(checkpoint.files), size, checkpoint.missing_bytes(), sep="\t")
        print("total", sum(len(c.files) for c in checkpoints), sum(file.size for c in checkpoints for file in c.files),
              sum(c.missing_bytes() for c in checkpoints), sep="\t")

    def fetch(self, checkpoints):
        """Fetches what is missing; the last line of standard output says what was done."""
        wanted = sum(checkpoint.missing_bytes() for checkpoint in checkpoints)
        check_space(checkpoints)
        before = failed = 0
        for checkpoint in checkpoints:
            try:
                self.fetch_one(checkpoint, before, wanted)
            except InputError as error:
                self.refuse(f"{checkpoint.name}: {error}")
                failed += 1
            except self.hub.TransferError as error:
                self.refuse(f"{checkpoint.name}: {error}", status=1)
                failed += 1
            before += checkpoint.missing_bytes()
        print(f"status={'done' if self.status == 0 else 'incomplete'} complete={len(checkpoints) - failed} "
              f"incomplete={failed} nonexistent={len(self.rows) - len(checkpoints)} bytes={wanted}")

    def fetch_one(self, checkpoint, before, wanted):
        """Fetches one checkpoint. before, wanted: bytes of the earlier ones and of all, for the progress."""
        for file in checkpoint.missing:
            say(f"{checkpoint.name}: {file.name}: {gigabytes(file.size)}; {gigabytes(before)} of {gigabytes(wanted)} done")
            self.hub.fetch(checkpoint.row["repository"], checkpoint.commit, file, checkpoint.folder)
            before += file.size
        self.hub.record(checkpoint.folder, checkpoint.files)
        cells = {"commit": checkpoint.commit, "bytes": str(self.hub.weights_size(checkpoint.files)),
                 "sha256": self.hub.weights_digest(checkpoint.files)}
        if self.path.exists() and any(checkpoint.row[column] != value for column, value in cells.items()):
            manifest.fill(self.path, checkpoint.name, cells)
        say(f"{checkpoint.name}: complete, {checkpoint.folder}")
        if any(file.name.endswith(".bin") for file in checkpoint.files):
            say(f"{checkpoint.name}: its weights are in PyTorch's format; convert them with: python3 checkpoints/convert.py "
                f"{checkpoint.folder}")


def natural_order(revision):
    """Sorts step900 before step1000."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", revision)]


def gigabytes(size):
    return f"{size / 1e9:.3g} GB"


def check_space(checkpoints):
    """Refuses to begin if the disks do not have enough space."""
    wanted = {}
    for checkpoint in checkpoints:
        folder = next(parent for parent in [checkpoint.folder, *checkpoint.folder.absolute().parents] if parent.is_dir())
        device = folder.stat().st_dev
        wanted[device] = (folder, wanted.get(device, (folder, 0))[1] + checkpoint.missing_bytes())
    for folder, size in wanted.values():
        free = shutil.disk_usage(folder).free
        if size > free:
            raise OSError(f"{folder}: {gigabytes(free)} are free; {gigabytes(size)} are to be fetched: "
                          "name fewer rows, or give another --directory")


def selected(path, names):
    """Returns the rows of a manifest that the user names."""
    rows = manifest.read(path)[1]
    known = [row["name"] for row in rows]
    for name in names:
        if name not in known:
            raise InputError(f"{path}: NAME = {name}: is no row; the rows are {' '.join(known)}")
    return [row for row in rows if not names or row["name"] in names]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", metavar="MANIFEST|ORG/NAME", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="*", help="rows of the manifest; all if none is given")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--revision", metavar="R", help="of ORG/NAME: branch or tag [main]")
    which.add_argument("--all-revisions", action="store_true", help="of ORG/NAME: those named after a training step")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--list", action="store_true",
                      help="only print the revisions that the repositories have, and name the rows that do not exist")
    only.add_argument("--dry-run", action="store_true", help="only print how many bytes would be fetched")
    parser.add_argument("--directory", metavar="DIR", type=Path,
                        help="put the checkpoints, and a copy of the manifest to use them with, in DIR")
    return parser.parse_args()


def is_hub_id(path):
    """Returns whether the first argument names a repository and not a file."""
    return not path.exists() and path.suffix != ".tsv" and HUB_ID.fullmatch(str(path)) is not None


def row_of(repository, revision):
    """Returns the row of a revision. The branch main goes into the folder itself."""
    step = STEP.search(revision)
    name = repository.split("/")[1] if revision == "main" else revision.replace("/", "--")
    return {"name": name, "step": step[1] if step else "", "tokens": "", "path": "." if revision == "main" else name,
            "repository": repository, "revision": revision, **dict.fromkeys(manifest.FILLED, "")}


def run_repository(hub, arguments):
    """Fetches revisions of a repository that no manifest lists."""
    repository = str(arguments.manifest)
    path = (arguments.directory or HERE / repository.split("/")[1]) / "manifest.tsv"
    if not arguments.all_revisions:
        return work(Fetch(hub, path, [row_of(repository, arguments.revision or "main")], repository), arguments)
    known = [row_of(repository, revision) for revision in sorted(hub.revisions(repository), key=natural_order)]
    rows = [row for row in known if row["step"]]
    for row in known:
        if not row["step"]:
            say(f"{repository}: {row['revision']}: is not named after a training step, and is left out")
    if not rows:
        raise InputError(f"{repository}: has no revision that is named after a training step; give one with --revision")
    if not (arguments.list or arguments.dry_run):
        path.parent.mkdir(parents=True, exist_ok=True)
        filled = {row["name"]: row for row in manifest.read(path)[1]} if path.exists() else {}
        rows = [filled.get(row["name"], row) for row in rows]
        manifest.write(path, list(rows[0]), rows)
    return work(Fetch(hub, path, rows, repository), arguments)


def run(hub, arguments):
    if is_hub_id(arguments.manifest):
        return run_repository(hub, arguments)
    path, rows = arguments.manifest, selected(arguments.manifest, arguments.names)
    if arguments.directory:
        path = arguments.directory / "manifest.tsv"
        if not (arguments.list or arguments.dry_run):
            manifest.copy(arguments.manifest, path)
        if path.exists():
            rows = selected(path, arguments.names)
    return work(Fetch(hub, path, rows), arguments)


def work(fetch, arguments):
    """Lists, plans or fetches, and returns the exit code."""
    if arguments.list:
        fetch.list_revisions()
        return fetch.status
    checkpoints = fetch.plan()
    if arguments.dry_run:
        fetch.print_plan(checkpoints)
    else:
        fetch.fetch(checkpoints)
    return fetch.status


def check(arguments):
    """Reports what is wrong without the hub."""
    if not is_hub_id(arguments.manifest):
        for option in ("revision", "all_revisions"):
            if getattr(arguments, option):
                raise InputError(f"--{option.replace('_', '-')}: is of a repository, and {arguments.manifest} is a manifest; "
                                 "name rows instead")
        selected(arguments.manifest, arguments.names)
    elif arguments.names:
        raise InputError(f"NAME = {arguments.names[0]}: {arguments.manifest} is a repository; give --revision")


def main():
    arguments = parse_arguments()
    try:
        check(arguments)
        hub = load_hub()
    except InputError as error:
        say(error)
        return 2
    try:
        return run(hub, arguments)
    except InputError as error:
        say(error)
        return 2
    except (OSError, hub.NetworkError) as error:
        where = f"{hub.ENDPOINT}: " if isinstance(error, hub.NetworkError) else ""
        say(f"{where}{type(error).__name__}: {' '.join(str(error).split())}; the same command goes on")
        return 1
    except KeyboardInterrupt:
        say("stopped; the same command goes on")
        return 3


if __name__ == "__main__":
    sys.exit(main())
