#!/usr/bin/env python3
"""Measures aggregate and report on made-up results for all checkpoints of OLMo-2-1B: time, memory, and size of the
page. Not a test of ctest: it writes a gigabyte and takes a few minutes.

    python3 full_size.py FOLDER [CHECKPOINTS]        FOLDER gets results/, kept for the next call

Prints one line for each limit, and exits with 1 if one is exceeded.
"""
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from browser import Page
from samples import ANALYSIS, layers, make_stream, write_result

LAYER = layers(*[16] * 16)
REFERENCES, HEAD_SIZE, HIDDEN, LATENT = 5, 128, 2048, 12
LIMITS = {"aggregate": (60, 1 << 30), "report": (120, 1 << 30)}  # seconds, bytes of memory
LARGEST_PAGE = 25_000_000
SLOWEST_PAGE = 2  # seconds


def evolving_r2(checkpoints, seed):
    """Yields R² [target, source] of heads whose latent directions drift, strongly at first and less and less later."""
    random = np.random.default_rng(seed)
    heads = random.normal(size=(len(LAYER), LATENT))
    for i in range(checkpoints):
        heads += random.normal(size=heads.shape) / (1 + i) ** 0.7
        unit = heads / np.linalg.norm(heads, axis=1, keepdims=True)
        yield np.clip((unit @ unit.T) ** 2 + random.normal(0, 0.005, (len(LAYER),) * 2), 0, 1)


def fast_stream(r2):
    """make_stream without its loops: references by sorting, their joint R² by a formula."""
    stream = make_stream(layers(1), [[np.nan]], REFERENCES, HEAD_SIZE, HIDDEN, 22500, 7500)
    np.fill_diagonal(r2, np.nan)
    causal = (LAYER[None, :] <= LAYER[:, None]) & ~np.eye(len(LAYER), dtype=bool)
    order = np.argsort(np.where(causal, -r2, np.inf), axis=1, kind="stable")[:, :REFERENCES]
    best = np.take_along_axis(r2, order, axis=1)
    joint = 1 - np.cumprod(1 - best * 0.6 ** np.arange(REFERENCES), axis=1)
    heads, head = np.arange(len(LAYER)), np.tile(np.arange(16), 16)
    tables = {"r2": r2, "r2_weighted": r2, "r2_heldout": r2 - 0.003, "effective_rank": 20 + 40 * best[:, 0],
              "effective_rank_layer": np.full(16, 200.0), "rank": np.full(len(LAYER), HEAD_SIZE),
              "status": np.where(np.eye(len(LAYER), dtype=bool), 16, 0).astype(np.uint8)}
    for rule in ("pairwise", "forward"):
        tables |= {f"references_{rule}": order.astype(np.int32), f"r2_{rule}": joint,
                   f"r2_{rule}_heldout": joint - 0.01, f"status_{rule}": np.zeros(joint.shape, np.uint8)}
    for axis in ("target", "source"):
        tables |= {axis: heads, f"{axis}_layer": LAYER, f"{axis}_head": head}
    return {"attributes": stream["attributes"], "tables": tables}


def make_results(folder, checkpoints):
    if len(list(folder.rglob("*.done"))) == checkpoints:
        return
    generators = {name: evolving_r2(checkpoints, seed) for seed, name in enumerate("kqv")}
    for i in range(checkpoints):
        step = 0 if i == 0 else 300 if i == 1 else (i - 1) * 10000
        write_result(folder, f"step{step}", {name: fast_stream(next(r2)) for name, r2 in generators.items()}, step=step,
                     model_name="made-up", validation_loss=2 + 9 / (1 + i))


def measured(*words):
    """Runs headspan-report. Returns seconds and peak bytes of memory."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-B", "-m", "headspan_report", *map(str, words)], cwd=ANALYSIS,
                               stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"headspan-report {words[0]} failed")
    return time.monotonic() - start, usage.ru_maxrss * 1024


def main():
    folder = Path(sys.argv[1]).resolve()
    checkpoints = int(sys.argv[2]) if len(sys.argv) > 2 else 195
    make_results(folder / "results", checkpoints)
    page = folder / "report.html"
    failed = False
    for command, output in (("aggregate", folder / "emergence"), ("report", page)):
        seconds, memory = measured(command, folder / "results", "--output", output)
        limit = LIMITS[command]
        met = seconds <= limit[0] and memory <= limit[1]
        failed |= not met
        print(f"{command}: {seconds:.1f} s of {limit[0]}, {memory / 1e6:.0f} MB of {limit[1] / 1e6:.0f}, met {met}")
    size = page.stat().st_size
    print(f"page: {size / 1e6:.2f} MB of {LARGEST_PAGE / 1e6:.0f}, met {size <= LARGEST_PAGE}")
    with Page() as browser:
        seconds = min(browser.open(page) for _ in range(3))  # the page's time, not that of other processes
        moved = browser.evaluate("""(async () => { const start = performance.now();
            slider.value = 7; slider.dispatchEvent(new Event("input")); await draw();
            return (performance.now() - start) / 1000; })()""")
        complaints = browser.complaints()
    print(f"page: {seconds:.2f} s of {SLOWEST_PAGE} until its map is there, {moved:.3f} s for another checkpoint, met "
          f"{seconds <= SLOWEST_PAGE}; complaints: {complaints}")
    return failed or size > LARGEST_PAGE or seconds > SLOWEST_PAGE or bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
