"""A disk that fails in the middle of a text file is an error, not the end of the file; one that fails once is tried again. A run
that is killed while it copies answers of an earlier run loses none. Nothing is kept of weights that are replaced while they are read.

usage: test_failing_disk.py HEADSPAN MPIEXEC FAILING_DISK [unittest's arguments]
"""
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from forward import read_safetensors, write_safetensors
from program import GOLDEN, StudyTest, main

LINES = 40


class FailingDisk(StudyTest):
    library = ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("scored.jsonl", [json.dumps({"id": i, "context": [3, 4], "continuation": [5]}) for i in range(LINES)])
        cls.write("greedy.jsonl", [json.dumps({"id": i, "context": [3, 4], "max_new_tokens": 1}) for i in range(LINES)])
        cls.write("rates.ini", ["read_gb = 1 # as measured"] * LINES)
        cls.write("manifest.tsv", ["name\tstep\ttokens\tpath"] + [f"s{i}\t{i}\t\t{GOLDEN / 'llama_gqa'}" for i in range(LINES)])
        cls.write_tokens("tokens.bin", [5] * 400)

    @classmethod
    def write(cls, name, lines):
        (cls.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def run_preloaded(self, arguments, **rules):
        return subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LD_PRELOAD": self.library, **rules}, check=False)

    def check(self, name, *arguments):
        """The first lines of the file `name` can be read, to the end of the tenth."""
        readable = sum(len(line) for line in (self.folder / name).read_bytes().splitlines(keepends=True)[:10])
        run = self.run_preloaded(arguments, FAILING_DISK=f"read */{name} {errno.EIO} @{readable}")
        told = [line for line in run.stderr.splitlines() if line.startswith("headspan: ") and "notice" not in line]
        self.assertEqual((run.returncode, told), (1, [f"headspan: rank 0: cannot read: {name}: Input/output error"]), run.stdout)

    def evaluate(self, name, *arguments):
        self.check(name, "evaluate", f"--model.path={GOLDEN / 'llama_gqa'}", "--evaluate.cache=full", *arguments)

    def test_scored_requests(self):
        self.evaluate("scored.jsonl", "--evaluate.requests=scored.jsonl", "--evaluate.answers=answers.jsonl")

    def test_what_to_continue(self):
        self.evaluate("greedy.jsonl", "--evaluate.generate=greedy.jsonl", "--evaluate.answers=answers.jsonl")

    def test_answers_so_far(self):
        self.write("answers.jsonl.part", ["of a job"] + [f"{i} {{}}" for i in range(LINES)])
        self.evaluate("answers.jsonl.part", "--evaluate.requests=scored.jsonl", "--evaluate.answers=answers.jsonl")
        (self.folder / "answers.jsonl.part").unlink()

    def test_answers_so_far_outlive_a_killed_run(self):
        part = self.folder / "kept.jsonl.part"
        part.write_text("1 {}\n" * LINES)
        run = self.run_preloaded(["evaluate", f"--model.path={GOLDEN / 'llama_gqa'}", "--evaluate.cache=full",
                                  "--evaluate.requests=scored.jsonl", "--evaluate.answers=kept.jsonl"],
                                 FAILING_DISK="write */kept.jsonl.part* kill 1")
        self.assertNotEqual(run.returncode, 0, "it was not killed")
        self.assertEqual(part.read_text(), "1 {}\n" * LINES)

    def test_weights_that_are_replaced(self):
        """They are replaced before a read, and afterwards put back."""
        model = self.folder / "model"
        shutil.copytree(GOLDEN / "llama_gqa", model)
        weights, other, trace = model / "model.safetensors", model / "model.safetensors.other", self.folder / "trace"
        evaluate = ("evaluate", f"--model.path={model}", "--evaluate.cache=full", "--evaluate.requests=scored.jsonl",
                    "--evaluate.answers=of_one.jsonl")
        study = ("study", f"--model.path={model}", "--tokens.path=tokens.bin", "--output.directory=of_one")
        for command, out in (evaluate, self.folder / "of_one.jsonl"), (study, self.folder / "of_one"):
            trace.write_text("")
            run = self.run_preloaded(command, FAILING_DISK=f"read {weights} trace={trace} 1+")
            self.assertEqual(run.returncode, 0, run.stderr)
            expected = out.read_bytes() if out.is_file() else None
            out.unlink() if out.is_file() else shutil.rmtree(out)
            reads = len(trace.read_text().splitlines())
            self.assertGreater(reads, 1)
            for read in (1, reads // 2, reads):
                shutil.copy(weights, model / "kept")
                write_safetensors(other, {name: 2 * w.astype("<f4") for name, w in read_safetensors(weights).items()})
                run = self.run_preloaded(command, FAILING_DISK=f"read {weights} replace {read}")
                self.assertRegex(run.stderr, f"headspan: .*{weights}: was changed while it was read: .*run again")
                self.assertEqual((run.returncode, list(self.folder.glob("of_one.jsonl*")), list(self.folder.glob("of_one/**/*.h5*"))),
                                 (1, [], []))
                (model / "kept").rename(weights)
            run = self.run_preloaded(command)
            self.assertEqual((run.returncode, expected), (0, out.read_bytes() if out.is_file() else None), run.stderr)
            out.unlink() if out.is_file() else shutil.rmtree(out)

    PLAN = ("plan", "--ranks=1", "--rates=rates.ini", f"--model.path={GOLDEN / 'llama_gqa'}", "--tokens.path=tokens.bin",
            "--output.directory=out")

    def test_rates(self):
        self.check("rates.ini", *self.PLAN)

    def test_an_error_that_passes(self):
        for call in ("open", "read"):
            run = self.run_preloaded(self.PLAN, FAILING_DISK=f"{call} *rates.ini {errno.EIO} 1")
            notice = f"headspan: notice: cannot {call}: rates.ini: Input/output error: tries again for 2 s"
            self.assertEqual((run.returncode, run.stderr.splitlines().count(notice)), (0, 1), run.stderr)

    def test_manifest(self):
        self.check("manifest.tsv", "study", "--model.manifest=manifest.tsv", "--tokens.path=tokens.bin", "--output.directory=out")


if __name__ == "__main__":
    FailingDisk.library = sys.argv.pop(3)
    main()
