"""Reads what `headspan calibrate` and `headspan evaluate` leave in a folder: plans (NAME.h5) and summaries (NAME.json),
which form a run if they have the same name, and summaries of archives, which need no plan. Checks and pairs them; draws
and judges nothing."""
from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headspan.error import InputError
from headspan.opening import check_complete, check_schema, one_line, open_checked, open_regular, plain

UNCALIBRATED = ("quantise", "hadamard", "rotated-q4", "rotated-q8", "kivi")
ALGORITHMS = ("latent", "headspan", "paper-text", "paper-code", "oscar", *UNCALIBRATED)
ARCHIVES = {"headspan": "archive", "kvtc": "KVTC"}
STREAMS = {"k,v": "keys and values", "k": "keys alone", "v": "values alone"}
REQUIRED = ("title", "algorithm", "scope", "streams", "stored", "stored_asked", "bits", "model_type",
            "config_sha256", "layers", "kv_heads", "head_size", "bytes_full", "bytes_stored", "bytes_read",
            "tokens_path")
IDENTITY = ("title", "model_type", "config_sha256", "layers", "kv_heads", "head_size")  # the title has the model's path
TITLE = "Compression of the KV cache of "
VALUES = ("loss", "full_loss", "dloss", "perplexity", "kl")
ERRORS = ("loss_se", "dloss_se", "kl_se")
NO_PLAN = "this is no plan of headspan calibrate, or an older one: calibrate again"


@dataclass
class Layer:
    """One stream of one layer: its bands, and for head plans which heads are kept (otherwise None)."""
    columns: np.ndarray  # [bands]
    bits: np.ndarray  # [bands], 16: as it is
    kept: np.ndarray | None
    group: int = 1  # tokens that are quantised together
    coding: str = "symmetric"  # what codes mean
    expected_loss: float = math.nan


