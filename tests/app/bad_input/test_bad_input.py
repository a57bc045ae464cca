"""Every bad input through the program: exit code, a single error line, time, and no files left.

usage: test_bad_input.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the cases whose name holds it
"""
import sys

import config_cases
import data_cases
import evaluate_cases
import hdf5_cases
import job_cases
import target_cases
import weight_cases
from harness import Program, run_all


def main():
    program = Program(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    modules = (job_cases, weight_cases, config_cases, data_cases, evaluate_cases, hdf5_cases, target_cases)
    cases = [case for module in modules for case in module.CASES if wanted in case.name]
    return run_all([(case.name, lambda folder, case=case: case.check(program, folder)) for case in cases])


sys.exit(main())
