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

# Of families.py: name -> rows, revisions that model cards, and code and lists of others, name.
FAMILIES = {
    "smollm2-135m": (8, "step-240000 step-1200000 step-1920000"),
    "smollm2-360m": (16, "step-160000 step-320000 step-800000 step-2080000 step-2560000"),
    "smollm2-1.7b": (41, "step-125000 step-250000 step-1000000 step-4750000 step-5125000"),
    "smollm3-3b": (86 + 19 + 13, "stage1-step-40000 stage1-step-1720000 stage1-step-3440000 stage2-step-3480000 stage2-step-4000000 "
                   "stage2-step-4200000 stage3-step-4240000 stage3-step-4480000 stage3-step-4720000"),
    "smollm3-3b-long-32k": (5, "lc-4k-to-32k-step-4000 lc-4k-to-32k-step-20000"),
    "smollm3-3b-long-64k": (5, "lc-32k-to-64k-step-4000 lc-32k-to-64k-step-20000"),
    "olmo-1b": (59, "step1000-tokens4B step2000-tokens8B step5000-tokens20B step10000-tokens41B step20000-tokens83B "
                "step40000-tokens167B step80000-tokens335B step110000-tokens461B step117850-tokens494B step330000-tokens1383B "
                "step460000-tokens1928B step620000-tokens2599B step640000-tokens2683B step720000-tokens3018B "
                "step738000-tokens3094B step738020-tokens3094B"),
    "olmo-1b-0724": (1455, "step0-tokens0B step1000-tokens2B step5000-tokens10B step11000-tokens23B step56000-tokens117B "
                     "step135000-tokens283B step288000-tokens603B step643000-tokens1348B step865000-tokens1813B "
                     "step1243000-tokens2605B step1454000-tokens3048B"),
    "olmo-7b": (558, "step0-tokens0B step1000-tokens4B step13000-tokens58B step78000-tokens345B step113000-tokens500B "
                "step226000-tokens1000B step334000-tokens1478B step447000-tokens1977B step452000-tokens2000B "
                "step556000-tokens2460B step557000-tokens2464B"),
    "olmo-7b-0424": (814, "step0-tokens0B step500-tokens2B step9500-tokens39B step98500-tokens412B step160500-tokens672B "
                     "step280000-tokens1174B step394000-tokens1651B step425000-tokens1781B step451000-tokens1890B "
                     "step477000-tokens2000B step639650-tokens2681B step650650-tokens2728B step651581-tokens2731B"),
    "olmo-7b-0724": (813, "step500-tokens2B step9500-tokens39B step98500-tokens413B step367000-tokens1539B step425000-tokens1782B "
                     "step476000-tokens1996B step639650-tokens2682B step646650-tokens2712B step650650-tokens2729B"),
    "olmo-3-7b": (1415, "stage1-step0 stage1-step1000 stage1-step141000 stage1-step656000 stage1-step1413814"),
    "olmo-3-7b-stage2": (48, "stage2-step8000 stage2-step32000 stage2-step47684"),
    "olmo-3-7b-stage3": (12, "stage3-step1000 stage3-step8000 stage3-step11921"),
    "olmo-3-32b": (657, "stage1-step0 stage1-step10000 stage1-step337000 stage1-step645000 stage1-step656000"),
    "olmo-3-32b-ingredient1": (24, "stage2-ingredient1-step4000 stage2-ingredient1-step21000 stage2-ingredient1-step23842"),
    "olmo-3-32b-ingredient2": (24, ""),
    "olmo-3-32b-stage3": (12, "stage3-step4000 stage3-step11921"),
    "marin-8b": (6, "kestrel ocelot jellyfish phoenix starling deeper-starling"),
}

