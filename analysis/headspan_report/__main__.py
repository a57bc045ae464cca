"""The command headspan-report: parses its arguments, runs one of the commands, and turns errors into exit codes."""
import argparse
import sys
from pathlib import Path

from headspan import __version__
from headspan.error import exit_code

from .target import check_targets

EXIT_CODES = "exit codes: 0 done; 1 the environment failed; 2 the input is at fault, which the outputs name too"


def aggregate(arguments):
    from .aggregate import aggregate, write_csv, write_netcdf
    stem = str(arguments.output).removesuffix(".nc").removesuffix(".csv")
    check_targets([f"{stem}.nc", f"{stem}.csv"], study_files(arguments))
    emergence = aggregate(arguments.folders, arguments.manifest, arguments.losses)
    write_netcdf(emergence.table, f"{stem}.nc")
    write_csv(emergence, f"{stem}.csv")
    return finish([emergence], f"{stem}.nc {stem}.csv")


def plot(arguments):
    from .figures import draw_all, files_of_all, save_all
    check_targets(files_of_all(arguments.output), table_files(arguments.sources))
    table, complaints = table_of(arguments.sources)
    drawn, absent = draw_all(table)
    save_all(drawn, arguments.output)
    for drawing, reason in absent:
        print(f"headspan-report: no figure {drawing.name}: {reason}", file=sys.stderr)
    report_complaints(complaints)
    print(f"status=done figures={len(drawn)} absent={len(absent)} written={arguments.output}")
    return 2 if complaints else 0


def report(arguments):
    from .aggregate import aggregate_each, replace
    from .report import causal_r2, render
    check_targets([arguments.output], study_files(arguments))
    studies = aggregate_each(arguments.folders, arguments.manifest, arguments.losses, keep=causal_r2)
    page = render(studies)
    replace(arguments.output, lambda path: path.write_text(page, encoding="utf-8"))
    return finish(studies, arguments.output)


def compare(arguments):
    from . import compare as both
    from .aggregate import replace
    inputs = table_files([arguments.a]) + table_files([arguments.b])
    check_targets([arguments.output], inputs)
    table = arguments.output.with_suffix(".csv")
    check_targets([table], inputs)
    (a, wrong_a), (b, wrong_b) = table_of([arguments.a]), table_of([arguments.b])
    names = arguments.names or both_names(arguments.a, arguments.b)
    pairs, how = both.matched(a, b)
    lines = both.lines_of(a, b, pairs)
    complaints = wrong_a + wrong_b
    page = both.render(a, b, names, pairs, how, lines, complaints)
    replace(arguments.output, lambda path: path.write_text(page, encoding="utf-8"))
    both.write_csv(lines, table)
    report_complaints(complaints)
    print(f"status=done pairs={len(pairs)} lines={len(lines)} written={arguments.output} {table}")
    return 2 if complaints else 0


def both_names(a, b):
    """Returns the shortest ends of the two paths that differ."""
    for parts in range(1, max(len(a.parts), len(b.parts)) + 1):
        names = ["/".join(path.with_suffix("").parts[-parts:]) for path in (a, b)]
        if names[0] != names[1]:
            return names
    return ["first", "second"]


def compression(arguments):
    from .aggregate import replace
    from .compression.page import curve_files, render, save_curves
    from .compression.plan import files_of_folders, read_archives, read_folders
    files = curve_files(arguments.figures) if arguments.figures else ()
    check_targets([arguments.output, *files], files_of_folders(arguments.folders))
    models, refused = read_folders(arguments.folders)
    archives = read_archives(arguments.folders)
    page = render(models, refused, archives)
    if files:
        save_curves(models, arguments.figures, archives)
    replace(arguments.output, lambda path: path.write_text(page, encoding="utf-8"))
    report_complaints(refused)
    print(f"status=done models={len(models)} runs={sum(map(len, models))} refused={len(refused)} "
          f"written={' '.join(map(str, [arguments.output, *files]))}")
    return 2 if refused else 0


def export(arguments):
    from .compression import export as other
    from .compression.plan import read_plan
    plan = read_plan(arguments.plan)
    files = other.rotation_files(plan, arguments.rotations) if arguments.rotations else []
    check_targets([arguments.output, *files], [arguments.plan, f"{arguments.plan}.done"])
    found = other.export(plan, arguments.skip_layers)
    if files:
        other.write_rotations(plan, arguments.rotations)
    other.write_json(found, arguments.output)
    hints = " ".join(f"{name} {value}" for name, value in found["llama.cpp"].items())
    skipped = " ".join(found["vllm"]["kv_cache_dtype_skip_layers"])
    print(f"llama.cpp: {hints}\nvLLM: --kv-cache-dtype-skip-layers {skipped}" if skipped else f"llama.cpp: {hints}")
    print(f"status=done layers={plan.layers} written={' '.join(map(str, [arguments.output, *files]))}")
    return 0


def tokenize(arguments):
    from .tokenize import configuration_of, tokenize
    inputs = [*arguments.texts, arguments.tokenizer, configuration_of(arguments.tokenizer)]
    check_targets([arguments.output], inputs)
    check_targets([arguments.output.with_suffix(".json")], inputs)
    sidecar = tokenize(arguments.texts, arguments.tokenizer, arguments.output, arguments.field, arguments.eos,
                       arguments.limit, arguments.name)
    print(f"status=done tokens={sidecar['count']} dtype={sidecar['dtype']} eos={sidecar['eos']} "
          f"written={arguments.output} {arguments.output.with_suffix('.json')}")
    return 0


