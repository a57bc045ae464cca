"""SIGINT, SIGTERM and SIGUSR1 stop a command between two of its steps; it says what is left and how to resume.

usage: test_stop.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

DONE, FAILED, STOPPED = 0, 1, 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
TOKENS = 30_000  # about a second or more, in hundreds of rounds


class Stop(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = cls.write_tokens("ids.bin", np.random.default_rng(6).integers(0, 64, TOKENS))
        cls.model = {"model.path": GOLDEN / "olmo2_mha", "model.dtype": "float32"}
        cls.text = {"tokens.path": cls.tokens, "tokens.sequence_length": 40, "tokens.limit": TOKENS, "run.batch_tokens": 1}

    def stop(self, ranks, sent, command, keys, ready=lambda printed: " loaded " in printed):
        """Sends signals, half a second and more apart, once the command is ready: (exit code, what it printed)."""
        launcher = [self.mpiexec, "-n", str(ranks)] if ranks > 1 else []
        options = [f"--{key}={value}" for key, value in keys.items()]
        log = self.folder / "log"
        with open(log, "w", encoding="utf-8") as out, \
                subprocess.Popen([*launcher, self.program, command, *options], stdout=out, stderr=out) as run:
            deadline = time.monotonic() + 60
            while not ready(log.read_text()) and run.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            for number, one in enumerate(sent):
                time.sleep(0.7 if number > 0 else 0)
                run.send_signal(one)
            run.wait(timeout=60)
        return run.returncode, log.read_text()

    def test_a_study_saves_its_state(self):
        cases = [(1, number) for number in SIGNALS] + [(2, signal.SIGUSR1)]  # the only one that mpirun passes on without killing
        for ranks, one in cases:
            with self.subTest(ranks=ranks, signal=one.name):
                keys = {**self.model, **self.text, "output.directory": self.folder / f"{one.name}{ranks}"}
                code, printed = self.stop(ranks, [one], "study", keys)
                self.assertEqual(code, STOPPED, printed)
                self.assertIn(" saved unit=olmo2_mha ", printed)
                self.assertIn("headspan: stopped by a signal: 0 of 1 units are done, saved is the state of olmo2_mha; the same "
                              "command goes on\n", printed)
                self.assertIn("status=stopped units=1 skipped=0 ", printed)

    def test_between_two_units_there_is_nothing_to_save(self):
        """The signal comes after the first unit's tokens: that unit is finished, the second is not started."""
        rows = self.folder / "rows.tsv"
        rows.write_text("name\tstep\ttokens\tpath\n"
                        + "".join(f"{name}\t0\t0\t{GOLDEN / name}\n" for name in ("olmo2_mha", "llama_gqa")))
        told = "headspan: stopped by a signal: 1 of 2 units are done, nothing had to be saved; the same command goes on\n"
        for attempt in range(5):  # the first unit may be finished before the signal arrives
            keys = {**self.text, "model.manifest": rows, "model.dtype": "float32", "output.directory": self.folder / f"two{attempt}"}
            code, printed = self.stop(1, [signal.SIGTERM], "study", keys, ready=lambda printed: " overlap " in printed)
            self.assertEqual(code, STOPPED, printed)
            self.assertEqual(told in printed, " loaded unit=llama_gqa " not in printed, printed)
            if told in printed:
                break
        self.assertIn(told, printed)

    def test_the_time_limit_has_its_own_message(self):
        keys = {**self.model, **self.text, "output.directory": self.folder / "time", "run.time_limit": 1e-9}
        code, printed = self.stop(1, [], "study", keys, ready=lambda printed: False)
        self.assertEqual(code, STOPPED, printed)
        self.assertIn("headspan: stopped at run.time_limit: 0 of 1 units are done", printed)

    def test_a_second_interrupt_ends_at_once(self):
        """All tokens are one round; the first interrupt would stop at its end."""
        tokens = self.write_tokens("long.bin", np.random.default_rng(6).integers(3, 64, 60_000))  # without eos
        keys = {**self.model, "tokens.path": tokens, "run.batch_tokens": 60_000, "tokens.sequence_length": 20_000,
                "tokens.limit": 60_000, "predict.streams": "k", "output.directory": self.folder / "twice"}
        start = time.monotonic()
        code, printed = self.stop(1, [signal.SIGINT, signal.SIGINT], "study", keys)
        self.assertEqual(code, -signal.SIGINT, printed)
        self.assertLess(time.monotonic() - start, 30)
        self.assertNotIn(" saved ", printed)

    def test_calibrate_says_that_it_starts_anew(self):
        plan = self.folder / "plan.h5"
        keys = {**self.model, **self.text, "compress.plan": plan}
        for one in SIGNALS:
            with self.subTest(signal=one.name):
                code, printed = self.stop(1, [one], "calibrate", keys)
                self.assertEqual(code, FAILED, printed)
                self.assertIn(f"headspan: stopped by a signal: {plan} is not written; calibrate saves nothing on the way, the "
                              "same command begins anew\n", printed)
                self.assertEqual(list(self.folder.glob("plan.h5*")), [])

    def test_evaluate_without_answers_starts_anew(self):
        summary = self.folder / "summary.json"
        keys = {**self.model, "evaluate.cache": "full", "evaluate.texts": self.tokens, "tokens.limit": TOKENS,
                "tokens.sequence_length": 40, "evaluate.batch": 1, "evaluate.summary": summary}
        for ranks, one in ((1, signal.SIGINT), (2, signal.SIGUSR1)):
            with self.subTest(ranks=ranks, signal=one.name):
                code, printed = self.stop(ranks, [one], "evaluate", keys)
                self.assertEqual(code, FAILED, printed)
                self.assertIn("headspan: stopped by a signal: nothing of this run is kept; the same command begins where this one did\n",
                              printed)
                self.assertFalse(summary.exists())

    def test_evaluate_keeps_its_answers(self):
        rng = np.random.default_rng(6)
        requests, answers, count = self.folder / "requests.jsonl", self.folder / "answers.jsonl", 1500
        requests.write_text("".join(json.dumps({"id": str(i), "context": rng.integers(0, 60, 20).tolist(), "continuation": [5]})
                                    + "\n" for i in range(count)))
        keys = {**self.model, "evaluate.cache": "full", "evaluate.requests": requests, "evaluate.answers": answers,
                "evaluate.batch": 1}
        part = self.folder / "answers.jsonl.part"
        for ranks, one in ((1, signal.SIGTERM), (1, signal.SIGINT), (2, signal.SIGUSR1)):
            with self.subTest(ranks=ranks, signal=one.name):
                before = part.read_text().count("\n") if part.exists() else 1
                code, printed = self.stop(ranks, [one], "evaluate", keys,
                                          ready=lambda _, most=before + 9: part.exists() and part.read_text().count("\n") > most)
                self.assertEqual(code, STOPPED, printed)
                self.assertIn(f"headspan: stopped by a signal: the answers so far are in {part}; the same command goes on from "
                              "them\n", printed)
                self.assertIn("status=stopped ", printed)
                self.assertGreater(part.read_text().count("\n"), before + 9)
        with self.subTest("before a new answer"):
            before = part.read_text()
            more = {"evaluate.texts": self.tokens, "tokens.limit": TOKENS, "tokens.sequence_length": 40}
            code, printed = self.stop(1, [signal.SIGTERM], "evaluate", keys | more)
            self.assertEqual(code, FAILED, printed)
            self.assertIn("headspan: stopped by a signal: nothing of this run is kept; the same command begins where this one did\n",
                          printed)
            self.assertEqual(part.read_text(), before)
        code, printed = self.stop(1, [], "evaluate", keys, ready=lambda _: False)
        self.assertEqual(code, DONE, printed)
        self.assertIn("goes on from them", printed)
        self.assertEqual([json.loads(line)["id"] for line in answers.read_text().splitlines()], [str(i) for i in range(count)])


if __name__ == "__main__":
    main()
