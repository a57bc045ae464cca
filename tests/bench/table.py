#!/usr/bin/env python3
"""The tables of run.sh, in Markdown, from the lines that headspan-bench and peers.py print for programs, each
with run= and round= before it: what the machine can do, and every figure that has a limit or a peer, which
share of the machine it uses, and what is required of it. A ratio says how good headspan is against the
other, more is better; it is the median over the rounds, and only figures of the same round are compared.
Exit code 0 when every requirement is met. A row whose limit or peer cannot use the processor's AVX-512 is
handicapped: it does not count as met.

  table.py LINES [--limits-handicapped] [--peers-handicapped]
"""
import argparse
import collections
import math
import shlex
import statistics
import sys

RUNS = ("1 core", "2 threads", "2 ranks")
PEER_OF_RUN = {"1 core": "1 core", "2 threads": "2 threads", "2 ranks": "2 threads"}

STUDY = "Gram, all pairs and top-5"
# A figure of headspan-bench, the beginning of its name is enough; its precision; the peer, its figure and
# precision; the least ratio.
PEERS = (
    (STUDY, "float64", "numpy", STUDY, "float64", 1.02),
    (STUDY, "float32", "numpy", STUDY, "float64", 1.8),
    (STUDY, "float32", "numpy", STUDY, "float32", 1.02),
    (STUDY, "float64", "paper", "least squares for all pairs", "float32", None),
    ("forward selection", "float64", "selection", "forward selection", "float64", 5.0),
    ("eigenvalues of a layer's W^T W", "float64", "spectra", "eigenvalues of a layer's W^T W", "float64", 1.0),
    ("singular values of a layer", "float64", "spectra", "singular values of a layer", "float64", None),
    ("capture of K, Q and V", "float32", "transformers", "trunk, K and V kept", "float32", 1.1),
    ("forward to logits", "float32", "transformers", "forward to logits", "float32", 1.15),
    *((f"{figure}, context 512, batch {batch}", "float32", "decode", f"{figure}, context 512, batch {batch}", "float32",
       required) for figure, batch, required in
      (("prefill", 1, 1.0), ("prefill", 8, 1.0), ("decode", 1, 2.0), ("decode", 8, 1.2))),
)

Row = collections.namedtuple("Row", "figure run value other ratio required share blas", defaults=("-", None))

# Figures of headspan-bench whose limit is a call of BLAS or LAPACK, and peers that multiply with OpenBLAS.
BLAS_LIMITS = ("gram", "overlap", "eigenvalues", "singular")
BLAS_PEERS = ("numpy", "selection", "paper", "spectra")

# Figures that are compared with their peer on one core only, or with two threads only.
ONE_CORE = ("eigenvalues", "singular")
TWO_THREADS = ("prefill", "decode")


def read_lines(path):
    """The figures of a file, each a dict of its fields; numbers are numbers."""
    figures = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            fields: dict = dict(field.split("=", 1) for field in shlex.split(line))
            for name in ("value", "limit", "ratio", "required", "rate"):
                if name in fields:
                    fields[name] = float(fields[name])
            figures.append(fields)
    return figures


def median(figures, field):
    return statistics.median(figure[field] for figure in figures)


def with_unit(value, unit):
    return f"{value:.4g} {unit}"


def with_shape(name, figure):
    if figure["bench"] == "load":
        return name
    return name + "; {layers} x {heads} heads of {head_size}, {tokens} tokens".format(**figure)


def machine_limits(figures):
    """What the machine can do, by resource and run, with its unit."""
    return {(f["resource"], f["run"]): f for f in figures if f["bench"] == "machine"}


def share_of(machine, figures, run):
    """The share of what bounds these figures of a run."""
    resource = figures[0].get("resource", "none")
    if (resource, run) not in machine:
        return "-"
    return f"{100 * median(figures, 'rate') / machine[resource, run]['value']:.0f} % {resource}"


