"""A study in an image of packaging/apptainer gives the R² of the program itself: under srun on one node and on two, and
under the image's own mpirun. For image.sh.

usage: test_image.py HEADSPAN MPIEXEC IMAGE [unittest's arguments]
"""
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slurm"))
from cluster import SlurmTest, main

PROGRAM, MPIEXEC, IMAGE = sys.argv[1:4]
SECONDS = 600
DATA = "/opt/headspan/share/headspan/checkpoints/tiny-olmo2"
OWN = Path(__file__).resolve().parents[2] / "checkpoints/tiny-olmo2"
UNPRIVILEGED = ["apptainer", "exec", "--userns", IMAGE]  # as users run it; root would share its namespace with all ranks
SRUN = ["srun", "--mpi=pmix", "--ntasks=2", "--wait=30"]


class Image(SlurmTest):
    @classmethod
    def setUpClass(cls):
        cls.start_cluster(SECONDS)
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
        cls.environment.update(OMP_NUM_THREADS="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")
        subprocess.run([MPIEXEC, "-n", "2", "--oversubscribe", Path(PROGRAM).resolve(), *cls.study(OWN, "own")], check=True,
                       cwd=cls.folder, stdout=subprocess.DEVNULL)

    @classmethod
    def study(cls, data, output):
        keys = {"model.path": f"{data}/step1500", "model.dtype": "float64", "tokens.path": f"{data}/tokens/docs.fit.bin",
                "tokens.limit": 1000, "tokens.sequence_length": 100, "run.memory_gib": 1, "output.directory": cls.folder / output}
        return ["study", *(f"--{key}={value}" for key, value in keys.items())]

    def r2(self, output):
        path, = (self.folder / output).rglob("step1500.h5")
        with h5py.File(path) as file:
            return np.concatenate([file[f"{stream}/r2_pairwise"][...].ravel() for stream in "kqv"])

    def check(self, output, *launcher):
        told = self.run_here(*launcher, *self.study(DATA, output))
        self.assertRegex(told.stdout, "(?m)^status=done")
        self.assertNotRegex(told.stderr, "ERROR|WARNING")
        np.testing.assert_allclose(self.r2(output), self.r2("own"), rtol=0, atol=1e-12)

    def test_srun_on_one_node(self):
        self.check("one", *SRUN, "--nodes=1", *UNPRIVILEGED, "headspan")

    def test_srun_on_two_nodes(self):
        self.check("two", *SRUN, "--nodes=2", *UNPRIVILEGED, "headspan")

    def test_the_image_is_a_program(self):
        self.check("run", *SRUN, "--nodes=1", IMAGE)

    def test_its_own_mpirun(self):
        self.check("mpirun", *UNPRIVILEGED, "mpirun", "-n", "2", "--oversubscribe", "headspan")

    def test_python(self):
        told = self.run_here(*UNPRIVILEGED, "headspan-report", "--help")
        self.assertIn("aggregate", told.stdout)


if __name__ == "__main__":
    main(3)
