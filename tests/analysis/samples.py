"""Writes result files in headspan's format (src/io/README.md) with numbers that the test chooses. Not a second writer
of results: it writes only what a reader needs, with h5py, without dimension scales."""
import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

ANALYSIS = Path(__file__).resolve().parents[2] / "analysis"
sys.path.insert(0, str(ANALYSIS))

FLAG_NOT_COMPUTED = 16


def layers(*heads):
    """Returns the layer of each head, for these numbers of heads in layers 0, 1, ..."""
    return np.repeat(np.arange(len(heads)), heads)


def random_stream(layer, seed, references=2, head_size=4, hidden_size=32, n_fit=1000, n_heldout=300, **more):
    """Returns a stream as a dict: attributes in lower case, tables by name. R² is uniform in [0, 1], held-out R² 0.01
    lower."""
    random = np.random.default_rng(seed)
    heads = len(layer)
    r2 = random.random((heads, heads))
    return make_stream(layer, r2, references, head_size, hidden_size, n_fit, n_heldout, **more)


def make_stream(layer, r2, references=2, head_size=4, hidden_size=32, n_fit=1000, n_heldout=300, **more):
    """Chooses the best causal sources as references with a plain loop; the joint R² of k of them is 1 - (1-best)^k."""
    heads = len(layer)
    r2 = np.array(r2, float)
    np.fill_diagonal(r2, np.nan)
    chosen = np.full((heads, references), -1)
    joint = np.full((heads, references), np.nan)
    for t in range(heads):
        sources = [s for s in range(heads) if s != t and layer[s] <= layer[t] and not np.isnan(r2[t, s])]
        sources.sort(key=lambda s: (-r2[t, s], s))
        chosen[t, :len(sources[:references])] = sources[:references]
        for k in range(len(sources[:references])):
            joint[t, k] = 1 - (1 - r2[t, sources[0]]) ** (k + 1)
    status = np.where(np.eye(heads, dtype=bool), FLAG_NOT_COMPUTED, 0).astype(np.uint8)
    tables = {"r2": r2, "r2_weighted": r2, "status": status, "effective_rank": np.full(heads, head_size / 2),
              "effective_rank_layer": np.full(len(set(layer)), 3.0), "rank": np.full(heads, head_size)}
    for rule in ("pairwise", "forward"):
        tables |= {f"references_{rule}": chosen, f"r2_{rule}": joint,
                   f"status_{rule}": np.zeros(joint.shape, np.uint8)}
    if n_heldout:
        tables |= {"r2_heldout": r2 - 0.01, "r2_pairwise_heldout": joint - 0.01, "r2_forward_heldout": joint - 0.01}
    head = np.concatenate([np.arange(count) for count in np.bincount(layer)])
    for axis in ("target", "source"):
        tables |= {axis: np.arange(heads), f"{axis}_layer": layer, f"{axis}_head": head}
    attributes = {"n_fit": n_fit, "n_heldout": n_heldout, "head_size": head_size, "hidden_size": hidden_size,
                  "capture": "roped", "precision": "float64", "references": references, "pool": 16, "skip_first": 0}
    return {"attributes": attributes, "tables": tables | more}


def make_overlap(projections, dimension, alignment, tolerances=("paper", "1e-2"), effective=("raw", "effective")):
    """dimension: [projection, effective, tolerance, layer]; alignment: [projection, layer, head, head]."""
    return {"projection": projections, "effective": effective, "tolerance": tolerances,
            "layer": np.arange(np.shape(dimension)[-1]), "overlap_dimension": dimension, "alignment": alignment}


def make_similarity(layer, level):
    """Returns tables of similarity in which every pair and every two layers have this level."""
    heads, count = len(layer), len(set(layer))
    return {**dict.fromkeys(("cka", "cca", "procrustes"), np.where(np.eye(heads, dtype=bool), np.nan, level)),
            "cka_layer": np.where(np.eye(count, dtype=bool), 1, level)}


def make_scores(layer, values, uniform=(.01, .02, .03, .04, 5.)):
    """values: [induction, duplicate_token, previous_token, first_token, entropy; query heads]."""
    return {"layer": layer, "values": values, "uniform": uniform}


def make_cross(stream, own, other, r2, layer, heldout=.01):
    """Returns the groups of a stream and a reference's. own, other: the layer of each head; r2: [reference's head, head]; layer:
    [reference's head], from a whole layer; heldout: how much lower held-out R² is, 0 without."""
    head = {name: np.concatenate([np.arange(count) for count in np.bincount(of)]) for name, of in (("own", own), ("other", other))}
    places = [{"target_layer": target[0], "target_head": target[1], "source_layer": source[0], "source_head": source[1]}
              for target, source in (((other, head["other"]), (own, head["own"])), ((own, head["own"]), (other, head["other"])))]
    tables = {"r2": r2, "r2_layer": layer, "cka": r2 / 2}, {"r2": r2.T, "r2_layer": np.resize(layer, len(own)), "cka": r2.T / 2}
    if heldout:
        for each in tables:
            each |= {"r2_heldout": each["r2"] - heldout, "r2_layer_heldout": each["r2_layer"] - heldout}
    return {f"{stream}-reference": places[0] | tables[0], f"reference-{stream}": places[1] | tables[1]}