# Tokens that those sources give: family, revision, tokens, and to how many of them the source is rounded.
FAMILY_TOKENS = [
    ("smollm2-135m", "step-240000", 250e9, 2e9), ("smollm2-1.7b", "step-125000", 250e9, 13e9),
    ("smollm2-360m", "step-320000", 503_316_480_000, 0), ("smollm2-360m", "step-2560000", 4_026_531_840_000, 0),
    ("smollm3-3b", "stage1-step-40000", 94.4e9, 0.05e9), ("smollm3-3b", "stage3-step-4720000", 11.2e12, 0.1e12),
    ("olmo-1b", "step738020-tokens3094B", 3.1e12, 0.05e12), ("olmo-1b-0724", "step1454000-tokens3048B", 3.05e12, 0.005e12),
    ("olmo-7b-0724", "step650650-tokens2729B", 2.75e12, 0.05e12), ("olmo-3-7b", "stage1-step1000", 4_194_304_000, 0),
    ("olmo-3-7b", "stage1-step1413814", 5_929_965_715_456, 0), ("olmo-3-7b-stage2", "stage2-step47684", 6.03e12, 0.005e12),
    ("olmo-3-7b-stage3", "stage3-step11921", 6.08e12, 0.005e12), ("olmo-3-32b", "stage1-step1000", 8_388_608_000, 0),
    ("olmo-3-32b", "stage1-step656000", 5.50e12, 0.005e12),
    ("olmo-3-32b-ingredient2", "stage2-ingredient2-step23842", 5.60e12, 0.005e12), ("marin-8b", "kestrel", 2.7e12, 0.1e12),
    ("marin-8b", "ocelot", 3.78e12, 0.005e12), ("marin-8b", "jellyfish", 4.78e12, 0.005e12), ("marin-8b", "phoenix", 11.1e12, 0.05e12),
    ("marin-8b", "starling", 12.4e12, 0.05e12), ("marin-8b", "deeper-starling", 12.7e12, 0.1e12),
]
TOKENS_UNKNOWN = {"amber", "smollm3-3b-long-64k", "olmo-3-32b-stage3"}

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
        names = sorted(path.stem for path in (CHECKPOINTS / "families").glob("*.tsv"))
        self.assertEqual(len(names), 10 + 8 + 5 + 1 + len(FAMILIES))
        self.assertEqual(len(list((CHECKPOINTS / "families").iterdir())), len(names) + 1)  # and SOURCES.txt
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

    def test_sources_name_each_family_and_say_that_nothing_was_checked(self):
        text = (CHECKPOINTS / "families" / "SOURCES.txt").read_text()
        self.assertIn("NOT CHECKED AGAINST THE HUB", text)
        words = text.split()
        for path in (CHECKPOINTS / "families").glob("*.tsv"):
            self.assertIn(path.stem, words)
        families = [sys.executable, "-B", "-c", "import families; print(families.sources_text(families.rules()), end='')"]
        self.assertEqual(subprocess.run(families, cwd=CHECKPOINTS, capture_output=True, text=True, check=True).stdout, text)

    def test_known_revisions_follow_from_the_rules(self):
        for name, (count, known) in FAMILIES.items():
            with self.subTest(name):
                revisions = [row["revision"] for row in self.rows(name)]
                self.assertEqual(len(revisions), count)
                self.assertEqual([revision for revision in known.split() if revision not in revisions], [])
                if known:
                    self.assertEqual(known.split()[-1], revisions[-1])

    def test_rows_grow_and_have_the_step_of_their_revision(self):
        for name in FAMILIES:
            with self.subTest(name):
                rows = self.rows(name)
                steps = [int(row["step"]) for row in rows]
                self.assertEqual(steps, sorted(set(steps)))
                self.assertEqual(len({row["repository"] for row in rows}), 1)
                for row in rows:
                    self.assertEqual(row["path"], f"{row['repository'].split('/')[1]}/{row['revision']}")
                    named = re.search(r"step-?(\d+)", row["revision"])
                    self.assertEqual(row["step"], named[1] if named else row["step"])

    def test_tokens_are_those_of_the_sources(self):
        for name, revision, tokens, rounded in FAMILY_TOKENS:
            with self.subTest(name, revision=revision):
                row = next(row for row in self.rows(name) if row["revision"] == revision)
                self.assertLessEqual(abs(int(row["tokens"]) - tokens), rounded)
        for name in FAMILIES:
            self.assertEqual({row["tokens"] == "" for row in self.rows(name)}, {name in TOKENS_UNKNOWN}, name)

    def test_no_step_of_olmo_1b_lies_in_the_known_gap(self):
        steps = [int(row["step"]) for row in self.rows("olmo-1b")]
        self.assertEqual([step for step in steps if 117_850 < step < 330_000], [])

    def test_the_program_accepts_them(self):
        """One of each rule, because starting the program takes most of the time."""
        new = ("smollm2-1.7b", "smollm3-3b", "smollm3-3b-long-64k", "olmo-1b", "olmo-3-7b", "olmo-3-32b-stage3", "marin-8b")
        counts = {"pythia-1.4b": 154, "polypythias-14m": 1386, "amber": 360, **{name: FAMILIES[name][0] for name in new}}
        for name, count in counts.items():
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
