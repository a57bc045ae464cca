"""Every bad input but job files through the program: exit code, a single error line, time, and no files left.

usage: test_bad_input.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the cases whose name holds it
"""
import config_cases
import data_cases
import evaluate_cases
import hdf5_cases
import target_cases
import weight_cases
from harness import run_main


MODULES = (weight_cases, config_cases, data_cases, evaluate_cases, hdf5_cases, target_cases)

run_main((case.name, case.check) for module in MODULES for case in module.CASES)
