"""slurm/bundle.sh: the folder that it makes works where there is only a shell, a kernel and PyTorch's wheel, and gives
the results of the program itself. Needs root, for chroot.

usage: test_bundle.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import h5py

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import TESTS, TINY_OLMO2, StudyTest, main

BUNDLE = TESTS.parent / "slurm" / "bundle.sh"
KEYS = {"tokens.limit": 1000, "tokens.sequence_length": 100, "run.memory_gib": 1}


class Bundle(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root")
        cls.root = cls.folder / "root"
        for name in ("bin", "data", "dev", "proc", "sys", "tmp"):
            (cls.root / name).mkdir(parents=True)
        shutil.copy("/bin/busybox", cls.root / "bin/sh")
        build = Path(cls.program).parent
        cls.bundle("../bundle", code=0, build=build)
        shutil.move(cls.folder / "bundle", cls.root / "bundle")
        cls.torch = re.search("^HEADSPAN_TORCH_DIR:PATH=(.*)$", (build / "CMakeCache.txt").read_text(), re.M).group(1)

    @classmethod
    def bundle(cls, out, code, build):
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}  # tests/run.sh sets it
        done = subprocess.run(["bash", BUNDLE, cls.root / out, build], capture_output=True, text=True, timeout=120, check=False,
                              env=environment)
        if done.returncode != code:
            raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
        return done.stderr

    def inside(self, *command, threads=1):
        """Runs a command that sees the files of `root`, those of the kernel, and those of the wheel in /packages."""
        mounts = [(f"/{name}", self.root / name) for name in ("dev", "proc", "sys")]
        # The last bits depend on the kernels of BLAS, and on the ways that were measured as the fastest and are kept.
        kernels = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
        environment = {"OMP_NUM_THREADS": str(threads), **kernels}
        kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headspan"
        if kept.is_dir():
            shutil.copytree(kept, self.root / "cache/headspan", dirs_exist_ok=True)
            environment["XDG_CACHE_HOME"] = "/cache"
        if self.torch:
            (self.root / "packages").mkdir(exist_ok=True)
            mounts.append((Path(self.torch).parent, self.root / "packages"))
            environment["HEADSPAN_TORCH_DIR"] = "/packages/torch"
        script = "".join(f"mount --rbind '{there}' '{here}' && " for there, here in mounts) + 'exec chroot "$@"'
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", self.root, "/bin/sh", *map(str, command)],
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment}, capture_output=True, text=True,
                              timeout=120, check=False)

    def test_it_computes_where_there_is_nothing_else(self):
        shutil.copytree(TINY_OLMO2 / "step1500", self.root / "data/step1500")
        for name in ("docs.fit.bin", "docs.fit.json"):
            shutil.copy(TINY_OLMO2 / "tokens" / name, self.root / "data")
        keys = {**KEYS, "model.path": "/data/step1500", "tokens.path": "/data/docs.fit.bin", "output.directory": "/data/out"}
        own, = self.study(1, "own", {**KEYS, "model.path": TINY_OLMO2 / "step1500",
                                     "tokens.path": TINY_OLMO2 / "tokens/docs.fit.bin"})
        run = self.inside("/bundle/headspan", "study", *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        found, = (self.root / "data/out").rglob("step1500.h5")
        with h5py.File(found) as there, h5py.File(own) as here:
            for stream in "kqv":
                self.assertEqual(there[f"{stream}/r2_pairwise"][...].tobytes(), here[f"{stream}/r2_pairwise"][...].tobytes())
        bench = self.inside("/bundle/headspan-bench", "--help")
        self.assertEqual(bench.returncode, 0, bench.stderr)

    def test_programs_that_start_themselves_again(self):
        model = Path("/data/step0")
        shutil.copytree(TINY_OLMO2 / "step0", self.root / model.relative_to("/"))
        (self.root / "data/few.bin").write_bytes(b"\5\0" * 300)
        # With several threads the program starts again with an environment in which idle threads sleep.
        bench = self.inside("/bundle/headspan-bench", "device", "--folder", model, "--tokens", 300, "--sequence-length", 100,
                            threads=2)
        self.assertEqual(bench.returncode, 0, bench.stdout + bench.stderr)
        # plan measures the memory of an idle process of the program: LibTorch alone takes more than this.
        keys = {**KEYS, "model.path": model, "tokens.path": "/data/few.bin", "output.directory": "/data/plan"}
        plan = self.inside("/bundle/headspan", "plan", "--ranks=1", *(f"--{key}={value}" for key, value in keys.items()))
        self.assertEqual(plan.returncode, 0, plan.stdout + plan.stderr)
        program = re.search(r"^bytes_of_the_fullest_rank program=(\S+)", plan.stdout, re.M)
        self.assertGreater(float(program.group(1)), 50e6, plan.stdout)

    def test_what_cannot_be_bundled_is_refused_in_one_line(self):
        build = Path(self.program).parent
        self.assertRegex(self.bundle("data", 2, build), r"^bundle: .*data: is there already; .+\n$")
        self.assertRegex(self.bundle("new", 2, self.root), r"^bundle: .*/headspan: is not there; .+\n$")
        self.assertFalse((self.root / "new").exists())


if __name__ == "__main__":
    main()