def study_files(arguments):
    """Returns the files that aggregate reads."""
    return [*table_files(arguments.folders), arguments.manifest, arguments.losses]


def table_files(sources):
    """Returns the files that table_of reads."""
    from .result import find_results
    if is_table(sources):
        return sources
    return [file for path in find_results(sources) for file in (path, f"{path}.done")]


def is_table(sources):
    return len(sources) == 1 and sources[0].suffix == ".nc"


def table_of(sources):
    """Returns the table of one emergence.nc or of the results under folders, and the problems of the latter."""
    from .aggregate import aggregate, read_netcdf
    if is_table(sources):
        return read_netcdf(sources[0]), []
    emergence = aggregate(sources)
    return emergence.table, emergence.complaints()


def report_complaints(complaints):
    for error in complaints:
        print(f"headspan-report: {error}", file=sys.stderr)


def finish(studies, written):
    """Prints problems on stderr and what was written on stdout. Returns the exit code."""
    complaints = [error for study in studies for error in study.complaints()]
    report_complaints(complaints)
    several = f"studies={len(studies)} " if len(studies) > 1 else ""
    print(f"status=done {several}checkpoints={sum(study.table.sizes['checkpoint'] for study in studies)} "
          f"streams={max(study.table.sizes['stream'] for study in studies)} "
          f"refused={sum(len(study.refused) for study in studies)} "
          f"missing={sum(len(study.missing) for study in studies)} written={written}")
    return 2 if complaints else 0


def command_line():
    parser = argparse.ArgumentParser(prog="headspan-report", epilog=EXIT_CODES, description=(
        "Tables, figures and pages from the result files of headspan. FOLDER is the output.directory of a study."))
    parser.add_argument("--version", action="version", version=f"headspan-report {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name, function, text):
        command = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
        command.set_defaults(function=function)
        return command

    def add_study(command):
        command.add_argument("folders", nargs="+", metavar="FOLDER", type=Path)
        command.add_argument("--manifest", type=Path, help="the study's manifest: a row without a result is an error")
        command.add_argument("--losses", type=Path, help="table (TSV) with name or step, and loss or validation_loss")

    command = add("aggregate", aggregate, "all results of a study in one table: OUTPUT.nc and OUTPUT.csv")
    add_study(command)
    command.add_argument("--output", default="emergence", help="name without suffix [emergence]")

    command = add("plot", plot, "the paper's figures with their nulls, each as OUTPUT/NAME.svg and .png")
    command.add_argument("sources", nargs="+", metavar="SOURCE", type=Path, help="emergence.nc, or result folders")
    command.add_argument("--output", default="figures", type=Path, help="folder [figures]")
    command = add("report", report, "one self-contained HTML page: findings, figures, a map of the heads, what was run; "
                  "of folders of several studies, all of them")
    add_study(command)
    command.add_argument("--output", default="report.html", type=Path, help="file [report.html]")
    command = add("compare", compare, "two studies side by side: OUTPUT (HTML) and the same numbers as .csv")
    command.add_argument("a", metavar="A", type=Path, help="emergence.nc, or a result folder")
    command.add_argument("b", metavar="B", type=Path, help="likewise")
    command.add_argument("--names", nargs=2, metavar=("NAME_A", "NAME_B"), help="what the page calls them")
    command.add_argument("--output", default="compare.html", type=Path, help="file [compare.html]")

    command = add("compression", compression, "one self-contained HTML page of plans and how well they do")
    command.add_argument("folders", nargs="+", metavar="FOLDER", type=Path,
                         help="plans and summaries of one model, as jobs/compression.sh leaves them")
    command.add_argument("--output", default="compression.html", type=Path, help="file [compression.html]")
    command.add_argument("--figures", type=Path, metavar="FOLDER",
                         help="write loss against bytes of all models also as FOLDER/compression.svg and .png")

    command = add("export", export, "a plan's bits by layer and stream as JSON, with the settings of llama.cpp and vLLM that come "
                  "nearest; OSCAR's rotations for its kernels")
    command.add_argument("plan", metavar="PLAN", type=Path, help="plan of headspan calibrate")
    command.add_argument("--output", default="plan.json", type=Path, help="file [plan.json]")
    command.add_argument("--skip-layers", type=int, metavar="N",
                         help="layers that vLLM is told to leave as they are: those with most bits [4]")
    command.add_argument("--rotations", type=Path, metavar="FOLDER",
                         help="of a plan of oscar, also FOLDER/k_rotation_qqt_r_h_pbr.pt and v_rotation_sst_r_h_pbr.pt")

    command = add("tokenize", tokenize, "texts as a token file for headspan, with its sidecar")
    command.add_argument("texts", nargs="+", metavar="TEXT", type=Path,
                         help="JSONL (one document a line) or any other text (one document), plain or .gz")
    command.add_argument("--tokenizer", required=True, type=Path, help="tokenizer.json of the model")
    command.add_argument("--output", required=True, type=Path, help="NAME.bin; the sidecar is NAME.json")
    command.add_argument("--field", default="text", help="field of a JSONL line that holds the text [text]")
    command.add_argument("--eos", help="token or id that ends a document [what the tokenizer says]")
    command.add_argument("--limit", type=positive, help="stop after the document that brings so many tokens")
    command.add_argument("--name", help="the tokenizer's name in the sidecar [its folder]")
    return parser


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def main(words=None):
    arguments = command_line().parse_args(words)
    return exit_code("headspan-report", "./analysis", lambda: arguments.function(arguments))


if __name__ == "__main__":
    sys.exit(main())
