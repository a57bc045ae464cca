"""A GPU that is too small for a forward: one line says so.

    test_out_of_memory.py HEADSPAN_ON_GPUS MPIEXEC
"""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import TINY_OLMO2, StudyTest, main


class OutOfMemory(StudyTest):
    def test_is_told_in_one_line(self):
        os.environ["SIMULATED_GPU_BYTES"] = str(12 << 20)
        run = self.run_program(
            1, "study", "--model.path", TINY_OLMO2 / "step0", "--tokens.path", TINY_OLMO2 / "tokens/docs.fit.bin",
            "--tokens.limit", 4096, "--output.directory", self.folder / "none")
        self.assertEqual(run.returncode, 1)
        told = [line for line in run.stderr.splitlines() if "out of memory" in line]
        self.assertEqual(len(told), 1, run.stderr)
        self.assertRegex(told[0], r"^headspan: rank 0: .*Tried to allocate \d+ bytes")
        self.assertNotIn("frame #", run.stderr)
        self.assertEqual(list(self.folder.rglob("*.h5*")), [])


if __name__ == "__main__":
    main()
