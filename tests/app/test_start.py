"""How the programs start: a process that starts its program again keeps its name, and does not lose a signal to stop
that arrives meanwhile; who takes the launcher of another MPI is told. A signal ends commands that are short, as it would
end any program.

usage: test_start.py HEADSPAN MPIEXEC HEADSPAN_BENCH [unittest's arguments]
"""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

STOPPED = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
TWO_THREADS = {"OMP_NUM_THREADS": "2"}  # with one thread a program starts once
TOKENS = 30_000


def holds_signals(process):
    """Returns whether the main thread blocks just these signals, as from the start of main. (While a library starts a
    thread it blocks all.)"""
    held = int(Path(f"/proc/{process}/status").read_text().split("SigBlk:")[1].split()[0], 16)
    return held == sum(1 << (one - 1) for one in SIGNALS)


class Start(StudyTest):
    bench = ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tokens = cls.write_tokens("ids.bin", np.random.default_rng(6).integers(0, 64, TOKENS))
        cls.study_keys = {"model.path": GOLDEN / "olmo2_mha", "model.dtype": "float32", "tokens.path": tokens,
                          "tokens.sequence_length": 40, "tokens.limit": TOKENS, "run.batch_tokens": 1}

    def start(self, program, *arguments):
        environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        run = subprocess.Popen([program, *map(str, arguments)], env=environment | TWO_THREADS, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        return run

    def start_study(self, output):
        keys = {**self.study_keys, "output.directory": self.folder / output}
        return self.start(self.program, "study", *(f"--{key}={value}" for key, value in keys.items()))

    def wait_until(self, run, condition):
        """Returns whether the condition became true while the process ran, within some seconds."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and run.poll() is None:
            if condition(Path(f"/proc/{run.pid}")):
                return True
            time.sleep(0.001)
        return False

    def wait_until_started_again(self, run):
        self.assertTrue(self.wait_until(run, lambda process: "OMP_WAIT_POLICY=passive" in (process / "environ").read_text()))

    def test_a_process_has_the_name_of_its_program(self):
        for name, run in (("headspan", self.start_study("name")),
                          ("headspan-bench", self.start(self.bench, "gram", "--tokens=200000"))):
            with self.subTest(name):
                self.wait_until_started_again(run)
                named = self.wait_until(run, lambda process, name=name: (process / "comm").read_text() == name + "\n")
                self.assertTrue(named, f"never named {name}")

    def test_a_signal_before_the_program_has_started_again_is_noted(self):
        for one in SIGNALS:
            with self.subTest(one.name):
                run = self.start_study(one.name)
                self.wait_until_started_again(run)
                run.send_signal(one)
                printed = run.communicate(timeout=60)[0]
                self.assertEqual(run.returncode, STOPPED, printed)
                self.assertIn("headspan: stopped by a signal: 0 of 1 units are done, saved is the state of olmo2_mha; the same "
                              "command goes on\n", printed)

    def test_a_rank_does_not_wait_for_one_that_a_signal_ended_while_it_loaded(self):
        """The second rank is a process that never starts MPI."""
        keys = {**self.study_keys, "output.directory": self.folder / "alone"}
        options = [f"--{key}={value}" for key, value in keys.items()]
        rank = 'if [ ${OMPI_COMM_WORLD_RANK-$PMI_RANK} = 1 ]; then exec sleep 60; else echo $$ > "$0"; exec "$@"; fi'
        first = self.folder / "first_rank"
        run = self.start(self.mpiexec, "-n", 2, "sh", "-c", rank, first, self.program, "study", *options)
        self.assertTrue(self.wait_until(run, lambda _: first.exists() and first.read_text().strip()))
        self.assertTrue(self.wait_until(run, lambda _: holds_signals(int(first.read_text()))), "its main has not begun")
        begin = time.monotonic()
        os.kill(int(first.read_text()), signal.SIGTERM)
        printed = run.communicate(timeout=50)[0]
        self.assertLess(time.monotonic() - begin, 20)
        self.assertIn("headspan: stopped by a signal before all ranks had started; nothing of this run is kept\n", printed)
        version = subprocess.run([self.mpiexec, "--version"], capture_output=True, text=True, check=True).stdout
        of_killed = (signal.SIGKILL,) if "HYDRA" in version else ()  # MPICH may give that of the other rank, which it kills
        self.assertIn(run.returncode, (1, *of_killed))

    def test_processes_that_mpi_does_not_join_are_told(self):
        """Whoever takes the launcher of another MPI has many jobs of one rank each."""
        told = "headspan: notice: the launcher has started 3 processes, but .* joins none of them: each works alone"
        for variables, notices in (({"PMI_SIZE": "3", "PMI_RANK": "0"}, 1), ({"PMI_SIZE": "3", "PMI_RANK": "1"}, 0),
                                   ({"SLURM_STEP_NUM_TASKS": "3"}, 1), ({"SLURM_NTASKS": "3"}, 0)):
            with self.subTest(variables):
                run = subprocess.run([self.program, "inspect", GOLDEN / "olmo2_mha"], env=os.environ | variables, text=True,
                                     capture_output=True, check=True)
                self.assertEqual(len(re.findall(told, run.stderr)), notices, run.stderr)
        joined = subprocess.run([self.mpiexec, "-n", "3", self.program, "inspect", GOLDEN / "olmo2_mha"], text=True,
                                capture_output=True, check=True)
        self.assertNotIn("notice", joined.stderr)

    def test_a_command_that_does_not_save_is_ended_by_a_signal(self):
        for one in SIGNALS:
            with self.subTest(one.name):
                run = self.start(self.program, "theory", "--theory.trials=16777216")  # hours
                time.sleep(1)
                run.send_signal(one)
                self.assertEqual(run.wait(timeout=20), -one)


if __name__ == "__main__":
    Start.bench = sys.argv.pop(3)
    main()
