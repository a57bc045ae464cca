"""A stopped unit resumes: its result is bit-identical on the same ranks, equal up to rounding on others.

usage: test_resume.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import re
import sys
import time
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from compare import datasets, differences
from program import GOLDEN, StudyTest, main

DONE, STOPPED = 0, 3
AT_ONCE = {"run.time_limit": 1e-9}  # minutes: over at the end of the first round, which is always run


class Resume(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("ids.bin", np.random.default_rng(6).integers(0, 64, 3000))
        cls.keys = {"model.path": GOLDEN / "olmo2_mha", "tokens.path": cls.tokens, "tokens.sequence_length": 40,
                    "tokens.limit": 3000, "model.dtype": "float64", "run.batch_tokens": 200, "predict.references": 2,
                    "overlap.enabled": "false", "cross.streams": "v:z", "cross.model": GOLDEN / "qwen3"}
        cls.undisturbed = {ranks: datasets(cls.study(ranks, f"undisturbed{ranks}", cls.keys)[0]) for ranks in (1, 3)}

    def run_once(self, ranks, output, keys=None):
        """Runs the job once, from what the last run has left: (exit code, what it printed)."""
        keys = {**self.keys, "output.directory": self.folder / output, **(keys or {})}
        given = (f"--{key}={value}" for key, value in keys.items() if value is not None)
        run = self.run_program(ranks, "study", *given)
        return run.returncode, run.stdout + run.stderr

    def items_done(self, printed, event):
        return int(re.search(rf" {event} .*pieces=(\d+)", printed)[1])

    def files(self, output):
        return sorted(p.name for p in (self.folder / output).rglob("*") if p.is_file())

    def result(self, output):
        path, = (p for p in (self.folder / output).rglob("*.h5"))
        return datasets(path)

    def ranks_of(self, output, ending):
        """Returns how many ranks wrote a file."""
        path, = (self.folder / output).rglob(f"*.{ending}")
        with h5py.File(path) as file:
            return file.attrs["ranks"]

    def assert_equal_to_the_bit(self, ours, theirs):
        self.assertEqual({name: d for name, d in differences(ours, theirs).items() if d != 0}, {})

    def test_stopped_again_and_again_on_the_same_ranks(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                output, saved = f"same{ranks}", []
                code, printed = self.run_once(ranks, output, AT_ONCE)
                while code == STOPPED and len(saved) < 40:
                    self.assertIn("status=stopped", printed)
                    self.assertEqual(self.files(output), ["olmo2_mha.h5.state", "olmo2_mha.h5.state.done"])
                    saved.append(self.items_done(printed, "saved"))
                    code, printed = self.run_once(ranks, output, AT_ONCE)
                    self.assertEqual(self.items_done(printed, "resumed"), saved[-1])
                self.assertEqual(code, DONE, printed)
                self.assertEqual(saved, sorted(set(saved)), "each run gets further")
                self.assertEqual(self.files(output), ["olmo2_mha.h5", "olmo2_mha.h5.done"])
                self.assert_equal_to_the_bit(self.result(output), self.undisturbed[ranks])

    def test_other_ranks_grids_and_batches_resume(self):
        for number, (first, then, keys) in enumerate([(1, 3, {}), (3, 1, {}), (2, 4, {"run.grid": "4x1"}),
                                                      (4, 2, {"run.tensor_parallel": 2}),
                                                      (1, 1, {"run.batch_tokens": 333})]):
            with self.subTest(first=first, then=then, keys=keys):
                output = f"other{number}"
                code, printed = self.run_once(first, output, {**AT_ONCE, "run.batch_tokens": 1000})  # fills a panel
                self.assertEqual(code, STOPPED, printed)
                saved = self.items_done(printed, "saved")
                self.assertEqual(self.ranks_of(output, "state"), first)

                code, printed = self.run_once(then, output, keys)

                self.assertEqual((code, self.items_done(printed, "resumed")), (DONE, saved), printed)
                self.assertEqual(self.ranks_of(output, "h5"), then)
                found = differences(self.result(output), self.undisturbed[1])
                self.assertEqual({name: d for name, d in found.items() if not d <= 1e-10}, {})

    def test_saving_on_the_way_changes_nothing(self):
        code, printed = self.run_once(1, "saving", {"run.save_minutes": 1e-9})

        self.assertEqual(code, DONE, printed)
        self.assertGreater(len(re.findall(" saved ", printed)), 3)
        self.assert_equal_to_the_bit(self.result("saving"), self.undisturbed[1])
        self.assertEqual(self.files("saving"), ["olmo2_mha.h5", "olmo2_mha.h5.done"])

    def test_activations_that_are_read_go_on(self):
        z = np.random.default_rng(8).normal(size=(9000, 6, 2)).astype(np.float32)
        path = self.write_activations("a.h5", z, np.repeat([0, 1], 3), np.tile(np.arange(3), 2))
        keys = {"model.path": None, "activations.path": path, "tokens.path": None, "tokens.limit": None,
                "tokens.sequence_length": None, "model.dtype": None, "cross.streams": None,
                "cross.model": None}
        given = {key: value for key, value in {**self.keys, **keys}.items() if value is not None}
        undisturbed = datasets(self.study(2, "activations", given)[0])
        for then, near in ((2, 0), (3, 1e-10)):
            with self.subTest(then=then):
                output, saved, code = f"activations{then}", [], STOPPED
                while code == STOPPED and len(saved) < 9:
                    code, printed = self.run_once(2 if not saved else then, output, {**keys, **AT_ONCE})
                    saved.append(self.items_done(printed, "saved" if code == STOPPED else "resumed"))
                self.assertEqual(code, DONE, printed)
                self.assertGreater(len(saved), 2)
                self.assertEqual(saved[0], 2, "a chunk a rank in each round")
                found = differences(self.result(output), undisturbed)
                self.assertEqual({name: d for name, d in found.items() if not d <= near}, {})

    def test_the_state_of_another_job_is_not_resumed(self):
        self.assertEqual(self.run_once(1, "another", AT_ONCE)[0], STOPPED)

        code, printed = self.run_once(1, "another", {"tokens.seed": 1})

        self.assertEqual(code, DONE, printed)
        self.assertNotIn(" resumed ", printed)
        self.assertNotEqual(np.nanmax(np.abs(self.result("another")["k/r2"] - self.undisturbed[1]["k/r2"])), 0)

    def test_a_damaged_state_is_not_resumed(self):
        self.assertEqual(self.run_once(1, "damaged", AT_ONCE)[0], STOPPED)
        state, = (self.folder / "damaged").rglob("*.state")
        with open(state, "r+b") as file:
            file.seek(state.stat().st_size // 2)
            file.write(b"\xff" * 64)

        code, printed = self.run_once(1, "damaged")

        self.assertEqual(code, DONE, printed)
        self.assertNotIn(" resumed ", printed)
        self.assert_equal_to_the_bit(self.result("damaged"), self.undisturbed[1])

    def test_the_next_run_computes_the_units_that_are_left(self):
        rows = "".join(f"{name}\t0\t0\t{GOLDEN / 'olmo2_mha'}\n" for name in ("a", "b"))
        manifest = self.folder / "two.tsv"
        manifest.write_text("name\tstep\ttokens\tpath\n" + rows)
        keys = {"model.path": None, "model.manifest": manifest, "tokens.limit": 400, "run.time_limit": 1e-9}

        codes = []
        while (not codes or codes[-1] == STOPPED) and len(codes) < 100:
            start = time.monotonic()
            codes.append(self.run_once(1, "two", keys)[0])
            self.assertLess(time.monotonic() - start, 60)
            if len(codes) == 3:
                keys["run.time_limit"] = 0

        self.assertEqual(codes, [STOPPED, STOPPED, STOPPED, DONE])
        self.assertEqual(len(list((self.folder / "two").rglob("*.h5.done"))), 2)


if __name__ == "__main__":
    main()
