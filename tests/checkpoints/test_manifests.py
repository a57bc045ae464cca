"""The manifests of OLMo-2: every row follows the rule by which the revisions are named, known names follow from the
rule, the program accepts each file, and checkpoints/olmo2.py prints them. The manifests of the families that are in the
repository agree with the files beside them.

    test_manifests.py PROGRAM
"""
import csv
import hashlib
import itertools
import json
import re
import subprocess
import sys
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path

PROGRAM = sys.argv.pop(1)
CHECKPOINTS = Path(__file__).resolve().parents[2] / "checkpoints"
SHARED = ("name", "step", "tokens", "path", "repository", "revision")  # not filled by fetching

# folder -> repository, tokens of a step, last step of stage 1
MODELS = {
    "olmo-2-1b": ("allenai/OLMo-2-0425-1B", 2_097_152, 1_907_359),
    "olmo-2-1b-early": ("allenai/OLMo-2-0425-1B-early-training", 2_097_152, 37_000),
    "olmo-2-7b": ("allenai/OLMo-2-1124-7B", 4_194_304, 928_646),
    "olmo-2-13b": ("allenai/OLMo-2-1124-13B", 8_388_608, 596_057),
    "olmo-2-32b": ("allenai/OLMo-2-0325-32B", 8_388_608, 721_901),
}

# Families in the repository: folder -> model type, seeds, last step
TINY = {"tiny-olmo2": ("olmo2", [None], 3000), "tiny-pythia": ("gpt_neox", ["1", "2", "3"], 3000)}

# Step-tokens of the paper's checkpoints (main.py of its code).
PAPER = "150-1 1000-5 10000-42 50000-210 101000-424 119000-500 250000-1049 500000-2098 599000-2513 928646-3896"

# Step-tokens of revisions that public documents and code name.
KNOWN = {
    "olmo-2-1b": "0-0 300-1 10000-21 23100-49 100000-210 760000-1594 1530000-3209 1907359-4001",
    "olmo-2-1b-early": "0-0 1000-3 2000-5 5000-11",
    "olmo-2-7b": PAPER + " 600-3 2150-10 5000-21 11000-47 15000-63 207000-869 310000-1301 413000-1733 516000-2165"
                 " 619000-2597 722000-3029 825000-3461 928000-3893",
    "olmo-2-13b": "0-0 1000-9 1100-10 2000-17 102500-860 119500-1003 476858-4001 596000-5000 596057-5001",
    "olmo-2-32b": "10000-84 75000-630 145000-1217 467000-3918 721901-6056",
}