@dataclass
class Plan:
    path: Path
    attributes: dict
    stored_by: dict = field(repr=False)  # stream -> [Layer], layer by layer

    def __getattr__(self, name):
        """Makes the attributes of the file available, as in plan.stored."""
        try:
            return self.attributes[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def identity(self):
        return tuple(str(self.attributes[name]) for name in IDENTITY)

    @property
    def model(self):
        """Path of the checkpoint folder, as it was given to calibrate."""
        return str(self.title).removeprefix(TITLE)

    @property
    def method(self):
        """What the page calls the algorithm."""
        bits = str(self.bits)
        if self.algorithm == "quantise":
            return f"int{bits}"
        if self.algorithm == "hadamard":
            return f"Hadamard, {self.bits_of_all} bits"
        if self.algorithm in ("kivi", "oscar"):
            return f"{self.algorithm.upper()}, {self.bits_of_all} bits"
        if self.algorithm in UNCALIBRATED:
            return f"Hadamard, {self.algorithm.removeprefix('rotated-')}_0"
        if self.algorithm == "latent":
            return {"auto": "latent", "16": "latent, whole columns"}.get(bits, f"latent, bits {bits}")
        return f"headspan, {self.scope}" if self.algorithm == "headspan" else str(self.algorithm)

    @property
    def bits_of_all(self):
        """The bits of every number, where all have the same."""
        bits, = {int(b) for stream in self.stored_by.values() for layer in stream for b in layer.bits}
        return bits

    @property
    def sixteen_bits(self):
        """Whether all numbers are stored as they were."""
        return all(np.all(layer.bits == 16) for stream in self.stored_by.values() for layer in stream)

    @property
    def keeps_heads(self):
        """Whether some heads are kept whole and the others are predicted from them."""
        return next(iter(self.stored_by.values()))[0].kept is not None

    @property
    def calibration(self):
        """The domain of the calibration, "" if there was none."""
        return "" if self.algorithm in UNCALIBRATED else domain_of(Path(str(self.tokens_path)).stem)


@dataclass(frozen=True)
class Archive:
    """What stands in the place of a plan where keys and values went through a codec: its bits a number are its share."""
    algorithm: str
    stored: float
    streams = "k,v"
    calibration = ""

    @property
    def method(self):
        return ARCHIVES[self.algorithm]


@dataclass
class Evaluated:
    """A plan, or an archive, and its evaluation."""
    plan: Plan | Archive
    summary: dict = field(repr=False)

    @property
    def texts(self):
        return self.summary["texts"]

    @property
    def mode(self):
        """What was kept as it was beside the first tokens, "" for nothing."""
        recent = self.summary.get("exact_recent", 0)
        return ", ".join([f"last {recent} exact"] * (recent > 0) + ["exact prefill"] * (self.summary.get("prefill") == "exact"))

    @property
    def method(self):
        """What the page calls this way to compress."""
        return f"{self.plan.method}, {self.mode}" if self.mode else self.plan.method

    def kl(self, text):
        """Returns (KL, its standard error or None); None if this run was not evaluated on the text."""
        found = self.texts.get(text)
        return (found["kl"], found["kl_se"]) if found else None

    def own(self, text):
        """Returns whether the text belongs to the domain of the calibration."""
        return bool(self.plan.calibration) and domain_of(text) == self.plan.calibration


@dataclass
class Run(Evaluated):
    """A plan and its evaluation."""
    plan: Plan

    def share_at(self, tokens):
        """Returns the share of the bytes of a full cache that a sequence of so many tokens takes, with the tokens that are
        kept as they are: the first ones instead of what is stored; recent ones, and those of a group that waits for more
        (half a group on average), beside it."""
        stored, first = float(self.plan.stored), min(tokens, int(self.plan.attributes.get("exact_first", 0)))
        waiting = (max(layer.group for layers in self.plan.stored_by.values() for layer in layers) - 1) / 2
        beside = min(tokens, int(self.summary.get("exact_recent", 0)) + waiting)
        return ((tokens - first) * stored + first + beside) / tokens


def domain_of(stem):
    """Returns "docs" for docs.fit and docs.heldout."""
    return stem.removesuffix(".fit").removesuffix(".heldout")


def read_plan(path):
    """Returns the Plan at `path`. Raises InputError that names what is wrong with it."""
    path = Path(path)
    check_complete(path, "make the plan again with headspan calibrate")
    try:
        with open_checked(path) as file:
            attributes = {name: plain(value) for name, value in file.attrs.items()}
            check_schema(path, attributes, NO_PLAN)
            for name in REQUIRED:
                if name not in attributes:
                    raise InputError(path, name, "", "is missing", NO_PLAN)
            if attributes["algorithm"] not in ALGORITHMS:
                raise InputError(path, "algorithm", attributes["algorithm"], "is not known", " or ".join(ALGORITHMS))
            if attributes["streams"] not in STREAMS:
                raise InputError(path, "streams", attributes["streams"], "is not known", " or ".join(STREAMS))
            layers = {stream: [read_layer(file[stream][str(layer)]) for layer in range(int(attributes["layers"]))]
                      for stream in str(attributes["streams"]).split(",")}
    except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise InputError(path, "", "", f"cannot be read as a plan ({one_line(error)})", "calibrate again") from error
    return Plan(path, attributes, layers)


def read_layer(group):
    kept = np.asarray(group["kept"]) if "kept" in group else None
    return Layer(np.asarray(group.attrs["band_columns"]), np.asarray(group.attrs["band_bits"]), kept,
                 int(group.attrs.get("band_tokens", 1)), str(plain(group.attrs.get("band_coding", "symmetric"))),
                 float(group.attrs.get("expected_loss", math.nan)))


def read_summary(path):
    """Returns the JSON object of evaluate.summary. Raises InputError that names what is wrong with it."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            summary = json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(path, "", "", f"cannot be read as JSON ({error})", "evaluate again") from error
    archived = isinstance(summary, dict) and "archive" in summary
    of_plan = () if archived else (("bytes_per_token", dict), ("tokens_per_second", dict))
    if not isinstance(summary, dict) or not all(isinstance(summary.get(name), kind) for name, kind in (
            ("plan", str), ("cache", str), ("texts", dict), *of_plan)) or (archived and not is_archive(summary["archive"])):
        raise InputError(path, "", "", "is no summary of headspan evaluate with texts",
                         "give folders that jobs/compression.sh has filled")
    if not summary["texts"]:
        raise InputError(path, "texts", "{}", "has none", "evaluate with evaluate.texts")
    if summary["cache"] == "full":
        raise InputError(path, "cache", "full", "nothing was compressed", "evaluate.cache = compressed or simulated")
    for text, found in summary["texts"].items():
        for name in VALUES if has_no_errors(found) else VALUES + ERRORS:
            number = found.get(name) if isinstance(found, dict) else None
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
                raise InputError(path, f"texts.{text}.{name}", json.dumps(number), "is no finite number",
                                 "evaluate with evaluate.reference = true")
    return summary


def is_archive(found):
    """Returns whether a summary's `archive` says what this page shows of it."""
    return (isinstance(found, dict) and found.get("algorithm") in ARCHIVES and isinstance(found.get("bits"), (int, float))
            and found["bits"] > 0)


def has_no_errors(text):
    """Returns whether a text has no standard errors. They are over sequences: if only one has tokens to predict,
    evaluate writes null for all."""
    return isinstance(text, dict) and all(text.get(name, "") is None for name in ERRORS)


def read_folder(folder):
    """Returns (runs of the one model of the folder, InputErrors for what was left out)."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(folder, "", "", "is no folder", "give folders that jobs/compression.sh has filled")
    plans, refused = read_all(folder.glob("*.h5"), read_plan)
    summaries, wrong = read_all(folder.glob("*.json"), read_summary)
    refused += wrong
    summaries = {name: summary for name, summary in summaries.items() if "archive" not in summary}
    named = {error.file for error in refused}
    runs = []
    for name in sorted(plans.keys() | summaries.keys()):
        plan, summary = folder / f"{name}.h5", folder / f"{name}.json"
        if name in plans and name in summaries:
            if Path(summaries[name]["plan"]).name == plan.name:
                runs.append(Run(plans[name], summaries[name]))
            else:
                refused.append(InputError(summary, "plan", summaries[name]["plan"], "is another plan",
                                          f"evaluate {plan.name}"))
        elif name in plans and str(summary) not in named:
            refused.append(InputError(plan, "", "", "has no summary beside it", f"evaluate it into {summary.name}"))
        elif name in summaries and str(plan) not in named:
            refused.append(InputError(summary, "", "", "has no plan beside it", f"calibrate {plan.name}"))
    return one_model(runs, refused), refused


def read_archives(folders):
    """Returns the evaluated archives by the digest of their weights, those of the most bits first."""
    found = {}
    for folder in dict.fromkeys(map(Path, folders)):
        for summary in read_all(folder.glob("*.json"), read_summary)[0].values():
            if "archive" in summary:
                archive = Archive(summary["archive"]["algorithm"], summary["archive"]["bits"] / 16)
                found.setdefault(weights_of(summary), []).append(Evaluated(archive, summary))
    return {weights: sorted(runs, key=lambda run: -run.plan.stored) for weights, runs in found.items()}


def weights_of(summary):
    """Returns the digest of the weights that were evaluated, "" if the summary does not say."""
    return summary["weights"].get("digest", "") if isinstance(summary.get("weights"), dict) else ""


def files_of_folders(folders):
    """Returns the files that read_folders reads."""
    plans = [path for folder in folders for path in folder.glob("*.h5")]
    summaries = [path for folder in folders for path in folder.glob("*.json")]
    return [*plans, *(f"{path}.done" for path in plans), *summaries]


def read_all(paths, read):
    """Returns (name -> what was read, InputErrors)."""
    found, refused = {}, []
    for path in sorted(paths):
        try:
            found[path.stem] = read(path)
        except InputError as error:
            refused.append(error)
    return found, refused


def one_model(runs, refused):
    """Returns the runs of the model to which most plans belong (in case of a tie, the first); refuses the others."""
    if not runs:
        return []
    most, count = Counter(run.plan.identity for run in runs).most_common(1)[0]
    for run in runs:
        for name, own, common in zip(IDENTITY, run.plan.identity, most):
            if own != common:
                refused.append(InputError(run.plan.path, name, own, "is of another model than the page",
                                          f"{common} in {count} of {len(runs)} plans of the folder: one folder "
                                          "for each model"))
                break
    return [run for run in runs if run.plan.identity == most]


def read_folders(folders):
    """Returns ([runs of one model] in the order of the folders, InputErrors). Folders of one model are merged."""
    models, refused = {}, []
    for folder in dict.fromkeys(map(Path, folders)):
        runs, wrong = read_folder(folder)
        refused += wrong
        if runs:
            models.setdefault(runs[0].plan.identity, []).extend(runs)
    if not models:
        raise InputError("", "folders", " ".join(map(str, folders)), "hold no plan with its summary"
                         + "".join(f"; {error}" for error in refused[:3]), "fill them by jobs/compression.sh")
    return list(models.values()), refused
