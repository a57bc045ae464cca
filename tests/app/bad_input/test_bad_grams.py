"""Every bad Gram file through the program, as test_bad_input.py: by `inspect` on one rank, by `calibrate`, which takes its
ranks into the refusal, on several.

usage: test_bad_grams.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the cases whose name holds it
"""
import sys

import gram_cases
from harness import Program, run_all


def main():
    program = Program(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    other = f": {'calibrate' if program.ranks == 1 else 'inspect'}"
    cases = [case for case in gram_cases.CASES if wanted in case.name and not case.name.endswith(other)]
    return run_all([(case.name, lambda folder, case=case: case.check(program, folder)) for case in cases])


sys.exit(main())