def read(folder):
    with open(CHECKPOINTS / folder / "manifest.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def billions(tokens):
    """Returns tokens / 1e9, rounded up."""
    exact = Fraction(tokens, 10**9)
    return next(n for n in range(int(exact), int(exact) + 2) if n >= exact)


def print_rows(folder, steps):
    """Returns the rows that checkpoints/olmo2.py prints."""
    run = subprocess.run([sys.executable, "-B", CHECKPOINTS / "olmo2.py", folder.removeprefix("olmo-2-"),
                          *map(str, steps)], stdout=subprocess.PIPE, text=True, check=True)
    return list(csv.DictReader(run.stdout.splitlines(), delimiter="\t"))


def fetch(manifest):
    """Returns exit code and standard error of fetch.py."""
    run = subprocess.run([sys.executable, "-B", CHECKPOINTS / "fetch.py", manifest, "--dry-run"], capture_output=True, text=True,
                         timeout=50)
    return run.returncode, run.stderr


class ManifestsTest(unittest.TestCase):
    def test_no_manifest_is_forgotten(self):
        self.assertEqual({path.parent.name for path in CHECKPOINTS.glob("olmo-2-*/manifest.tsv")}, set(MODELS))

    def test_rows_obey_the_rule(self):
        for folder, (repository, tokens_per_step, _) in MODELS.items():
            for row in read(folder):
                with self.subTest(folder=folder, row=row["name"]):
                    step = int(row["step"])
                    tokens = step * tokens_per_step
                    self.assertEqual(int(row["tokens"]), tokens)
                    self.assertEqual(row["revision"], f"stage1-step{step}-tokens{billions(tokens)}B")
                    self.assertEqual((row["name"], row["path"]), (f"step{step}", f"step{step}"))
                    self.assertEqual(row["repository"], repository)
                    self.assertRegex(row["commit"], "^([0-9a-f]{40})?$")

    def test_steps_go_from_the_first_to_the_last(self):
        for folder, (_, _, last) in MODELS.items():
            with self.subTest(folder):
                steps = [int(row["step"]) for row in read(folder)]
                self.assertEqual(steps, sorted(set(steps)))
                self.assertIn(steps[0], (0, 150))
                self.assertEqual(steps[-1], last)
                self.assertTrue(12 <= len(steps) <= 24, len(steps))
                # spaced evenly on a logarithmic scale: from 1000 on, or from the first after that, by 2.5 at most
                late = [step for step in steps if step >= 1000]
                self.assertLessEqual(max(b / a for a, b in itertools.pairwise(late)), 2.5)

    def test_the_papers_checkpoints_are_there(self):
        revisions = {row["revision"] for row in read("olmo-2-7b")}
        for name in PAPER.split():
            self.assertIn("stage1-step{}-tokens{}B".format(*name.split("-")), revisions)

    def test_known_names_follow_from_the_rule(self):
        for folder, names in KNOWN.items():
            known = [f"stage1-step{step}-tokens{tokens}B" for step, tokens in
                     (name.split("-") for name in names.split())]
            steps = [re.search(r"step(\d+)", name)[1] for name in known]
            self.assertEqual([row["revision"] for row in print_rows(folder, steps)], known)

    def test_printed_rows_are_those_of_the_manifest(self):
        for folder in MODELS:
            with self.subTest(folder):
                rows = read(folder)
                printed = print_rows(folder, [row["step"] for row in rows])
                self.assertEqual(list(printed[0]), list(rows[0]))
                self.assertEqual([[row[c] for c in SHARED] for row in printed],
                                 [[row[c] for c in SHARED] for row in rows])

    def test_fetching_refuses_paths_that_lead_elsewhere(self):
        """Before any request to the hub."""
        header = "name\tstep\ttokens\tpath\trepository\trevision\nok\t0\t\tok/step0\tlab/m\tmain\n"
        with tempfile.TemporaryDirectory(prefix="headspan_manifest_") as folder:
            manifest = Path(folder) / "manifest.tsv"
            for path in ("/tmp/x", "../x", "a/../../x", "..", "a/.."):
                manifest.write_text(f"{header}bad\t0\t\t{path}\tlab/m\tmain\n")
                self.assertEqual(fetch(manifest), (2, f"fetch: {manifest}: line 3 path = '{path}': leads out of the folder of the "
                                                   "manifest; give a path below it, and the folder with --directory\n"))
            for control in ("\x1b", "\x7f", "\x85", "\x9b"):
                manifest.write_text(f"{header}b{control}[2J\t0\t\tb\tlab/m\tmain\n", encoding="utf-8")
                self.assertEqual(fetch(manifest), (2, f"fetch: {manifest}: line 3 name = {f'b{control}[2J'!r}: holds a control "
                                                   "character\n"))
            manifest.write_bytes(f"{header}caf".encode() + b"\xe9\t0\t\tb\tlab/m\tmain\n")
            self.assertEqual(fetch(manifest), (2, f"fetch: {manifest}: line 3: holds a byte that is no UTF-8\n"))
            self.assertEqual([path.name for path in Path(folder).iterdir()], ["manifest.tsv"])

    def test_the_program_accepts_them(self):
        for folder in MODELS:
            with self.subTest(folder):
                rows = read(folder)
                run = subprocess.run([PROGRAM, "inspect", CHECKPOINTS / folder / "manifest.tsv"], capture_output=True,
                                     text=True, timeout=50)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertRegex(run.stdout, rf"checkpoints +{len(rows)}\n")
                self.assertRegex(run.stdout, rf"steps +{rows[0]['step']} to {rows[-1]['step']}\n")


class FamiliesTest(unittest.TestCase):
    """The manifests of checkpoints/families.py."""

    @staticmethod
    def rows(name):
        with open(CHECKPOINTS / "families" / f"{name}.tsv", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))

    def test_files_are_what_the_script_writes(self):
        names = sorted(path.stem for path in (CHECKPOINTS / "families").iterdir())
        self.assertEqual(len(names), 10 + 8 + 5 + 1)
        for name in names:
            printed = subprocess.run([sys.executable, "-B", CHECKPOINTS / "families.py", name], capture_output=True, text=True,
                                     check=True).stdout
            self.assertEqual((CHECKPOINTS / "families" / f"{name}.tsv").read_text(), printed, name)

    def test_pythia_has_its_154_steps_and_300_billion_tokens(self):
        for name in ("pythia-14m", "pythia-70m-deduped", "pythia-12b"):
            rows = self.rows(name)
            steps = [int(row["step"]) for row in rows]
            self.assertEqual((len(steps), steps[:4], steps[10:13], steps[-1]), (154, [0, 1, 2, 4], [512, 1000, 2000], 143_000))
            self.assertEqual(int(rows[-1]["tokens"]), 299_892_736_000)  # of the paper's table
            self.assertEqual({row["repository"] for row in rows}, {f"EleutherAI/{name}"})
            self.assertEqual([row["revision"] for row in rows], [f"step{step}" for step in steps])

    def test_polypythias_have_nine_seeds(self):
        rows = self.rows("polypythias-160m")
        self.assertEqual([row["seed"] for row in rows], [str(seed) for seed in range(1, 10) for _ in range(154)])
        self.assertEqual({(row["repository"], row["seed"]) for row in rows},
                         {(f"EleutherAI/pythia-160m-seed{seed}", str(seed)) for seed in range(1, 10)})
        self.assertEqual(len({row["path"] for row in rows}), len(rows))

    def test_the_program_accepts_them(self):
        for name, count in (("pythia-1.4b", 154), ("polypythias-14m", 1386), ("amber", 360)):
            run = subprocess.run([PROGRAM, "inspect", CHECKPOINTS / "families" / f"{name}.tsv"], capture_output=True, text=True,
                                 timeout=50)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stdout, rf"checkpoints +{count}\n")


