"""A study under srun is interrupted many times, at random times in random ways, with the checks of
tests/app/test_interrupts.py, which does the same under mpirun. Slurm ends ranks with SIGKILL if srun itself is told to
end, and some seconds after a cancellation; a signal from scancel reaches only the ranks.

usage: test_srun_interrupts.py HEADSPAN MPIEXEC INTERRUPTS RANKS
"""
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))
from cluster import SlurmTest, main
from test_interrupts import CRASH, TOKENS_ALONE, check_files, command, compare, prepare, results, states, unfinished_files

PROGRAM, INTERRUPTS, RANKS = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
SECONDS = 60 + 30 * INTERRUPTS  # where others use the machine too; 2 each where not
LAYOUT = (f"--ntasks={RANKS}", f"--nodes={min(RANKS, 2)}")
# A rank that was not there yet when a signal ended the others waits in MPI_Init; srun ends it after so many seconds.
SRUN = ["srun", "--mpi=pmix", "--wait=10"]
DONE, FAILED, STOPPED = 0, 1, 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
KILLED = {128 + signal.SIGKILL}  # srun's exit code for it
# Open MPI's own, once in some hundred starts over two nodes, also of a program that only starts MPI (slurm/README.md).
CRASHED_AT_START = 128 + signal.SIGSEGV
LAUNCH_CANCELLED = re.compile("Task launch for StepId=.* failed|Application launch failed")  # there was no rank yet


def ended_while_loading(sent):
    """The exit codes when a rank is ended by the signal itself, and the others by their time-out or srun's."""
    return {128 + sent, FAILED} | KILLED


class Interrupts(SlurmTest):
    @classmethod
    def setUpClass(cls):
        if shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin") is None:
            raise unittest.SkipTest("no Slurm here; bash jobs/packages.sh test installs it")
        cls.start_cluster(SECONDS)
        prepare(cls.folder)

    def srun(self, output, log, job="study"):
        launcher = [*SRUN, f"--job-name={job}", *LAYOUT]
        run = [*launcher, *command([], PROGRAM, self.folder, output, TOKENS_ALONE)]
        return subprocess.Popen(run, env=self.environment, stdout=log, stderr=log)

    def run_through(self, output):
        """Returns the seconds that the run took."""
        for _ in range(3):
            start = time.monotonic()
            with open(self.folder / "log", "w+", encoding="utf-8") as log, self.srun(output, log) as run:
                code = run.wait(timeout=120)
            if code != CRASHED_AT_START:
                break
        self.assertEqual(code, DONE, (self.folder / "log").read_text())
        return time.monotonic() - start

    def scancel(self, *arguments):
        self.run_here("scancel", *arguments, codes=range(256))  # it fails where the step has ended or not begun

    # Ways to interrupt a run under srun, whose job has this id; each returns the exit codes besides DONE and STOPPED, and
    # whether the ranks had the time to tidy up.

    def signal_the_step(self, run, job, sent):
        self.scancel(f"--signal={sent.name}", f"{job}.0")
        return ended_while_loading(sent), True

    def cancel_the_job(self, run, job, sent):
        self.scancel(job)
        return ended_while_loading(signal.SIGTERM) | KILLED, True  # the KILL comes KillWait seconds later

    def signal_srun(self, run, job, sent):
        """srun forwards USR1, kills its ranks on TERM, and on a first INT only prints their state."""
        run.send_signal(sent)
        return ended_while_loading(sent) | (KILLED if sent == signal.SIGTERM else set()), sent != signal.SIGTERM

    def interrupt_srun(self, way, sent, instant, name):
        """Returns (exit code, output, the exit codes that are allowed, whether it had the time to tidy up)."""
        begin = time.monotonic()
        with open(self.folder / "log", "w+", encoding="utf-8") as log, self.srun("disturbed", log, name) as run:
            job = self.wait_until("the job is known", lambda: run.poll() is not None or self.run_here(
                "squeue", "--noheader", f"--name={name}", "--format=%i").stdout.strip())
            time.sleep(max(0, begin + instant - time.monotonic()))
            codes, tidy = way(run, job, sent)
            code = run.wait(timeout=60)
        return code, (self.folder / "log").read_text(), codes, tidy

    def interrupt_batch(self, sent, instant):
        """The same for a batch job: its ranks and srun get the signal at once."""
        run = [*SRUN, *command([], PROGRAM, self.folder, "disturbed", TOKENS_ALONE)]
        job = self.sbatch(*LAYOUT, script="exec " + shlex.join(run))
        time.sleep(instant)
        self.scancel("--full", f"--signal={sent.name}", job)
        self.wait_for_jobs(job)
        code, by_signal = map(int, self.job(job)["ExitCode"].split(":"))
        log = self.folder / f"{job}.log"
        return (128 + by_signal if by_signal else code, log.read_text() if log.exists() else "",
                ended_while_loading(sent) | (KILLED if sent == signal.SIGTERM else set()), sent != signal.SIGTERM)

    def interrupt(self, number, seconds, chance):
        """Returns (how, exit code, output, whether it must leave nothing unfinished)."""
        sent, instant = chance.choice(SIGNALS), chance.uniform(0, 1.1 * seconds)
        way = chance.choice((self.signal_the_step, self.cancel_the_job, self.signal_srun, None))
        code, told, codes, tidy = (self.interrupt_srun(way, sent, instant, f"interrupted{number}") if way else
                                   self.interrupt_batch(sent, instant))
        how = (way.__name__ if way else "signal_all", sent.name)
        if " headspan study units=" not in told and (LAUNCH_CANCELLED.search(told) or code == CRASHED_AT_START):
            return how, code, told, tidy
        self.assertIn(code, {DONE, STOPPED} | codes, (number, how, told))
        self.assertNotRegex(told, CRASH)
        return how, code, told, tidy

    def test_it_always_goes_on(self):
        chance = random.Random(RANKS)
        seconds = self.run_through("undisturbed")
        expected = results(self.folder / "undisturbed")
        self.assertEqual(len(expected), 2)
        seen = {}
        for number in range(INTERRUPTS):
            stood = unfinished_files(self.folder / "disturbed")  # a killed run's, until one that gets so far removes them
            how, code, told, tidy = self.interrupt(number, seconds, chance)
            seen[(*how, code)] = seen.get((*how, code), 0) + 1
            if (self.folder / "disturbed").exists():
                check_files(self.folder / "disturbed")
            unfinished = unfinished_files(self.folder / "disturbed") - stood
            self.assertFalse(tidy and unfinished, (number, how, code, unfinished, told))
            self.assertEqual(code == STOPPED, "status=stopped" in told, told)
            if code == STOPPED:
                self.assertRegex(told, "headspan: stopped by a signal: .*; the same command goes on\n")
                self.assertEqual(re.findall(r"saved is the state of (\w+);", told), states(told), told)
            if code == DONE:
                compare(results(self.folder / "disturbed"), expected)
                shutil.rmtree(self.folder / "disturbed")
        self.run_through("disturbed")
        compare(results(self.folder / "disturbed"), expected)
        left = {path.name for path in (self.folder / "disturbed").rglob("*") if path.is_file()}
        self.assertEqual(left, set(expected) | {f"{name}.done" for name in expected})
        print(f"{INTERRUPTS} interrupts of a study of {seconds:.1f} s on {RANKS} ranks: {seen}")
        self.assertGreater(sum(count for (_, _, code), count in seen.items() if code == STOPPED), 0)


if __name__ == "__main__":
    main(arguments=4)
