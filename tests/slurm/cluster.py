"""A Slurm of this machine only (slurm_local.sh), as a user sees it. For the tests of this folder.

`main` runs a test file with its arguments, in a network namespace of its own if the machine has no network: Slurm looks
up names, and finds none if 127.0.0.1 is the only address.
"""
import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CPUS = 4  # of each of two nodes, whether they exist or not

OWN_NETWORK = """
ip link set lo up && ip link add here type veth peer name there && ip addr add 10.77.0.1/24 dev here &&
ip link set here up && ip link set there up && exec "$@"
"""


class SlurmTest(unittest.TestCase):
    """A class of tests with one cluster and one folder to work in, both removed when the program ends."""

    deadline = 0.0  # time.monotonic() at which waiting ends
    environment = None  # of the cluster's users

    @classmethod
    def start_cluster(cls, seconds):
        """`seconds`: for the whole class; after that any wait fails."""
        cls.deadline = time.monotonic() + seconds
        cls.folder = Path(tempfile.mkdtemp(prefix="headspan_slurm_"))
        atexit.register(shutil.rmtree, cls.folder)
        cls.folder.chmod(0o755)  # for munged
        cls.cluster = cls.folder / "cluster"
        atexit.register(cls.stop_cluster)  # before the folder goes, and whatever ends this program
        exports = cls.run_here("bash", HERE / "slurm_local.sh", "start", cls.cluster, "2", str(CPUS)).stdout
        cls.environment = os.environ | dict(re.findall(r"^export (\w+)=(.*)$", exports, re.MULTILINE))

    @classmethod
    def stop_cluster(cls):
        if cls.cluster.exists():
            subprocess.run(["bash", HERE / "slurm_local.sh", "stop", cls.cluster], check=False)

    @classmethod
    def run_here(cls, *command, codes=(0,)):
        """Returns the finished process of a command in the folder, with the cluster's environment."""
        run = subprocess.run(list(map(str, command)), cwd=cls.folder, env=cls.environment, capture_output=True, text=True,
                             timeout=120, check=False)
        if run.returncode not in codes:
            raise AssertionError(f"exit code {run.returncode}: {command}\n{run.stdout}{run.stderr}")
        return run

    @classmethod
    def sbatch(cls, *options, script):
        """Returns the id of a new job, whose log is ID.log."""
        return cls.run_here("sbatch", "--parsable", "--output=%j.log", *options, "--wrap", script).stdout.strip()

    @classmethod
    def wait_until(cls, what, condition):
        """Returns the first true value of the condition."""
        while not (value := condition()):
            if time.monotonic() > cls.deadline:
                raise AssertionError(f"timed out waiting until {what}; {cls.situation()}")
            time.sleep(0.02)
        return value

    @classmethod
    def situation(cls):
        logs = [f"--- {path}\n{path.read_text()}" for path in sorted(cls.folder.rglob("*.log")) if "cluster" not in path.parts]
        return cls.run_here("squeue", codes=range(256)).stdout + "".join(logs)

    @classmethod
    def wait_for_jobs(cls, *jobs):
        cls.wait_until(f"jobs {jobs} have left the queue", lambda: not cls.queued(*jobs))

    @classmethod
    def queued(cls, *jobs):
        """Returns the ids of jobs and tasks in the queue: all, or those of these jobs."""
        return cls.run_here("squeue", "--noheader", "--array", "--format=%i",
                            *(["--jobs=" + ",".join(jobs)] if jobs else [])).stdout.split()

    @classmethod
    def job(cls, name):
        """Returns what scontrol says about a job, or about a task JOB_INDEX: {"JobState": ..., ...}."""
        return dict(re.findall(r"(\w+)=(\S*)", cls.run_here("scontrol", "--oneliner", "show", "job", name).stdout))

    @classmethod
    def processes(cls, **variables):
        """Returns the ids of the cluster's processes with these environment variables."""
        wanted = {f"{name}={value}" for name, value in {"SLURM_CONF": cls.cluster / "slurm.conf", **variables}.items()}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted <= set((entry / "environ").read_text(errors="replace").split("\0")):
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile
                continue
        return found


def has_network():
    try:
        return bool(socket.getaddrinfo("localhost", None, socket.AF_INET, flags=socket.AI_ADDRCONFIG))
    except socket.gaierror:
        return False


def main(arguments):
    """Runs the tests of the calling file. `arguments`: how many of the command line's arguments belong to the file."""
    if not has_network() and "HEADSPAN_OWN_NETWORK" not in os.environ:
        os.environ["HEADSPAN_OWN_NETWORK"] = "yes"
        os.execvp("unshare", ["unshare", "--net", "bash", "-c", OWN_NETWORK, "network", sys.executable, "-B", *sys.argv])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unittest lets nothing else through
    unittest.main(argv=sys.argv[:1] + sys.argv[1 + arguments:])
