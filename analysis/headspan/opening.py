"""Opens files that others wrote, by the rule of src/io/hdf5: only regular files, and of HDF5 only what the file itself
contains. No links to other files, no values stored in them, no values that were declared and never written. Checks that
a file is complete, and that it is a result."""
import hashlib
import math
import os
import stat
from pathlib import Path

import h5py
import numpy as np

from .error import InputError

LARGEST_RATIO = 1032  # the highest compression of deflate
STREAMS = ("k", "q", "v", "z")


def open_regular(path):
    """Returns the file, open for reading bytes. Raises OSError if it is not regular: a FIFO would wait for its writer.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is no regular file")
    return file


def open_checked(path):
    """Returns the h5py.File at `path`, open for reading. Raises InputError if it refers to other files."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    opened = h5py.File(path, "r")
    try:
        for name in check_objects(path, opened, size):
            follow(path, opened, name)
    except BaseException:
        opened.close()
        raise
    return opened


def check_objects(path, file, size):
    """Visits each group and dataset once, without following links. Returns the names of the soft links."""
    links, seen, groups = [], {address(file)}, [file]
    while groups:
        group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            place = f"{group.name}/{name}".lstrip("/")
            if isinstance(link, h5py.ExternalLink):
                raise InputError(path, place, "", "is a link to another file", "copy what it names into this file")
            if isinstance(link, h5py.SoftLink):
                links.append(place)
                continue
            found = group[name]
            if address(found) in seen:
                continue
            seen.add(address(found))
            if isinstance(found, h5py.Group):
                groups.append(found)
            elif isinstance(found, h5py.Dataset):
                check_stored(path, place, found, size)
    return links


def follow(path, file, name):
    """Refuses a soft link that leads nowhere. None leads to another file, because external links are refused."""
    try:
        file[name]
    except (KeyError, RuntimeError):
        raise InputError(path, name, "", "is a link to nothing", "copy what it should name into this file") from None


def address(found):
    return h5py.h5o.get_info(found.id).addr


def check_stored(path, name, dataset, size):
    """Refuses a dataset whose values are not in the file, which has `size` bytes."""
    if dataset.is_virtual or dataset.external:
        raise InputError(path, name, "", "is stored in other files", "copy its values into this file")
    shape = dataset.shape
    if shape is None:  # it has no values
        return
    value = dataset.id.get_type().get_size()
    room = (size // value + 1) * LARGEST_RATIO
    if math.prod(max(1, extent) for extent in shape) > room or not (0 in shape or is_allocated(dataset)):
        raise InputError(path, name, "", "has values that the file does not hold", "write all of its values")


def is_allocated(dataset):
    """Returns whether the dataset, or each of its chunks, has an address in the file."""
    if dataset.chunks is None:
        return dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    needed = math.prod(-(-extent // chunk) for extent, chunk in zip(dataset.shape, dataset.chunks))
    return dataset.id.get_num_chunks() == needed


def check_complete(path, again="run the study again: it computes what is missing"):
    """Returns the sha256 of a file that matches its .done. Raises InputError if it does not, or if there is none; the error
    ends with `again`."""
    done_path = Path(f"{path}.done")
    if not path.exists():
        raise InputError(path, "", "", "is missing or still being written", again)
    if not done_path.exists():
        raise InputError(path, "", "", "has no .done beside it: it was not finished", again)
    try:
        with open_regular(done_path) as file:
            lines = file.read().decode(errors="replace").splitlines()
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            sha256 = digest(file)
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read ({one_line(error)})", again) from error
    done = dict(line.split(" ", 1) for line in lines if " " in line)
    if done.get("size") != str(size):
        raise InputError(path, "size", size, f"its .done says {done.get('size')}", again)
    if done.get("sha256") != sha256:
        raise InputError(path, "sha256", sha256, f"its .done says {done.get('sha256')}", again)
    return sha256


def digest(file):
    """Returns the sha256 of a file that is open for reading bytes."""
    sha256 = hashlib.sha256()
    for part in iter(lambda: file.read(1 << 20), b""):
        sha256.update(part)
    return sha256.hexdigest()


def check_result(path, file):
    """Returns the attributes of a result that is open. Raises InputError if it is none, or of another schema."""
    attributes = {name: plain(value) for name, value in file.attrs.items()}
    check_schema(path, attributes, "this is no result of headspan")
    for name in ("checkpoint", "model_name", "mode", "step"):
        if name not in attributes:
            raise InputError(path, name, "", "is missing", "this is no result of headspan")
    if not any(f"{name}/r2" in file for name in STREAMS):
        raise InputError(path, "k/r2, q/r2, v/r2", "", "are missing", "a result has at least one stream")
    return attributes


def check_schema(path, attributes, otherwise):
    if "headspan_schema" not in attributes:
        raise InputError(path, "headspan_schema", "", "is missing", otherwise)
    if not str(attributes["headspan_schema"]).startswith("1."):
        raise InputError(path, "headspan_schema", attributes["headspan_schema"], "is not known", "this program reads 1.x")


def plain(value):
    """Converts an HDF5 attribute to a Python value."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if isinstance(value, np.generic) else value


def one_line(error):
    """Returns the message of a library's exception on one line."""
    return " ".join(str(error).split()) or type(error).__name__
