"""Manifests: tab-separated tables with a header line and one checkpoint per row, as in src/io/README.md.

Checks only what fetching needs. A row is a dictionary from column to text.
"""
import os
import re
import tempfile

FILLED = ("commit", "bytes", "sha256")  # by fetching
REQUIRED = ("name", "path", "repository", "revision")


class InputError(Exception):
    """Bad input, reported in one line; exit code 2."""


def read(path):
    """Returns the columns and the rows of a manifest; adds columns that fetching fills."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise InputError(f"{path}: does not exist; a manifest is expected") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is no text file; a manifest is expected") from None
    lines = [decoded(path, number, line.removesuffix(b"\r")) for number, line in enumerate(lines, 1)]
    numbered = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line]
    columns = numbered[0][1] if numbered else []
    for column in REQUIRED:
        if columns.count(column) != 1:
            raise InputError(f"{path}: column = {column}: is not there once; "
                             f"one each of {' '.join(REQUIRED)} is expected")
    rows = [checked_row(path, number, columns, cells) for number, cells in numbered[1:]]
    names = [row["name"] for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: name = {name}: is given twice; names must differ")
    columns = columns + [column for column in FILLED if column not in columns]
    return columns, [{column: row.get(column, "") for column in columns} for row in rows]


def decoded(path, number, line):
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: line {number}: holds a byte that is no UTF-8") from None


def checked_row(path, number, columns, cells):
    """Returns one line as a row."""
    if len(cells) != len(columns):
        raise InputError(f"{path}: line {number}: has {len(cells)} fields; the header has {len(columns)}")
    row = dict(zip(columns, cells))
    for column in REQUIRED:
        if not row[column]:
            raise InputError(f"{path}: line {number} {column} = '': is empty; fetching needs it")
    for column, cell in row.items():
        if re.search(r"[\0-\x1f\x7f-\x9f]", cell):
            raise InputError(f"{path}: line {number} {column} = {cell!r}: holds a control character")
    if os.path.isabs(row["path"]) or ".." in row["path"].split("/"):
        raise InputError(f"{path}: line {number} path = {row['path']!r}: leads out of the folder of the manifest; "
                         "give a path below it, and the folder with --directory")
    return row


def write(path, columns, rows):
    replace_text(path, "".join("\t".join(cells) + "\n" for cells in [columns, *([row[c] for c in columns] for row in rows)]))


def replace_text(path, text):
    """Replaces the file as a whole: whenever this stops, readers see the old or the new one."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~process_umask()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=path.name + ".tmp.",
                                     delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, mode)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def process_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def fill(path, name, cells):
    """Writes cells of one row of a manifest as it is now."""
    columns, rows = read(path)
    for row in rows:
        if row["name"] == name:
            row.update(cells)
    write(path, columns, rows)


def copy(source, path):
    """Creates or updates `path`, a copy of the manifest `source` next to checkpoints in another folder. Filled cells
    are kept."""
    columns, rows = read(source)
    if path.exists():
        by_name = {row["name"]: row for row in rows}
        for old in read(path)[1]:
            new = by_name.get(old["name"])
            if new is None or any(old[column] != new[column] for column in REQUIRED):
                raise InputError(f"{path}: name = {old['name']}: is no such row of {source}; "
                                 "give each manifest a directory of its own")
            new.update({column: old[column] for column in FILLED if not new[column]})
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, columns, rows)
