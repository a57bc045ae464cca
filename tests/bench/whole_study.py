"""Makes a table from the lines that whole_study.sh gathers.

usage: whole_study.py LINES
"""
import re
import statistics
import sys
from collections import defaultdict

REQUIRED = {"float64": 1.5, "auto": 1.5, "float32": 2.5, "bfloat16": 3.0}


def main():
    seconds = defaultdict(lambda: defaultdict(list))  # of (model, run): {phase: [round]}
    furthest = {}
    for line in open(sys.argv[1], encoding="utf8"):
        model, run = re.match(r"model=(\S+) run=(\S+)", line).groups()
        if run == "peer":
            figure = re.search(r'figure="([^"]+)"', line)[1]
            seconds[model, run][figure].append(float(re.search(r"value=(\S+)", line)[1]))
        elif "furthest=" in line:
            furthest[model, run] = re.search("furthest=.*", line)[0]
        else:
            for phase, value in re.findall(r"(\w+)=([\d.]+)(?= |$)", line):
                seconds[model, run][phase].append(float(value))

    print("| model | products | headspan | transformers and numpy | ratio | required | met | R2 against float64 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    missed = 0
    for (model, run), phases in seconds.items():
        if run == "peer":
            continue
        totals = [sum(values) for values in zip(*phases.values())]
        peers = seconds[model, "peer"]["whole study of K, Q and V"]
        ratio = statistics.median(peer / own for peer, own in zip(peers, totals))
        missed += ratio < REQUIRED[run]
        print(f"| {model} | {run} | {statistics.median(totals):.1f} s | {statistics.median(peers):.1f} s | {ratio:.2f} | "
              f"{REQUIRED[run]} | {'yes' if ratio >= REQUIRED[run] else '**no**'} | {furthest.get((model, run), '-')} |")
    print("\nWhere the time goes, seconds (share):\n")
    for (model, run), phases in seconds.items():
        medians = {phase: statistics.median(values) for phase, values in phases.items()}
        if run == "peer":
            print(f"* {model}, transformers and numpy: " +
                  ", ".join(f"{figure} {value:.3g}" for figure, value in medians.items()))
        else:
            print(f"* {model}, {run}: " + ", ".join(f"{phase} {value:.2f} ({value / sum(medians.values()):.1%})"
                                                     for phase, value in medians.items()))
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
