"""A sweep through slurm/ as a user runs it, on two nodes: a failure in one checkpoint does not affect the others, is
reported, and is repaired by submitting again.

usage: test_sweep.py HEADSPAN MPIEXEC [unittest's arguments]

Seven checkpoints as an array: one loses a rank, one is cancelled, one is broken, the last is told that its time is up. Then
the killed and the cancelled one in one allocation with two groups, under mpirun; then the broken one again, alone; then
repaired; and finally nothing, because everything is finished.
"""
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import h5py
import numpy as np

from cluster import ROOT, SlurmTest, main

SECONDS = 420
CHECKPOINTS = ROOT / "checkpoints" / "tiny-olmo2"
ROWS = {"killed": 100, "cancelled": 200, "broken": 400, "first": 0, "later": 800, "last": 3000, "timed": 30}  # steps
KILLED, CANCELLED, BROKEN = range(3)
TIMED = 6  # the last task: Slurm gives it the array's own number
PLAIN = ["first", "later", "last"]

JOB = f"""
[model]
manifest = manifest.tsv
dtype = float64
[tokens]
path = {CHECKPOINTS}/tokens/docs.fit.bin
sequence_length = 128
limit = 6000
[predict]
references = 2
[run]
batch_tokens = 256
[output]
directory = out
"""

SITE = """
HEADSPAN_PROGRAM={program}
HEADSPAN_REPORT=./headspan-report
headspan_environment() {{
  :
}}
HEADSPAN_LAUNCHER=({launcher})
HEADSPAN_NODES={nodes}
HEADSPAN_RANKS_PER_NODE={ranks}
HEADSPAN_CPUS_PER_RANK=1
HEADSPAN_MEMORY=300M
HEADSPAN_TIME=60
HEADSPAN_AT_A_TIME={at_a_time}
HEADSPAN_REPORT_OPTIONS=(--time=10 --mem=100M)
"""


class Submission:
    """The output of submit.sh, and the ids of the jobs that it submitted."""

    def __init__(self, run):
        self.text, self.commands = run.stdout, [shlex.split(line) for line in run.stdout.splitlines()
                                                if line.startswith("sbatch ")]
        told = re.search(r"^submit: study job (\d+) \((\d+) of (\d+) .*aggregation job (\d+)", run.stdout, re.MULTILINE)
        self.study, self.open, self.units, self.report = told.groups() if told else ("", "0", "", "")

    def option(self, name, command=0):
        return next((word.split("=", 1)[1] for word in self.commands[command] if word.startswith(f"--{name}=")), None)


