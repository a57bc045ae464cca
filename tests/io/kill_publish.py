"""Kills publish_loop with SIGKILL at random times; the published file must be complete every time.

usage: kill_publish.py PUBLISH_LOOP MPIEXEC KILLS

Every fifth run has two ranks, of which one or both are killed. The semaphore that Open MPI would create for each file
that it opens, and that a kill may leave locked, does not block access to the file.
"""
import ctypes
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np


def start(command, ranks):
    """Starts the loop and returns the process and the ids of its ranks, which they print when MPI is up."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, [int(process.stdout.readline()) for _ in range(ranks)]


def read_done(path):
    try:
        with open(path + ".done", encoding="utf-8") as file:
            return dict(line.rstrip("\n").split(" ", 1) for line in file)
    except FileNotFoundError:
        return {}


def check(path):
    """Returns the version under the final name, 0 if there is none. Fails on a partial file or a .done that does not
    match."""
    done = read_done(path)
    if not os.path.exists(path):
        assert not done, "a .done without its file"
        return 0
    with h5py.File(path, "r") as file:
        version = int(file.attrs["version"])
        assert np.all(file["values"][...] == version), "a partial file"
    if done:
        assert set(done) == {"size", "sha256", "job_id", "job_digest"}, done
        with open(path, "rb") as file:
            data = file.read()
        matches = int(done["size"]) == len(data) and done["sha256"] == hashlib.sha256(data).hexdigest()
        assert matches == (int(done["job_digest"]) == version), (done, version)
    return version


def publish_behind_a_locked_semaphore(loop, path):
    """Publishes once while the semaphore named after the temporary file is locked, as after a kill."""
    library = ctypes.CDLL(None, use_errno=True)
    library.sem_open.restype = ctypes.c_void_p
    name = f"/OMPIO_{os.path.basename(path)}.tmp.job1".encode()
    semaphore = library.sem_open(name, os.O_CREAT, 0o600, 0)
    assert semaphore, os.strerror(ctypes.get_errno())
    try:
        subprocess.run([loop, path, "1", "once"], stdout=subprocess.DEVNULL, check=True, timeout=20)
    finally:
        library.sem_unlink(name)
    assert check(path) == 1


def main():
    loop, mpiexec, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
    chance = random.Random(1)
    interrupted = 0
    with tempfile.TemporaryDirectory() as folder:
        publish_behind_a_locked_semaphore(loop, os.path.join(folder, "result.h5"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.h5")
        version = 0
        for kill in range(kills):
            ranks = 2 if kill % 5 == 4 else 1
            launcher = [mpiexec, "-n", "2"] if ranks == 2 else []
            process, victims = start(launcher + [loop, path, str(version + 1)], ranks)
            time.sleep(chance.uniform(0, 0.1))
            for victim in victims[: chance.randint(1, ranks)]:
                os.kill(victim, signal.SIGKILL)
            process.wait()
            interrupted += any(".tmp." in name for name in os.listdir(folder))
            after = check(path)
            assert after >= version, (after, version)
            version = after
        subprocess.run([loop, path, str(version + 1), "once"], check=True)
        assert check(path) == version + 1
        assert sorted(os.listdir(folder)) == ["result.h5", "result.h5.done"], os.listdir(folder)
    print(f"{kills} kills, {interrupted} of them inside a publication, {version} files published, none partial")
    assert interrupted >= kills // 4, "too few kills hit a publication to say anything"


main()
