"""Reads tab-separated tables with a header: a manifest's names, the losses of a training log."""
import csv
from pathlib import Path

from headspan.error import InputError

NAMES = ("name", "checkpoint", "step")
LOSSES = ("validation_loss", "loss")


def read_rows(path):
    """Returns the rows as dicts, with every cell stripped."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", restkey="", restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(path, "", "", f"cannot be read ({error})",
                         "give a tab-separated table with a header") from error
    if not rows:
        raise InputError(path, "", "", "has no rows", "give a tab-separated table with a header")
    return [{str(key).strip(): str(value).strip() for key, value in row.items()} for row in rows]


def column(path, rows, names):
    """Returns the first of the names that is a column."""
    for name in names:
        if name in rows[0]:
            return name
    raise InputError(path, "header", " ".join(rows[0]), "lacks a column", "one of: " + " ".join(names))


def read_names(path):
    """Returns the names of the checkpoints of a manifest."""
    rows = read_rows(path)
    return [row[column(path, rows, NAMES[:1])] for row in rows]


def read_losses(path):
    """Returns the loss of each checkpoint, by its name (str) or its step (int), depending on the column."""
    rows = read_rows(Path(path))
    key, loss = column(path, rows, NAMES), column(path, rows, LOSSES)
    losses = {}
    for row in rows:
        if not row[loss]:
            continue
        try:
            losses[int(row[key]) if key == "step" else row[key]] = float(row[loss])
        except ValueError:
            raise InputError(path, loss, row[loss], f"is no number, or {key} = {row[key]} is none",
                             "a loss in nats per token") from None
    return losses
