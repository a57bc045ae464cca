"""Opens files that others wrote, by the rule of src/io/hdf5: only regular files, and of HDF5 only what the file itself
contains. No links to other files, no values stored in them, no values that were declared and never written."""
import math
import os
import stat

import h5py

from .error import InputError

LARGEST_RATIO = 1032  # the highest compression of deflate


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