class Sweep(SlurmTest):
    program = mpiexec = ""

    @classmethod
    def setUpClass(cls):
        cls.start_cluster(SECONDS)
        cls.prepare()
        cls.dry = cls.submit("--dry-run")
        cls.queue_after_dry_run = cls.queued()
        cls.disturbed_array()
        cls.groups = cls.submit_and_wait("--mode", "groups", "--", "--model.select", "killed,cancelled", site="groups.env")
        cls.rest = cls.submit_and_wait()
        shutil.copy(CHECKPOINTS / f"step{ROWS['broken']}" / "model.safetensors", cls.folder / "tiny-olmo2" / "broken")
        cls.mended = cls.submit_and_wait()
        cls.last = cls.submit()
        cls.queue_after_last = cls.queued()
        cls.run_here(cls.mpiexec, "-n", 2, cls.program, "study", "job.ini", "--output.directory", "undisturbed")

    @classmethod
    def prepare(cls):
        rows = []
        for name, step in ROWS.items():
            path = CHECKPOINTS / f"step{step}"
            if name == "broken":
                path = cls.folder / "tiny-olmo2" / "broken"
                shutil.copytree(CHECKPOINTS / f"step{step}", path)
                os.truncate(path / "model.safetensors", 4000)
            rows.append(f"{name}\t{step}\t0\t{path}\n")
        cls.write("manifest.tsv", "name\tstep\ttokens\tpath\n" + "".join(rows))
        cls.write("job.ini", JOB)
        report = f'#!/bin/sh\nPYTHONPATH={ROOT}/analysis exec {sys.executable} -B -m headspan_report "$@"\n'
        cls.write("headspan-report", report).chmod(0o755)
        example = (ROOT / "slurm" / "site.env.example").read_text()
        cls.write("array.env", example + SITE.format(program=cls.program, launcher="srun --mpi=pmix --wait=5", nodes=2,
                                                     ranks=1, at_a_time=3))
        cls.write("groups.env", example + SITE.format(program=cls.program, launcher="mpirun --bind-to none", nodes=1,
                                                      ranks=2, at_a_time=2))

    @classmethod
    def write(cls, name, text):
        (cls.folder / name).write_text(text)
        return cls.folder / name

    @classmethod
    def submit(cls, *options, site="array.env"):
        return Submission(cls.run_here(ROOT / "slurm" / "submit.sh", "job.ini", "--site", site, *options))

    @classmethod
    def submit_and_wait(cls, *options, **site):
        submission = cls.submit(*options, **site)
        cls.wait_for_jobs(submission.study, submission.report)
        return submission

    @classmethod
    def log(cls, name):
        path = cls.folder / "out" / "log" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    @classmethod
    def result(cls, name, folder="out"):
        return cls.folder / folder / "tiny-olmo2" / f"{name}.h5"

    # --- what happens ---

    @classmethod
    def disturbed_array(cls):
        cls.array, cls.second = cls.submit(), cls.submit()
        ranks = cls.stop_while_working(TIMED, KILLED, CANCELLED)
        cls.run_here("scontrol", "update", f"JobId={cls.array.study}_{TIMED}", "TimeLimit=2")  # told within 30 s
        os.kill(ranks[KILLED][1], signal.SIGKILL)
        os.kill(ranks[KILLED][0], signal.SIGCONT)
        cls.run_here("scancel", f"{cls.array.study}_{CANCELLED}")
        timed = f"{cls.array.study}_{TIMED}"
        cls.wait_until("the time is nearly up", lambda: "USR1" in cls.log(timed))
        for rank in ranks[TIMED]:
            os.kill(rank, signal.SIGCONT)
        cls.wait_until("the task is requeued", lambda: cls.job(timed).get("Restarts") == "1")
        cls.state_in_the_queue = Path(f"{cls.result('timed')}.state").exists()
        cls.result_in_the_queue = cls.result("timed").exists()
        cls.run_here("scontrol", "update", f"JobId={timed}", "TimeLimit=60")
        cls.wait_for_jobs(cls.array.study, cls.array.report)

    @classmethod
    def stop_while_working(cls, *tasks):
        """Returns {task: the processes of its two ranks}, all stopped after the weights were loaded."""
        stopped = {}

        def all_stopped():
            for task in tasks:
                if task not in stopped and " loaded unit=" in cls.log(f"{cls.array.study}_{task}"):
                    stopped[task] = cls.ranks(task)
                    for rank in stopped[task]:
                        os.kill(rank, signal.SIGSTOP)
            return len(stopped) == len(tasks)

        cls.wait_until("three tasks work", all_stopped)
        if [len(ranks) for ranks in stopped.values()] != [2] * len(tasks):
            raise AssertionError(f"not two ranks each, or ended too early: {stopped}; {cls.situation()}")
        return stopped

    @classmethod
    def ranks(cls, task):
        processes = cls.processes(SLURM_ARRAY_JOB_ID=cls.array.study, SLURM_ARRAY_TASK_ID=task)
        return [process for process in processes if os.readlink(f"/proc/{process}/exe") == cls.program]

    # --- what was seen ---

    def task(self, row):
        job = self.job(f"{self.array.study}_{row}")
        return job["JobState"], job["ExitCode"], job["Restarts"]

    def test_dry_run_prints_the_commands_and_starts_nothing(self):
        self.assertEqual(self.queue_after_dry_run, [])
        self.assertEqual(len(self.dry.commands), 2)
        self.assertEqual(self.dry.commands[0], self.array.commands[0])
        self.assertEqual(self.dry.option("dependency", 1), "afterany:JOB")

    def test_array_is_of_all_rows(self):
        self.assertEqual((self.array.option("array"), self.array.open, self.array.units), ("0-6%3", "7", "7"))
        self.assertEqual(self.array.option("signal"), "B:USR1@120")
        self.assertEqual(self.array.option("dependency", 1), f"afterany:{self.array.study}")

    def test_undisturbed_tasks_are_done_on_both_nodes(self):
        for row, name in enumerate(ROWS):
            if name in PLAIN:
                self.assertEqual(self.task(row), ("COMPLETED", "0:0", "0"))
                self.assertIn(" ranks=2 ", self.log(f"{self.array.study}_{row}"))
                self.assertIn("on node[1-2]", self.log(f"{self.array.study}_{row}"))

    def test_running_sweep_is_not_submitted_again(self):
        self.assertEqual(self.second.text, "submit: all checkpoints that are not finished are in the queue already; nothing to "
                                           "submit\n")

    def test_task_that_lost_a_rank_fails(self):
        state, code, restarts = self.task(KILLED)
        self.assertEqual((state, restarts), ("FAILED", "0"))
        self.assertNotIn(code, ("0:0", "3:0"))

    def test_cancelled_task_is_not_requeued(self):
        state, _, restarts = self.task(CANCELLED)
        self.assertEqual((state, restarts), ("CANCELLED", "0"))

    def test_task_whose_time_is_up_goes_on_from_its_state(self):
        log = self.log(f"{self.array.study}_{TIMED}")
        self.assertEqual(self.task(TIMED), ("COMPLETED", "0:0", "1"))
        self.assertEqual((self.state_in_the_queue, self.result_in_the_queue), (True, False))
        self.assertEqual(re.findall(r"study: (USR1|exit code \d+|.*back into the queue)", log),
                         ["USR1", "exit code 3", "the state is saved; back into the queue", "exit code 0"])
        self.assertRegex(log, r"headspan resumed .*unit=timed")

    def test_broken_checkpoint_is_told_and_not_requeued(self):
        self.assertEqual(self.task(BROKEN), ("FAILED", "2:0", "0"))
        self.assertRegex(self.log(f"{self.array.study}_{BROKEN}"), r"headspan: \S+/broken/model.safetensors: ")

    def aggregation(self, submission):
        """Returns exit code, number of checkpoints, and names of those that are missing, from the table and the page.
        """
        log = self.log(f"{submission.report}.report")
        code = self.job(submission.report)["ExitCode"]
        return code, re.findall(r"status=done checkpoints=(\d+)", log), sorted(re.findall(r"name = (\S+): has no result", log))

    def test_first_aggregation_names_what_is_missing(self):
        self.assertEqual(self.aggregation(self.array), ("2:0", ["4"] * 2, sorted(["broken", "cancelled", "killed"] * 2)))

    def test_groups_take_checkpoints_in_turn(self):
        log = self.log(self.groups.study)
        self.assertEqual((self.groups.open, self.groups.units, self.groups.option("nodes")), ("2", "2", "2"))
        self.assertEqual(self.job(self.groups.study)["ExitCode"], "0:0")
        self.assertIn(" units=2 skipped=0 ranks=4 groups=2 ", log)
        self.assertEqual(self.aggregation(self.groups), ("0:0", ["6"] * 2, []))

    def test_broken_one_is_named_by_the_aggregation_of_the_rest(self):
        self.assertEqual((self.rest.option("array"), self.rest.open), ("2%3", "1"))
        self.assertEqual(self.job(f"{self.rest.study}_{BROKEN}")["ExitCode"], "2:0")
        self.assertEqual(self.aggregation(self.rest), ("2:0", ["6"] * 2, ["broken"] * 2))

    def test_mended_one_completes_the_sweep(self):
        self.assertEqual((self.mended.option("array"), self.mended.open), ("2%3", "1"))
        self.assertEqual(self.aggregation(self.mended), ("0:0", ["7"] * 2, []))
        self.assertTrue((self.folder / "out" / "emergence.csv").exists() and (self.folder / "out" / "report.html").exists())

    def test_finished_sweep_starts_nothing(self):
        self.assertEqual((self.last.commands, self.queue_after_last), ([], []))
        self.assertEqual(self.last.text, "submit: all 7 checkpoints are finished; nothing to submit\n")

    def test_results_are_those_of_an_undisturbed_run(self):
        for name in ROWS:
            with h5py.File(self.result(name)) as found, h5py.File(self.result(name, "undisturbed")) as expected:
                for variable in ("k/r2", "q/r2", "v/r2", "k/r2_heldout", "v/r2_forward_heldout"):
                    np.testing.assert_allclose(found[variable][:], expected[variable][:], rtol=0, atol=1e-10,
                                               err_msg=f"{name} {variable}")

    def test_only_results_are_left(self):
        files = {path.name for path in self.result("").parent.iterdir()}
        self.assertEqual(files, {f"{name}.h5{suffix}" for name in ROWS for suffix in ("", ".done")})


if __name__ == "__main__":
    Sweep.program, Sweep.mpiexec = os.path.realpath(sys.argv[1]), sys.argv[2]
    main(arguments=2)