def write_result(folder, checkpoint, streams, step=0, overlap=None, split=(1, 0, 0), scores=None, cross=None,
                 **attributes):
    """Writes folder/MODEL/CHECKPOINT.h5 and its .done. streams: name -> stream; cross: name of a group -> tables.
    Returns the path."""
    attributes = {"headspan_schema": "1.0", "title": "a sample", "source": "headspan 0.1.0 (git sample)",
                  "date_created": "2026-01-02T03:04:05Z", "model_name": "tiny", "model_type": "olmo2",
                  "checkpoint": checkpoint, "init": "pretrained", "step": step, "training_tokens": step * 4096,
                  "tokens_path": "docs.bin", "tokens_sha256": "aa", "job": "[model]\npath = here\n",
                  "mode": "corrected", "versions": "GCC 12", "git": "sample"} | attributes
    path = Path(folder) / attributes["model_name"] / f"{checkpoint}.h5"
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs.update(attributes)
        for name, stream in streams.items():
            group = file.create_group(name)
            group.attrs.update(stream["attributes"])
            for table, values in stream["tables"].items():
                group[table] = values
        for name, tables in (cross or {}).items():
            for table, values in tables.items():
                file[f"cross/{name}/{table}"] = values
            file[f"cross/{name}"].attrs["head_size"] = 4
        if split is not None:
            file["tokens/heldout"] = np.array(split, np.uint8)
            file["tokens/start"], file["tokens/length"] = np.arange(len(split)) * 9, np.full(len(split), 9)
        for name, values in (overlap or {}).items():
            file[f"overlap/{name}"] = values
        if scores:
            file["attention/layer"] = scores["layer"]
            for name, values, uniform in zip(("induction", "duplicate_token", "previous_token", "first_token", "entropy"),
                                             scores["values"], scores["uniform"]):
                file[f"attention/{name}"] = values
                file[f"attention/{name}"].attrs["uniform"] = uniform
    write_done(path)
    return path


def write_done(path):
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    Path(f"{path}.done").write_text(f"size {path.stat().st_size}\nsha256 {sha256}\njob_id sample\njob_digest 00\n")


def lead_away(file, name, other):
    """Puts values that are stored elsewhere into an open HDF5 file, one kind after the other; `other`: a path that
    stands for another file of any kind. Yields the expected message about `name` each time."""
    def put(make):
        if file.get(name, getlink=True) is not None:
            del file[name]
        make()

    virtual = h5py.VirtualLayout((4,), "f8")
    virtual[:] = h5py.VirtualSource(str(other), "x", shape=(4,))
    elsewhere, unwritten = "is stored in other files", "has values that the file does not hold"
    for told, make in (
            ("is a link to another file", lambda: file.update({name: h5py.ExternalLink(str(other), "/x")})),
            ("is a link to nothing", lambda: file.update({name: h5py.SoftLink("/nowhere")})),
            (elsewhere, lambda: file.create_dataset(name, (4,), "f8", external=[(str(other), 0, 32)])),
            (elsewhere, lambda: file.create_virtual_dataset(name, virtual)),
            (unwritten, lambda: file.create_dataset(name, (4,), "f8")),
            (unwritten, lambda: file.create_dataset(name, (4,), "f8", chunks=(2,)).__setitem__(slice(2), 1))):
        put(make)
        yield f"{name}: {told}"


@contextlib.contextmanager
def within(seconds):
    """Fails the test if the body takes longer: opening a FIFO would wait for ever."""
    def stop(*_):
        raise AssertionError(f"not done in {seconds} s")
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def replace_by_fifo(path):
    path.unlink()
    os.mkfifo(path)


def files_below(folder):
    """Returns path -> content of the regular files below a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def check_nothing_is_replaced(test, folder, told, *words):
    """Checks that headspan-report refuses these arguments in one line, and leaves the folder unchanged."""
    before = files_below(folder)
    with within(60):
        done = run(*words)
    test.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
    test.assertEqual(done.stderr, f"headspan-report: --output = {told}; choose another place\n")
    test.assertEqual(files_below(folder), before)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*words):
    """Runs headspan-report in this process; an exception that escapes it is an error of the test."""
    from headspan_report.__main__ import main
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
    return Done(code, out.getvalue(), err.getvalue())


def run_process(*words):
    """Runs headspan-report from the source tree, as a user does."""
    return subprocess.run([sys.executable, "-B", "-m", "headspan_report", *map(str, words)], capture_output=True,
                          text=True, timeout=60, cwd=ANALYSIS, check=False)
