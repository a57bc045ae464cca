"""The command headspan-report: reads its arguments, calls one of the commands, turns errors into exit codes."""
import argparse
import sys
from pathlib import Path

from . import __version__
from .error import EnvironmentFailed, InputError

EXIT_CODES = "exit codes: 0 done; 1 the environment failed; 2 the input is at fault, which the outputs name too"


def aggregate(arguments):
    from .aggregate import aggregate, write_csv, write_netcdf
    emergence = aggregate(arguments.folders, arguments.manifest, arguments.losses)
    stem = str(arguments.output).removesuffix(".nc").removesuffix(".csv")
    write_netcdf(emergence.table, f"{stem}.nc")
    write_csv(emergence, f"{stem}.csv")
    return finish(emergence, f"{stem}.nc {stem}.csv")


def finish(emergence, written):
    """Names what is wrong on stderr, what was done on stdout. Returns the exit code."""
    complaints = emergence.complaints()
    for error in complaints:
        print(f"headspan-report: {error}", file=sys.stderr)
    print(f"status=done checkpoints={emergence.table.sizes['checkpoint']} streams={emergence.table.sizes['stream']} "
          f"refused={len(emergence.refused)} missing={len(emergence.missing)} written={written}")
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
    return parser


def main(words=None):
    arguments = command_line().parse_args(words)
    try:
        return arguments.function(arguments)
    except InputError as error:
        print(f"headspan-report: {error}", file=sys.stderr)
        return 2
    except EnvironmentFailed as error:
        print(f"headspan-report: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
