"""The scripts of jobs/ that make many plans, on a small model: their files, and the page made from them.

usage: test_compression_jobs.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
from samples import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, TESTS, TINY_OLMO2, StudyTest, main

JOBS = TESTS.parent / "jobs"
MODEL, TOKENS = TINY_OLMO2 / "step1500", TINY_OLMO2 / "tokens"
HEADS = 2 * 6 * 16  # K and V of all layers
SMALL = ("--tokens.sequence_length=128", "--run.memory_gib=1")


def cells(row):
    return [html.unescape(cell) for cell in re.findall("<td[^>]*>(.*?)</td>", row)]


def bytes_read(plan, layers=6, heads=16, head_size=8):
    """Returns the bytes that a decode step reads per token: each layer reads its kept heads and those that its targets
    refer to, once each."""
    read = 0
    for group, layer in ((plan[stream][str(layer)], layer) for stream in "kv" for layer in range(layers)):
        read += len({layer * heads + head for head in group["kept"]} | set(group["references"][...].ravel()) - {-1})
    return 2 * head_size * read


class CompressionJobs(StudyTest):
    def script(self, name, *arguments, code=0, **environment):
        command = ["bash", str(JOBS / name), *map(str, arguments)]
        done = subprocess.run(command, env={**os.environ, "HEADSPAN": self.program, **environment}, capture_output=True,
                              text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return re.findall("^(?:== |compression: )(.*)", done.stderr, re.M)

    def table(self, name, *folders):
        """Returns the rows of a table of the page of these folders."""
        page = self.folder / f"{name}.html"
        done = run("compression", *folders, "--output", page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        body = re.search(f'<table class="{name}">.*?<tbody>(.*?)</tbody>', page.read_text(), re.S).group(1)
        return [cells(row) for row in re.findall("<tr>(.*?)</tr>", body, re.S)]

    def test_figure1_right_has_nine_budgets(self):
        out = self.folder / "figure1"
        arguments = (out, JOBS / "figure1-right-llama-3.1-8b.ini", f"--model.path={MODEL}", *SMALL,
                     f"--tokens.path={TOKENS / 'docs.fit.bin'}", "--tokens.dtype=uint16", "--tokens.limit=1500",
                     f"--evaluate.texts={TOKENS / 'docs.heldout.bin'}")
        made = self.script("figure1-right.sh", *arguments)
        self.assertEqual(len(made), 9)
        kl, read = [], []
        for tenths, name in zip(range(1, 10), made):
            with h5py.File(out / f"{name}.h5") as plan:
                predicted = sum(len(plan[s][layer]["targets"]) for s in "kv" for layer in plan[s])
                self.assertEqual(plan.attrs["algorithm"], b"paper-code")
                read.append(bytes_read(plan))
            self.assertAlmostEqual(predicted / HEADS, tenths / 10, delta=1 / 96)  # a whole head of each stream
            kl.append(json.loads((out / f"{name}.json").read_text())["texts"]["docs.heldout"]["kl"])
        self.assertLess(5 * kl[0], kl[4])
        self.assertLess(2 * kl[4], kl[8])
        full = 2 * 8 * HEADS
        self.assertEqual([row[7] for row in self.table("runs", out)], [f"{one} ({one / full:.3f})" for one in read])
        self.assertGreater(read[0], full)
        self.assertIn(f"reads {read[0]} bytes a token in place of {full}, {read[0] / full:.3f} times as many.",
                      (self.folder / "runs.html").read_text())
        (out / "stored-0.3.json").unlink()
        self.assertEqual(self.script("figure1-right.sh", *arguments), ["stored-0.3"])

    def test_each_calibration_on_each_text(self):
        out = self.folder / "transfer"
        fits = ",".join(str(TOKENS / f"{domain}.fit.bin") for domain in ("docs", "prose"))
        texts = [TOKENS / f"{domain}.heldout.bin" for domain in ("docs", "prose")]
        made = self.script("compression.sh", MODEL, fits, out, *texts, "--", *SMALL, METHODS="quantise-4 latent-0.2?",
                           FIT_TOKENS="1500", TEXT_TOKENS="700", EFFORT="quick")
        self.assertEqual(made, ["quantise-4", "latent-0.27-docs", "latent-0.27-prose"])
        kl = {}  # by domain of the calibration and of the text, as the page tells it
        for method, stored, fit, *found in self.table("domains", out):
            self.assertEqual((method, stored), ("latent", "0.270"))
            summary = json.loads((out / f"latent-0.27-{fit}.json").read_text())["texts"]
            for domain, cell in zip(("docs", "prose"), found):
                kl[fit, domain] = float(cell.split()[0])
                self.assertAlmostEqual(kl[fit, domain] / summary[f"{domain}.heldout"]["kl"], 1, 1)
        self.assertEqual(len(kl), 4)
        self.assertLess(kl["docs", "docs"], kl["prose", "docs"])
        self.assertLess(kl["prose", "prose"], kl["docs", "prose"])

    def test_a_budget_out_of_reach_stops_nothing_else(self):
        ids = np.random.default_rng(1).integers(0, 63, 1600)
        fit, text, out = self.write_tokens("few.fit.bin", ids), self.write_tokens("few.bin", ids[:400]), self.folder / "few"
        arguments = (GOLDEN / "olmo2_gqa", fit, out, text, "--", "--tokens.eos=63", "--tokens.sequence_length=40")
        made = self.script("compression.sh", *arguments, code=2, METHODS="*-0.27", SCOPE="layer")
        self.assertEqual(made.pop(), "refused: headspan-kv-0.27")
        self.assertEqual(made, ["latent-0.27", "paper-code-kv-0.27", "headspan-kv-0.27", "latent-whole-kv-0.27", "paper-text-kv-0.27"])
        self.assertEqual(sorted(path.stem for path in out.glob("*.json")), sorted(set(made) - {"headspan-kv-0.27"}))
        plan = out / "latent-0.27.h5"
        made = plan.stat().st_mtime_ns
        (out / "latent-0.27.json").unlink()
        self.assertEqual(self.script("compression.sh", *arguments, METHODS="*-0.27"), ["latent-0.27", "headspan-kv-0.27"])
        self.assertEqual(plan.stat().st_mtime_ns, made)

    def test_a_limit_of_tokens_behind_the_dashes_stands_for_both(self):
        for words in (("--tokens.limit", "600"), ("--tokens.limit=600",)):
            out = self.folder / f"limited-{len(words)}"
            made = self.script("compression.sh", MODEL, TOKENS / "docs.fit.bin", out, TOKENS / "docs.heldout.bin", "--", *SMALL,
                               *words, METHODS="latent-0.5")
            self.assertEqual(made, ["latent-0.5"])
            summary = json.loads((out / "latent-0.5.json").read_text())
            self.assertLess(590, summary["texts"]["docs.heldout"]["tokens"])
            self.assertLess(summary["texts"]["docs.heldout"]["tokens"], 600)  # the first of each sequence is not predicted
            with h5py.File(out / "latent-0.5.h5") as plan:
                self.assertIn("limit = 600", plan.attrs["job"].decode())

    def test_keys_that_the_script_gives(self):
        out = self.folder / "twice"
        arguments = (MODEL, TOKENS / "docs.fit.bin", out, TOKENS / "docs.heldout.bin", "--", *SMALL)
        for key, name in (("model.path", "quantise-8"), ("evaluate.summary", "quantise-8"), ("compress.bits", "quantise-8"),
                          ("compress.effort", "latent-0.5"), ("compress.streams", "paper-code-kv-0.5")):
            for words in ((f"--{key}", "1"), (f"--{key}=1",)):
                self.assertEqual(self.script("compression.sh", *arguments, *words, code=2), [
                    f"command line: --{key}: is given by this script for {name}; leave it out, or set METHODS, EFFORT "
                    "or SCOPE"])
        self.assertFalse(out.exists())

    def test_archives(self):
        """A codec serves all numbers of bits, and its curve is on the page beside the plans."""
        out = self.folder / "archives"
        arguments = (MODEL, TOKENS / "docs.fit.bin", out, TOKENS / "docs.heldout.bin", "--", *SMALL)
        more = {"METHODS": "quantise-4 archive-2 archive-1 kvtc-2", "FIT_TOKENS": "8000", "TEXT_TOKENS": "500"}
        made = self.script("compression.sh", *arguments, **more)
        self.assertEqual(made, ["quantise-4", "archive-2", "kvtc-2", "archive-1"])
        self.assertEqual(sorted(path.name for path in out.glob("*.codec")), ["archive.codec", "kvtc.codec"])
        found = {name: json.loads((out / f"{name}.json").read_text()) for name in made[1:]}
        for name, summary in found.items():
            bits = float(name.split("-")[1])
            self.assertAlmostEqual(summary["archive"]["bits"] / bits, 1, delta=0.15)
            self.assertEqual(summary["archive"]["algorithm"], {"archive": "headspan", "kvtc": "kvtc"}[name.split("-")[0]])
        kl = {name: summary["texts"]["docs.heldout"]["kl"] for name, summary in found.items()}
        self.assertLess(kl["archive-2"], kl["archive-1"])
        self.assertLess(kl["archive-2"], kl["kvtc-2"])
        self.assertEqual(self.script("compression.sh", *arguments, **more), [])
        self.assertEqual(self.script("compression.sh", *arguments, "--archive.bits", "3", code=2, METHODS="archive-*"), [
            "command line: --archive.bits: is given by this script for archive-4; leave it out, or set METHODS, EFFORT or SCOPE"])

    def test_the_effort_is_the_one_that_is_asked_for(self):
        for effort, units in (("quick", "residual"), ("auto", "measured")):
            out = self.folder / units
            made = self.script("compression.sh", MODEL, TOKENS / "docs.fit.bin", out, TOKENS / "docs.heldout.bin", "--", *SMALL,
                               METHODS="latent-0.27 headspan-kv-0.5 paper-text-kv-0.5", FIT_TOKENS="1500", TEXT_TOKENS="500",
                               **({"EFFORT": effort} if effort != "auto" else {}))
            self.assertEqual(len(made), 3)
            for name, expected in zip(("latent-0.27", "headspan-kv-0.5", "paper-text-kv-0.5"), (units, units, "residual")):
                with h5py.File(out / f"{name}.h5") as plan:
                    self.assertEqual(plan.attrs["units"].decode(), expected, name)


if __name__ == "__main__":
    main()