def print_machine(machine):
    names = {resource: figure["figure"] for (resource, _), figure in machine.items()}
    print("| the machine | " + " | ".join(RUNS) + " |")
    print("| --- |" + " --- |" * len(RUNS))
    for resource, name in names.items():
        cells = [f"{name} (`{resource}`)"]
        for run in RUNS:
            figure = machine.get((resource, run))
            cells.append(with_unit(figure["value"], figure["unit"]) if figure else "-")
        print(f"| {' | '.join(cells)} |")
    print()


def limit_rows(figures, machine):
    """A row for each figure and run with a limit in its own process."""
    groups = collections.defaultdict(list)
    for figure in figures:
        if not math.isnan(figure.get("limit", math.nan)):
            groups[with_shape(figure["figure"], figure), figure["run"]].append(figure)
    for (name, run), group in groups.items():
        unit, required = group[0]["unit"], group[0]["required"]
        yield Row(name, run, with_unit(median(group, "value"), unit), with_unit(median(group, "limit"), unit),
                  median(group, "ratio"), None if math.isnan(required) else required, share_of(machine, group, run),
                  "limit" if group[0]["bench"] in BLAS_LIMITS else None)


def pick(figures, run, name, precision, benches):
    """By round: the figure of this name in a run."""
    return {f["round"]: f for f in figures if f["run"] == run and f["figure"].startswith(name)
            and f["precision"] == precision and f["bench"] in benches}


def peer_row(figures, machine, run, comparison):
    name, precision, peer, peer_name, peer_precision, required = comparison
    ours = pick(figures, run, name, precision, ("study", "forward", "cache", *ONE_CORE))
    theirs = pick(figures, PEER_OF_RUN[run], peer_name, peer_precision, (peer,))
    rounds = sorted(ours.keys() & theirs.keys())
    label, other = f"{name}, {precision}", f"{peer}, {peer_precision}"
    if not rounds:
        return Row(label, run, "not measured", other, math.nan, required)
    mine, others = [ours[r] for r in rounds], [theirs[r] for r in rounds]
    unit = mine[0]["unit"]
    ratios = [a["value"] / b["value"] for a, b in zip(mine, others)]
    ratio = statistics.median(ratios if unit == "tokens/s" else [1 / r for r in ratios])
    other += f", {others[0]['figure']}: {with_unit(median(others, 'value'), unit)}"
    value = with_unit(median(mine, "value"), unit)
    return Row(with_shape(label, mine[0]), run, value, other, ratio, required, share_of(machine, mine, run),
               "peer" if peer in BLAS_PEERS else None)


def runs_of(figure, figures):
    """None for caches where they were left out."""
    if figure.startswith(ONE_CORE):
        return ("1 core",)
    if figure.startswith(TWO_THREADS):
        return ("2 threads",) if any(f["bench"] == "cache" for f in figures) else ()
    return RUNS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines")
    parser.add_argument("--limits-handicapped", action="store_true")
    parser.add_argument("--peers-handicapped", action="store_true")
    options = parser.parse_args()
    handicapped = {"limit": options.limits_handicapped, "peer": options.peers_handicapped}
    figures = read_lines(options.lines)
    machine = machine_limits(figures)
    print_machine(machine)
    print("| figure | on | headspan | of the machine | limit or peer | ratio | required | met |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    missed = not_met = 0
    rows = list(limit_rows(figures, machine))
    rows += [peer_row(figures, machine, run, comparison)
             for comparison in PEERS for run in runs_of(comparison[0], figures)]
    for row in rows:
        required, met = "-", "-"
        if row.required is not None:
            required, met = f"{row.required:.3g}", "yes" if row.ratio >= row.required else "**no**"
            if met == "yes" and handicapped.get(row.blas):
                met = "handicapped"
        missed += met == "**no**"
        not_met += met == "handicapped"
        cells = (row.figure, row.run, row.value, row.share, row.other, f"{row.ratio:.3g}", required, met)
        print(f"| {' | '.join(cells)} |")
    if missed or not_met:
        print(f"\n{missed} missed, {not_met} against handicapped BLAS")
    else:
        print("\neverything required is met")
    sys.exit(missed + not_met > 0)


if __name__ == "__main__":
    main()
