"""What may happen to the jobs of a sweep, brought about in the tests' Slurm: ranks that are killed or stand still, jobs that go
back into the queue, nodes that are lost. For sweep.py."""
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slurm"))
from cluster import HERE, SlurmTest

SECONDS_TO_END = 600  # a lock of another node is taken over after 120; others may use the machine too
GRACE = 5  # seconds between a preempted job's SIGTERM and the earliest moment of its end
URGENT = f"""
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main GraceTime={GRACE}
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF DefMemPerCPU=10 State=UP
"""


def uts(process):
    """Returns the namespace of a process in which its node has its name; "" if the process has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/uts")
    except OSError:
        return ""


class FaultySlurm(SlurmTest):
    """Each fault takes a running job or task. Its row in FAULTS says how jobs may end after it: REQUEUED, or a state of Slurm's.
    Whatever happens, a job may have been over before. The results are in the folder `out`."""

    program = ""
    spared = set()  # rows that are no use as a victim
    chance = random.Random(11)

    @classmethod
    def start_faulty_cluster(cls, seconds):
        cls.start_cluster(seconds)
        conf = cls.cluster / "slurm.conf"
        main = next(line for line in conf.read_text().splitlines() if line.startswith("PartitionName=main "))
        conf.write_text(conf.read_text().replace(main, URGENT.replace("PartitionName=main", main)))
        cls.temporary = cls.folder / "tmp"  # of all jobs, so that what they leave is seen
        cls.temporary.mkdir()
        cls.environment["TMPDIR"] = str(cls.temporary)
        cls.run_here("scontrol", "reconfigure")

    @classmethod
    def running(cls):
        """Returns {job or task: its restarts} of sweeps that run."""
        listed = cls.run_here("squeue", "--noheader", "--states=R", "--partition=main", "--format=%i %j").stdout
        rows = [line.split() for line in listed.splitlines()]
        return {job: cls.job(job)["Restarts"] for job, name in rows if not name.endswith("-report")}

    @classmethod
    def restarts(cls):
        """Returns {job or task: how often it was started again}."""
        listed = cls.run_here("scontrol", "--oneliner", "show", "job").stdout.splitlines()
        jobs = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in listed]
        return {f"{job['ArrayJobId']}_{job['ArrayTaskId']}" if "ArrayTaskId" in job else job["JobId"]: job["Restarts"]
                for job in jobs if "Restarts" in job}

    @classmethod
    def processes_of_job(cls, job):
        return cls.processes(SLURM_JOB_ID=cls.job(job)["JobId"])

    @classmethod
    def ranks(cls, job):
        return [process for process in cls.processes_of_job(job) if program_of(process) == cls.program]

    # --- the faults ---

    @classmethod
    def send(cls, job, sent):
        """Sends a signal to one rank. Returns its process, or None if there was none."""
        ranks = cls.ranks(job)
        rank = cls.chance.choice(ranks) if ranks else None
        return rank if rank and signal_process(rank, sent) else None

    @classmethod
    def kill(cls, job):
        return cls.send(job, signal.SIGKILL)

    @classmethod
    def pause(cls, job):
        rank = cls.send(job, signal.SIGSTOP)
        if rank:
            time.sleep(cls.chance.uniform(0.2, 3))
            signal_process(rank, signal.SIGCONT)
        return rank

    @classmethod
    def hang(cls, job):
        rank = cls.send(job, signal.SIGSTOP)
        if rank:
            time.sleep(cls.chance.uniform(0.2, 3))
            cls.run_here("scancel", job)
        return rank

    @classmethod
    def requeue(cls, job):
        return not cls.run_here("scontrol", "requeue", job, codes=(0, 1)).stderr

    @classmethod
    def preempt(cls, _):
        urgent = cls.sbatch("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", script="sleep 1")
        cls.wait_for_jobs(urgent)
        return True

    @classmethod
    def restart_slurmd(cls, _):
        node = cls.chance.choice(("node1", "node2"))
        os.kill(cls.daemon(node), signal.SIGKILL)
        time.sleep(cls.chance.uniform(0, 3))
        cls.boot(node)
        return True

    @classmethod
    def lose_node(cls, _):
        """Slurm misses the node after some time. When the node is back its temporary files are gone."""
        node = cls.chance.choice(("node1", "node2"))
        for process in cls.processes_of(node):
            signal_process(process, signal.SIGKILL)
        time.sleep(cls.chance.uniform(0, 3))
        cls.run_here("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
        for path in (*(cls.cluster / "tmp" / node).iterdir(), *cls.temporary.glob(f"ompi.{node}.*")):
            shutil.rmtree(path)
        cls.boot(node)
        return True

    FAULTS = {  # what happens: (the fault, how jobs may end)
        "a rank is killed": ("kill", {"FAILED"}),
        "a rank stands still and goes on": ("pause", {"GOES ON", "COMPLETED"}),
        "a rank stands still, the job is cancelled": ("hang", {"CANCELLED"}),
        "scontrol requeue": ("requeue", {"REQUEUED"}),
        "preemption": ("preempt", {"REQUEUED"}),
        "slurmd is killed and starts again": ("restart_slurmd", {"GOES ON", "COMPLETED"}),
        "a node is lost": ("lose_node", {"REQUEUED", "FAILED"}),  # mpirun may miss it before Slurm does
    }

    # --- nodes ---

    @classmethod
    def daemon(cls, node):
        """Returns the process of a node's slurmd."""
        started = [line.split() for line in (cls.cluster / "processes").read_text().splitlines()]
        return int([process for name, process, _ in started if name == node][-1])

    @classmethod
    def processes_of(cls, node):
        own = uts(cls.daemon(node))
        if own in ("", uts("self")):
            raise AssertionError(f"{node} shares its name with this machine; losing it would end this machine's processes")
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if uts(entry.name) == own]

    @classmethod
    def boot(cls, node):
        cls.run_here("bash", HERE / "slurm_local.sh", "boot", cls.cluster, node)
        cls.wait_until(f"{node} is back", lambda: not cls.run_here(
            "sinfo", "--noheader", f"--nodes={node}", "--states=down,no_respond,unknown", "--format=%n").stdout)

    # --- what comes of it ---

    @classmethod
    def done(cls):
        """Returns how many units are done."""
        return len(list((cls.folder / "out").rglob("*.h5.done")))

    @classmethod
    def outcome(cls, job, restarts):
        """Returns REQUEUED, or Slurm's state of a job; "" as long as it goes on."""
        now = cls.job(job)
        if now["Restarts"] != restarts:
            return "REQUEUED"
        return "" if now["JobState"] in ("RUNNING", "COMPLETING", "PENDING") else now["JobState"]

    @classmethod
    def suffer(cls, what):
        """Brings a fault about at some instant of some job. Returns {job that it met: how that ended, or GOES ON} and the seconds until
        then; None if there was nothing to meet."""
        time.sleep(cls.chance.uniform(0, 3))
        victims = cls.running()
        candidates = sorted(job for job in victims if job.partition("_")[2] not in cls.spared)
        if not candidates:
            return None
        victim = cls.chance.choice(candidates)
        name, expected = cls.FAULTS[what]
        meets_all = name in ("preempt", "restart_slurmd", "lose_node")
        if not meets_all:
            victims = {victim: victims[victim]}
        before, begin = cls.restarts(), time.monotonic()
        if not getattr(cls, name)(victim):
            return None
        if meets_all:  # also those that began meanwhile
            victims = {**{job: before.get(job, "0") for job, count in cls.restarts().items() if count != before.get(job, "0")}, **victims}
        outcomes, enough = {}, cls.done() + 4  # for an allocation, whose groups go on for long
        for job, restarts in victims.items():
            while not (outcome := cls.outcome(job, restarts)) and time.monotonic() - begin < SECONDS_TO_END:
                if "GOES ON" in expected and "_" not in job and cls.done() >= enough:
                    outcome = "GOES ON"
                    break
                time.sleep(0.1)
            outcomes[job] = outcome
        return outcomes, time.monotonic() - begin


def signal_process(process, sent):
    """Returns whether the process was there."""
    try:
        os.kill(process, sent)
        return True
    except ProcessLookupError:
        return False


def program_of(process):
    try:
        return os.readlink(f"/proc/{process}/exe")
    except OSError:
        return ""
