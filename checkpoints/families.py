#!/usr/bin/env python3
"""Writes manifests of families whose revisions follow a rule, and what each rule rests on.

    python3 checkpoints/families.py                 # all, into checkpoints/families, with SOURCES.txt
    python3 checkpoints/families.py pythia-70m      # prints one

Nothing was checked against the hub: whether a revision exists, `fetch.py MANIFEST --list` tells. Families without a
known rule: `fetch.py ORG/NAME --all-revisions` lists what the hub has.
"""
import argparse
import inspect
import sys
import textwrap
from pathlib import Path

COLUMNS = ("name", "step", "tokens", "path", "repository", "revision", "seed", "commit", "bytes", "sha256")
NOT_CHECKED = """Sources of the manifests in this folder, written by checkpoints/families.py.

NOT CHECKED AGAINST THE HUB: none of the revisions. The names follow from what is said here, and some do not exist;
`fetch.py MANIFEST --list` names those. The cells commit, bytes and sha256 are empty until fetch.py fills them.
A step is that of the revision's name, which OLMo 3 and the long contexts of SmolLM3 count from the start of a stage;
tokens are those of the whole run.
"""
PYTHIA_STEPS = (0, *(2**i for i in range(10)), *range(1000, 144_000, 1000))
PYTHIA_BATCH = 1024 * 2048  # tokens of a step
SIZES = ("14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
DEDUPED = SIZES[2:]
SEVERAL_SEEDS = SIZES[:5]
SEEDS = range(1, 10)
AMBER_CHECKPOINTS = 360

SMOLLM2 = {"135m": (240_000, 1_920_000, 2**20), "360m": (160_000, 2_560_000, 3 * 2**19), "1.7b": (125_000, 5_125_000, 2**21)}
SMOLLM3_BATCH = 2_359_296
SMOLLM3_STAGES = ((1, 40_000, 3_440_000), (2, 3_480_000, 4_200_000), (3, 4_240_000, 4_720_000))  # first and last step

OLMO_1B_STEPS = (*range(1000, 6000, 1000), *range(10_000, 120_000, 10_000), 117_850,
                 *(step for step in range(330_000, 740_000, 10_000) if step != 670_000), 738_000, 738_020)
OLMO_7B_STEPS = (*range(0, 161_000, 500), *range(161_000, 640_000, 1000), *range(639_650, 651_000, 1000))

OLMO_7B_BATCH = 2160 * 2048

MARIN_8B = (("kestrel", 660_000, 1024), ("ocelot", 740_500, 3072), ("jellyfish", 820_000, 3072), ("phoenix", 1_320_000, 3072),
            ("starling", 1_400_000, 4096), ("deeper-starling", 1_420_000, 4096))  # last step, sequences of a step


def row(repository, revision, step, tokens):
    return (revision, step, tokens, f"{repository.split('/')[1]}/{revision}", repository, revision, "")


def every_1000(last):
    return (*range(0, last, 1000), last)


def pythia(model):
    """arXiv 2304.01373: 154 checkpoints of a run, 2 097 152 tokens a step."""
    return [row(f"EleutherAI/{model}", f"step{step}", step, step * PYTHIA_BATCH) for step in PYTHIA_STEPS]


def polypythias(size):
    """arXiv 2503.09543: nine further runs of each of these sizes, which differ in their seed."""
    return [(f"seed{seed}-{name}", *cells, seed) for seed in SEEDS
            for name, *cells, _ in pythia(f"pythia-{size}-seed{seed}")]


def amber():
    """arXiv 2312.06550: 360 checkpoints, ckpt_000 to ckpt_359. How many steps lie between two is not published: step is the
    number of the checkpoint, and tokens are empty."""
    return [(f"ckpt{i:03}", i, "", f"amber/ckpt_{i:03}", "LLM360/Amber", f"ckpt_{i:03}", "") for i in range(AMBER_CHECKPOINTS)]


def smollm2(size):
    """Model cards of HuggingFaceTB/SmolLM2-*-intermediate-checkpoints: a checkpoint every 240 000 (135M), 160 000 (360M) or
    125 000 (1.7B) steps, the tokens of a step, and the name of the first. The last steps: published code that loads each
    revision (135M, 1.7B), a published `git ls-remote` (360M)."""
    every, last, batch = SMOLLM2[size]
    repository = f"HuggingFaceTB/SmolLM2-{size.upper()}-intermediate-checkpoints"
    return [row(repository, f"step-{step}", step, step * batch) for step in range(every, last + 1, every)]


def smollm3():
    """Model card of HuggingFaceTB/SmolLM3-3B-checkpoints: every 40 000 steps of 2 359 296 tokens; stage 1 has 86 checkpoints
    until step 3 450 000, stage 2 has 19 until 4 200 000, stage 3 has 13 until 4 720 000. Published code names the first and
    the last of each stage."""
    return [row("HuggingFaceTB/SmolLM3-3B-checkpoints", f"stage{stage}-step-{step}", step, step * SMOLLM3_BATCH)
            for stage, first, last in SMOLLM3_STAGES for step in range(first, last + 1, 40_000)]


def smollm3_long(stage, before):
    """Model card of HuggingFaceTB/SmolLM3-3B-checkpoints: 10 checkpoints every 4000 steps (9.4e9 tokens) in two stages.
    A published protocol names the first and the last of both, steps 4000 and 20 000. Where the first stage ended is not
    published: tokens of the second are empty."""
    return [row("HuggingFaceTB/SmolLM3-3B-checkpoints", f"lc-{stage}-step-{step}", step,
                "" if before is None else (before + step) * SMOLLM3_BATCH) for step in range(4000, 24_000, 4000)]


def olmo(name, steps, batch, named):
    """Model cards of allenai/OLMo-*-hf: names such as step1000-tokens4B; allenai/OLMo configs/official-0724: tokens of a step
    (of 1B-0724 derived: 3.05e12 tokens, context 4096, 1 454 000 steps). The rule of the tokens in a name is inferred from
    lists that others published: steps * 2000 / 477 000 (1B-0724: 1000) rounded down, 7B-0724: the tokens rounded down.
    1B: those steps that lists of OLMo-1B and OLMo-1B-hf name, thinned to every 10 000 (351 branches were counted; none
    between 117 850 and 330 000, allenai/OLMo issue 879). 1B-0724: every 1000 (1446 branches were counted). 7B: all that
    published lists of allenai/OLMo-7B name, in whose names the tokens are those of 2160 sequences of 2048 a step, to the
    nearest; whether OLMo-7B-hf, which has the tensor names that headspan reads, has the same branches is not known.
    7B-0424, 7B-0724: the spacing of the published lists, without their few irregular steps (about 820 branches were
    counted)."""
    return [row(f"allenai/OLMo-{name}-hf", f"step{step}-tokens{named(step)}B", step, step * batch) for step in steps]


def olmo3(size, stage, steps, batch, before):
    """allenai/OLMo-core src/scripts/official/OLMo3: steps (*.csv) and tokens of a step (*.py). Model card of
    allenai/Olmo-3-1125-32B: names stage1-stepN, stage2-ingredientY-stepN, stage3-stepN; the 7B has stage2-stepN (published
    lists). Stage 1 of the 32B ends at 656 000, where stage 2 starts, though the csv goes on to 679 000. Its stage 3 starts
    from the mean of two runs: tokens are empty. The csv counts the tokens of stages 2 and 3 from step 1000; here they count
    from step 0, which is left out as the end of the stage before."""
    repository = {"7B": "allenai/Olmo-3-1025-7B", "32B": "allenai/Olmo-3-1125-32B"}[size]
    return [row(repository, f"{stage}-step{step}", step, "" if before is None else before + step * batch) for step in steps]


def marin():
    """Model card of marin-community/marin-8b-base: six named revisions and their tokens. Steps and sequences of a step (of 4096
    tokens): marin-community/marin experiments/tootsie/exp600_tootsie.py, ends of phases; the checkpoints may be some
    steps older (step 819 924 for 820 000). The tokens that follow agree with the card within 1e11."""
    rows, tokens, before = [], 0, 0
    for name, step, sequences in MARIN_8B:
        tokens += (step - before) * sequences * 4096
        before = step
        rows.append(row("marin-community/marin-8b-base", name, step, tokens))
    return rows


def rules():
    """Returns name -> function and its arguments."""
    end_7b, end_32b = 1_413_814 * 2**22, 656_000 * 2**23
    late = every_1000(11_921)[1:]
    return {
        **{f"pythia-{size}": (pythia, f"pythia-{size}") for size in SIZES},
        **{f"pythia-{size}-deduped": (pythia, f"pythia-{size}-deduped") for size in DEDUPED},
        **{f"polypythias-{size}": (polypythias, size) for size in SEVERAL_SEEDS},
        "amber": (amber,),
        **{f"smollm2-{size}": (smollm2, size) for size in SMOLLM2},
        "smollm3-3b": (smollm3,),
        "smollm3-3b-long-32k": (smollm3_long, "4k-to-32k", 4_720_000),
        "smollm3-3b-long-64k": (smollm3_long, "32k-to-64k", None),
        "olmo-1b": (olmo, "1B", OLMO_1B_STEPS, 2**22, lambda step: step * 2 // 477),
        "olmo-1b-0724": (olmo, "1B-0724", every_1000(1_454_000), 2**21, lambda step: step // 477),
        "olmo-7b": (olmo, "7B", every_1000(557_000), OLMO_7B_BATCH, lambda step: round(step * OLMO_7B_BATCH / 10**9)),
        "olmo-7b-0424": (olmo, "7B-0424", (*OLMO_7B_STEPS, 651_581), 2**22, lambda step: step * 2 // 477),
        "olmo-7b-0724": (olmo, "7B-0724", OLMO_7B_STEPS, 2**22, lambda step: step * 2**22 // 10**9),
        "olmo-3-7b": (olmo3, "7B", "stage1", every_1000(1_413_814), 2**22, 0),
        "olmo-3-7b-stage2": (olmo3, "7B", "stage2", every_1000(47_684)[1:], 2**21, end_7b),
        "olmo-3-7b-stage3": (olmo3, "7B", "stage3", late, 2**22, end_7b + 47_684 * 2**21),
        "olmo-3-32b": (olmo3, "32B", "stage1", every_1000(656_000), 2**23, 0),
        **{f"olmo-3-32b-ingredient{i}": (olmo3, "32B", f"stage2-ingredient{i}", every_1000(23_842)[1:], 2**22, end_32b)
           for i in (1, 2)},
        "olmo-3-32b-stage3": (olmo3, "32B", "stage3", late, 2**23, None),
        "marin-8b": (marin,),
    }


def manifest_text(function, *arguments):
    return "".join("\t".join(map(str, cells)) + "\n"
                   for cells in (COLUMNS, *((*cells, "", "", "") for cells in function(*arguments))))


def sources_text(known):
    """Returns what each rule rests on: the descriptions of the functions."""
    names = {}
    for name, (function, *_) in known.items():
        names.setdefault(function, []).append(name)
    parts = [textwrap.fill(" ".join(of), 120) + "\n" + textwrap.indent(inspect.getdoc(function) or "", "    ") + "\n"
             for function, of in names.items()]
    return "\n".join([NOT_CHECKED, *parts])


def main():
    known = rules()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="?", choices=known, metavar="FAMILY", help=", ".join(known))
    family = parser.parse_args().family
    if family:
        sys.stdout.write(manifest_text(*known[family]))
        return
    folder = Path(__file__).resolve().parent / "families"
    folder.mkdir(exist_ok=True)
    (folder / "SOURCES.txt").write_text(sources_text(known))
    for name, rule in known.items():
        (folder / f"{name}.tsv").write_text(manifest_text(*rule))


if __name__ == "__main__":
    main()
