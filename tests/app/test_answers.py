"""An evaluation resumes from the answers of one that was killed, but not from those of another job.

usage: test_answers.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, StudyTest, main

REQUESTS = 300
SEEN = -12345.0


class Answers(StudyTest):
    def setUp(self):
        rng = np.random.default_rng(6)
        draw = lambda count: rng.integers(0, 60, count).tolist()
        self.write("scored.jsonl", [{"id": f"s{i}", "context": draw(20), "continuation": draw(5)} for i in range(REQUESTS)])
        self.write("greedy.jsonl", [{"id": f"g{i}", "context": draw(5 + i % 3), "max_new_tokens": 3}
                                    for i in range(REQUESTS)])
        self.whole = self.run_to_end("whole.jsonl", 1)
        self.assertEqual([answer["id"] for answer in self.whole], [f"{k}{i}" for k in "sg" for i in range(REQUESTS)])

    def write(self, name, objects):
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in objects))

    def arguments(self, answers, **more):
        keys = {"model.path": GOLDEN / "llama_gqa", "model.dtype": "float64", "evaluate.cache": "full", "evaluate.batch": 1,
                "evaluate.requests": self.folder / "scored.jsonl", "evaluate.generate": self.folder / "greedy.jsonl",
                "evaluate.answers": self.folder / answers, **more}
        return ["evaluate", *(f"--{key}={value}" for key, value in keys.items())]

    def run_to_end(self, answers, ranks, message="", **more):
        run = self.run_program(ranks, *self.arguments(answers, **more))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(message, run.stderr)
        self.assertEqual("goes on" in run.stderr, bool(message), run.stderr)
        self.assertFalse(self.part(answers).exists())
        self.printed = run.stderr
        return [json.loads(line) for line in (self.folder / answers).read_text().splitlines()]

    def part(self, answers):
        return self.folder / f"{answers}.part"

    def see_part(self, answers, kept, **more):
        """Starts a run and gives its part a second name, `kept`. A run that ends before its part is seen is started again."""
        for _ in range(20):
            process = subprocess.Popen([self.program, *self.arguments(answers, **more)], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            while process.poll() is None:
                with contextlib.suppress(FileNotFoundError):
                    kept.hardlink_to(self.part(answers))
                    return process
                time.sleep(0.0002)
            self.assertEqual(process.returncode, 0)
            (self.folder / answers).unlink()
        self.fail("no part is seen in 20 runs")

    def kill_after(self, answers, lines, **more):
        """Kills a run on one rank once its part has so many lines; returns these. If the run ends earlier, its part, which
        has a second name, is cut there."""
        part, kept = self.part(answers), self.folder / "kept"
        kept.unlink(missing_ok=True)
        process = self.see_part(answers, kept, **more)
        while process.poll() is None and kept.read_bytes().count(b"\n") < lines:
            time.sleep(0.001)
        process.kill()
        process.wait()
        if (self.folder / answers).exists():
            (self.folder / answers).unlink()
            part.write_text("".join(kept.read_text().splitlines(keepends=True)[:lines]))
        return part.read_text().splitlines(keepends=True)

    def assert_same(self, found, expected):
        self.assertEqual([answer["id"] for answer in found], [answer["id"] for answer in expected])
        for answer, reference in zip(found, expected):
            self.assertEqual({**answer, "loglikelihood": 0}, {**reference, "loglikelihood": 0})
            self.assertAlmostEqual(answer.get("loglikelihood", 0), reference.get("loglikelihood", 0), 9)

    def test_resumes_on_any_ranks(self):
        for ranks, lines in ((1, 20), (3, REQUESTS + 20)):
            name = f"killed{ranks}.jsonl"
            job, *kept = self.kill_after(name, lines)
            last = kept.pop() if kept[-1].endswith("\n") else ""
            kept = [line for line in kept if line.endswith("\n")]
            number, answer = kept[0].split(" ", 1)
            seen = json.dumps(json.loads(answer) | {"loglikelihood": SEEN})  # marks answers of the killed run
            self.part(name).write_text("".join([job, f"{number} {seen}\n", *kept[1:], last[:len(last) // 2]]))

            found = self.run_to_end(name, ranks, f"has {len(kept)} of {2 * REQUESTS} answers: goes on from them")

            self.assertEqual(found[int(number)]["loglikelihood"], SEEN)
            found[int(number)] = self.whole[int(number)]
            self.assert_same(found, self.whole)

    def test_another_job_begins_anew(self):
        self.kill_after("other.jsonl", 5)
        text = (self.folder / "scored.jsonl").read_text()
        (self.folder / "scored.jsonl").write_text(text.replace('"s0"', '"first"'))

        found = self.run_to_end("other.jsonl", 1)

        self.assertEqual(found[0]["id"], "first")
        self.assert_same(found[1:], self.whole[1:])
        self.assert_begun_anew("other.jsonl")

    def test_weights_that_were_written_again_begin_anew(self):
        """The size and the sampled bytes are the same; only the modification time differs."""
        copy = self.folder / "llama_gqa"
        shutil.copytree(GOLDEN / "llama_gqa", copy)
        keys = {"model.path": copy}
        weights = copy / "model.safetensors"
        os.utime(weights, (1e9, 1e9))
        self.kill_after("again.jsonl", 5, **keys)
        os.utime(weights, (2e9, 2e9))
        self.assert_same(self.run_to_end("again.jsonl", 1, **keys), self.whole)
        self.assert_begun_anew("again.jsonl")

    def assert_begun_anew(self, answers):
        why = "is of another job, or of other contents of its files: begins anew"
        self.assertIn(f"notice: {self.part(answers)} {why}\n", self.printed)

    def test_a_link_in_place_of_the_part_is_not_followed(self):
        target = self.folder / "target.txt"
        target.write_text("unchanged")
        self.part("linked.jsonl").symlink_to(target)
        self.assert_same(self.run_to_end("linked.jsonl", 1), self.whole)
        self.assertEqual(target.read_text(), "unchanged")


if __name__ == "__main__":
    main()