class TinyFamiliesTest(unittest.TestCase):
    def test_rows_are_those_of_the_files(self):
        for folder, (kind, _, _) in TINY.items():
            rows = read(folder)
            self.assertEqual({row["path"] for row in rows}, {path.parent.name for path in CHECKPOINTS.glob(f"{folder}/*/config.json")})
            for row in rows:
                with self.subTest(folder=folder, row=row["name"]):
                    checkpoint = CHECKPOINTS / folder / row["path"]
                    weights = (checkpoint / "model.safetensors").read_bytes()
                    self.assertEqual((int(row["bytes"]), row["sha256"]), (len(weights), hashlib.sha256(weights).hexdigest()))
                    self.assertEqual(json.loads((checkpoint / "config.json").read_text())["model_type"], kind)

    def test_every_seed_has_the_same_steps_and_learns(self):
        for folder, (_, seeds, last) in TINY.items():
            rows = read(folder)
            self.assertEqual(list(dict.fromkeys(row.get("seed") for row in rows)), seeds)
            runs = [[row for row in rows if row.get("seed") == seed] for seed in seeds]
            for run in runs:
                with self.subTest(folder=folder, seed=run[0].get("seed")):
                    steps = [int(row["step"]) for row in run]
                    self.assertEqual(steps, [int(row["step"]) for row in runs[0]])
                    self.assertEqual((steps, steps[0], steps[-1]), (sorted(set(steps)), 0, last))
                    self.assertEqual([int(row["tokens"]) for row in run], [4096 * step for step in steps])
                    losses = [float(row["validation_loss"]) for row in run]
                    self.assertEqual(losses, sorted(losses, reverse=True))
            self.assertEqual(len({row["sha256"] for row in rows}), len(rows))

    def test_the_program_accepts_them(self):
        for folder in TINY:
            with self.subTest(folder):
                run = subprocess.run([PROGRAM, "inspect", CHECKPOINTS / folder / "manifest.tsv"], capture_output=True,
                                     text=True, timeout=50)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertRegex(run.stdout, rf"checkpoints +{len(read(folder))}\n")


if __name__ == "__main__":
    unittest.main()
