"""Every bad job through the program: exit code, a single error line, time, and no files left.

usage: test_bad_jobs.py HEADSPAN MPIEXEC RANKS [NAME]     NAME: only the cases whose name holds it
"""
import job_cases
from harness import run_main

run_main((case.name, case.check) for case in job_cases.CASES)
