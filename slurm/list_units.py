"""The units of a job, and which of them are finished. submit.sh asks this on a login node, where an MPI program such
as headspan itself may not start. It starts nothing and writes nothing; tests/slurm/test_submit.py holds it against
the results of the program.

usage: list_units.py JOB.ini [--section.key value ...]

Prints lines of tab-separated fields:
    directory  PATH                     output.directory
    manifest   PATH  all|some           model.manifest, and whether all of its rows are selected; absent without one
    unit       ROW  STATE  FILE         row of the manifest counted from 0 ("-" without one); finished or open; the
                                        result's path

A unit is finished when the files that it publishes lie there as their .done files say. Only the keys that decide this
are looked at: the program is the judge of the rest of a job.
"""
import errno
import hashlib
import os
import re
import stat
import sys

USED = ("model.path", "model.manifest", "model.select", "model.init", "model.name", "activations.path", "grams.paths",
        "output.directory", "output.save_gram", "output.overwrite")


class InputError(Exception):
    """FILE: FIELD = VALUE: what is wrong; what would be right."""


def read_job(path):
    """{"section.key": value} of a job file."""
    keys, section = {}, ""
    for line in read_lines(path):
        line = line.split("#")[0].strip()
        if line.startswith("["):
            section = line[1:].split("]")[0].strip()
        elif "=" in line and not line.startswith(";"):
            key, value = line.split("=", 1)
            keys[f"{section}.{key.strip()}"] = value.strip()
    return keys


def read_lines(path):
    try:
        with open_regular(path) as file:
            return file.read().decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}; give a text file") from error


def open_regular(path):
    """The file, open for reading bytes. OSError where it is no regular one: a FIFO would wait for its writer."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no regular file", path)
    return file


def read_overrides(words):
    """{"section.key": value} of `--section.key value` and `--section.key=value`."""
    keys, words = {}, list(words)
    while words:
        key, equals, value = words.pop(0).partition("=")
        if not key.startswith("--") or not (equals or words):
            raise InputError(f"command line: {key}: is no key with a value; --section.key value")
        keys[key[2:]] = value if equals else words.pop(0)
    return keys


def list_of(text):
    return [item.strip() for item in text.split(",")]


def read_manifest(path):
    """The rows, as {column: cell}."""
    lines = [line.split("\t") for line in read_lines(path) if line.strip()]
    if len(lines) < 2:
        raise InputError(f"{path}: holds no row; a header line and one line per checkpoint are expected")
    for column in ("name", "path"):
        if column not in lines[0]:
            raise InputError(f"{path}: column = {column}: is missing; add it")
    return [dict(zip(lines[0], cells)) for cells in lines[1:]]


def selected_rows(rows, select):
    """Numbers of the rows that model.select means, as the program reads it: a name comes before an index."""
    names, selected = [row["name"] for row in rows], []
    for item in list_of(select):
        bounds = re.fullmatch(r"(?:row:)?(\d+)(?:-(\d+))?", item)
        if item == "all":
            selected += range(len(rows))
        elif item in names:
            selected.append(names.index(item))
        elif bounds and int(bounds[1]) <= int(bounds[2] or bounds[1]) < len(rows):
            selected += range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)
        else:
            raise InputError(f"model.select = {item}: is no row of the manifest; all, names such as {names[0]}, or "
                             f"indices from 0 to {len(rows) - 1}")
    return list(dict.fromkeys(selected))


def cached_name(path):
    """"ORG--NAME" of .../models--ORG--NAME/snapshots/COMMIT, as in a hub's cache; else None."""
    found = re.search(r"/models--([^/]*)/snapshots/[^/]+$", os.path.abspath(path))
    return found and found[1]


def model_above(path):
    return cached_name(path) or os.path.basename(os.path.dirname(os.path.abspath(path))) or "model"


