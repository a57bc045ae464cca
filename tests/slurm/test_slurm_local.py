"""The Slurm under which the tests of slurm/ run is a real one: checks what they rely on, with jobs other than
headspan's.

usage: test_slurm_local.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import subprocess
from pathlib import Path

from cluster import HERE, SlurmTest, main

SECONDS = 150


class Jobs(SlurmTest):
    @classmethod
    def setUpClass(cls):
        cls.start_cluster(SECONDS)

    def log(self, job):
        path = self.folder / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_line(self, job, line):
        self.wait_until(f"job {job} prints {line}", lambda: line in self.log(job).splitlines())

    def test_nodes_have_their_own_names(self):
        job = self.sbatch("--nodes=2", "--ntasks-per-node=2", script="srun hostname")
        self.wait_for_jobs(job)
        own_names = subprocess.run(["unshare", "-u", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
        names = ["node1", "node1", "node2", "node2"] if own_names else [os.uname().nodename] * 4
        self.assertEqual(sorted(self.log(job).split()), names)

    def test_array_never_has_more_tasks_at_once_than_it_may(self):
        script = "touch at.$SLURM_ARRAY_TASK_ID; ls at.* | wc -l; sleep 0.5; rm at.$SLURM_ARRAY_TASK_ID"
        array = self.sbatch("--array=0-3%2", "--output=%A.%a.log", script=script)
        after = self.sbatch(f"--dependency=afterany:{array}", script=f"cat {array}.?.log | wc -l")
        self.wait_for_jobs(array, after)
        at_once = [int((self.folder / f"{array}.{task}.log").read_text()) for task in range(4)]
        self.assertLessEqual(max(at_once), 2)
        self.assertEqual(self.log(after).strip(), "4")

    def test_exit_code_is_kept(self):
        job = self.sbatch(script="exit 3")
        self.wait_for_jobs(job)
        self.assertEqual((self.job(job)["JobState"], self.job(job)["ExitCode"]), ("FAILED", "3:0"))

    def test_afterok_of_a_failed_job_never_runs(self):
        failed = self.sbatch(script="exit 1")
        job = self.sbatch(f"--dependency=afterok:{failed}", "--kill-on-invalid-dep=yes", script="echo ran")
        self.wait_for_jobs(failed, job)
        self.assertEqual((self.job(job)["JobState"], self.log(job)), ("CANCELLED", ""))

    def test_cancelled_job_gets_a_term_in_its_shell(self):
        # A loop: the TERM ends its children too, and they may be gone before it reaches the shell.
        job = self.sbatch(script="trap 'echo TERM; exit 1' TERM; echo up; while true; do sleep 300 & wait; done")
        self.wait_for_line(job, "up")
        self.run_here("scancel", job)
        self.wait_for_jobs(job)
        self.assertEqual(self.job(job)["JobState"], "CANCELLED")
        self.assertIn("TERM", self.log(job).splitlines())

    def test_batch_signal_reaches_the_shell_alone_which_requeues_its_job(self):
        script = ("trap 'echo USR1; scontrol requeue $SLURM_JOB_ID; exit 0' USR1; echo run ${SLURM_RESTART_COUNT:-0}; "
                  "[ -n \"$SLURM_RESTART_COUNT\" ] || { srun sleep 300 & wait; }")
        job = self.sbatch("--requeue", "--open-mode=append", script=script)
        self.wait_for_line(job, "run 0")
        self.run_here("scancel", "--batch", "--signal=USR1", job)
        self.wait_for_line(job, "run 1")
        self.wait_for_jobs(job)
        told = [line for line in self.log(job).splitlines() if line == "USR1" or line.startswith("run")]
        self.assertEqual((told, self.job(job)["JobState"], self.job(job)["Restarts"]),
                         (["run 0", "USR1", "run 1"], "COMPLETED", "1"))

    def test_nothing_outlives_its_job(self):
        job = self.sbatch(script="setsid sleep 4321 & sleep 0.5; echo left $!")
        self.wait_until("the job is known to its process", lambda: self.processes(SLURM_JOB_ID=job))
        self.wait_for_jobs(job)
        self.wait_until("its processes have ended", lambda: not self.processes(SLURM_JOB_ID=job))
        self.assertRegex(self.log(job), "left")

    def test_more_nodes_than_there_are_is_refused(self):
        refused = self.run_here("sbatch", "--nodes=3", "--wrap", "true", codes=(1,))
        self.assertIn("Node count specification invalid", refused.stderr)


class Stop(SlurmTest):
    def test_leaves_no_process_and_no_file(self):
        self.start_cluster(SECONDS)
        job = self.sbatch(script="setsid sleep 4321 & sleep 300")
        self.wait_until("the job runs", lambda: self.processes(SLURM_JOB_ID=job))
        daemons = [int(line.split()[1]) for line in (self.cluster / "processes").read_text().splitlines()]
        self.assertEqual(len(daemons), 4)

        self.stop_cluster()

        self.assertEqual([daemon for daemon in daemons if is_alive(daemon)], [])
        self.assertEqual(self.processes(), [])
        self.assertFalse(self.cluster.exists())

    def test_refuses_a_folder_that_is_no_cluster(self):
        stop = subprocess.run(["bash", HERE / "slurm_local.sh", "stop", HERE], capture_output=True, text=True, check=False)
        self.assertEqual((stop.returncode, (HERE / "slurm_local.sh").exists()), (1, True))


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    main(arguments=2)
