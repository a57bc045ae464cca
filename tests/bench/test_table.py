#!/usr/bin/env python3
"""Checks the tables of table.py on figures that are made up: test_table.py"""
import os
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table.py")
SHAPE = "layers=8 heads=12 head_size=32 tokens=30000 sequence_length=256 repeats=1"


def line(run, round_, bench, figure, fields):
    return f'run="{run}" round={round_} bench={bench} figure="{figure}" {fields} {SHAPE}\n'


def table(lines, *options):
    """The exit code, what is printed, and by figure and run the cells of the first row."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(lines)
        file.flush()
        done = subprocess.run([sys.executable, "-B", TABLE, file.name, *options], capture_output=True, text=True, check=False)
    rows = {}
    for text in done.stdout.splitlines():
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if len(cells) == 8:
            rows.setdefault((cells[0].split(";")[0], cells[1]), cells)
    return done.returncode, done.stdout, rows


def main():
    machine = [line("1 core", 1, "machine", "fused products and sums in FP64",
                    "unit=GF/s value=200 limit=nan ratio=nan required=nan resource=fp64 rate=200 precision=float64")]
    gram = [line("1 core", round_, "gram", "Gram, float64, against bare dsyrk",
                 f"unit=GF/s value={value} limit=100 ratio={value / 100} required=0.97 resource=fp64 rate={value} "
                 "precision=float64")
            for round_, value in ((1, 90), (2, 98), (3, 120))]

    code, text, rows = table(machine + gram)
    assert "| fused products and sums in FP64 (`fp64`) | 200 GF/s | - | - |" in text, text
    row = rows["Gram, float64, against bare dsyrk", "1 core"]
    assert row[2:] == ["98 GF/s", "49 % fp64", "100 GF/s", "0.98", "0.97", "yes"], row  # medians of the rounds
    # What was not measured is missed: all peers.
    assert code == 1 and "not measured" in text and "**no**" in text, text

    code, text, rows = table(machine + gram, "--limits-handicapped")
    assert rows["Gram, float64, against bare dsyrk", "1 core"][-1] == "handicapped", text

    study = [line(run, 1, bench, "Gram, all pairs and top-5",
                  f"unit=s value={value} resource=none rate=0 precision=float64")
             for run, bench, value in (("2 ranks", "study", 4), ("2 threads", "study", 5), ("2 threads", "numpy", 6))]
    rows = table(study)[2]
    # Two ranks are compared with the peer's two threads; less time is better.
    assert rows["Gram, all pairs and top-5, float64", "2 ranks"][5:] == ["1.5", "1.02", "yes"], rows
    assert rows["Gram, all pairs and top-5, float64", "2 threads"][5:] == ["1.2", "1.02", "yes"], rows
    print("passed")


if __name__ == "__main__":
    main()