def model_of_folder(path):
    """The folder's name; of one named after a training step, that of the folder above."""
    name = os.path.basename(os.path.abspath(path)) or "model"
    number = "[-_]?[0-9]{1,18}(?![0-9A-Za-z])"
    is_step = (re.match(f"(step|checkpoint){number}", name) or
               re.match(f"stage{number}", name) and re.search(f"(?<![a-z])step{number}", name))
    return model_above(path) if is_step or cached_name(path) else name


def model_of_gram(path):
    """As the file tells, where h5py is there to read it and it does; else the folder in which it lies."""
    try:
        import h5py
        open_regular(path).close()
        with h5py.File(path) as file:
            return str(file.attrs["model_name"])
    except (ImportError, OSError, KeyError):
        return model_above(path)


def stem(path):
    return os.path.splitext(re.sub(r"\.gram\.h5$", ".h5", os.path.basename(os.path.abspath(path))))[0]


def folder_of_row(row, manifest):
    """Of the result: the repository, or the folder in which the checkpoint lies."""
    if row.get("repository"):
        return row["repository"].replace("/", "--")
    beside = os.path.join(os.path.dirname(manifest), row["path"])
    return model_above(row["path"] if not os.path.exists(beside) and os.path.exists(row["path"]) else beside)


def unit_places(job):
    """(row of the manifest, folder and name of the result) of each unit."""
    manifest, path = job["model.manifest"], job["model.path"]
    if job["activations.path"]:
        return [("-", "activations", stem(job["activations.path"]))]
    if job["grams.paths"]:
        first = list_of(job["grams.paths"])[0]
        return [("-", model_of_gram(first), stem(first))]
    if manifest:
        rows = read_manifest(manifest)
        places = [(number, folder_of_row(rows[number], manifest), rows[number]["name"])
                  for number in selected_rows(rows, job["model.select"] or "all")]
    elif path:
        places = [("-", model_of_folder(path), os.path.basename(os.path.abspath(path)) or "model")]
    else:
        raise InputError("the job names no input; give model.path, model.manifest, activations.path or grams.paths")
    inits = list_of(job["model.init"] or "pretrained")
    return [(row, folder, result + ("-random" if init == "random" and len(inits) > 1 else ""))
            for row, folder, result in places for init in inits]


def is_complete(path):
    """Whether the file is there with the size and the digest that its .done tells."""
    try:
        done = dict(line.split(" ", 1) for line in read_done(path) if " " in line)
        return done.get("size") == str(os.path.getsize(path)) and done.get("sha256") == sha256(path)
    except (OSError, UnicodeDecodeError):
        return False


def read_done(path):
    with open_regular(f"{path}.done") as file:
        return file.read().decode().splitlines()


def sha256(path):
    digest = hashlib.sha256()
    with open_regular(path) as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def state(job, result):
    if job["output.overwrite"] == "true":
        return "open"
    files = [result] + ([result[:-len(".h5")] + ".gram.h5"] if job["output.save_gram"] == "true" else [])
    return "finished" if all(map(is_complete, files)) else "open"


def main():
    if len(sys.argv) < 2:
        raise InputError("command line: names no job; list_units.py JOB.ini [--section.key value ...]")
    job = {**dict.fromkeys(USED, ""), **read_job(sys.argv[1]), **read_overrides(sys.argv[2:])}
    directory, manifest = job["output.directory"], job["model.manifest"]
    if not directory:
        raise InputError(f"{sys.argv[1]}: output.directory: is missing; give the folder for the results")
    places = unit_places(job)
    print("directory", directory, sep="\t")
    if manifest:
        whole = len({row for row, *_ in places}) == len(read_manifest(manifest))
        print("manifest", manifest, "all" if whole else "some", sep="\t")
    for row, folder, result in places:
        file = f"{directory}/{job['model.name'] or folder}/{result}.h5"
        print("unit", row, state(job, file), file, sep="\t")


try:
    main()
except InputError as error:
    print(f"submit: {error}", file=sys.stderr)
    sys.exit(2)
