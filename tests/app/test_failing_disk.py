"""A disk that fails in the middle of a text file is an error, not the end of the file; one that fails once is tried again. A run
that is killed while it copies answers of an earlier run loses none. Nothing is kept of an input that is replaced. No rank waits for
one whose write failed.

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
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
from forward import read_safetensors, write_safetensors
from lost_ranks import same
from program import GOLDEN, StudyTest, main
from test_determinism import without_dates

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
        launcher = [self.mpiexec, "-n", "2"] if arguments[0] == "study" else []
        return subprocess.run([*launcher, self.program, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LD_PRELOAD": self.library, "FAILING_RANK": "0", **rules}, check=False)

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

    def test_inputs_that_are_replaced(self):
        """They are replaced before a read, and afterwards put back. Nothing is kept of the others."""
        model = self.folder / "model"
        shutil.copytree(GOLDEN / "llama_gqa", model)
        weights, tokens = model / "model.safetensors", self.folder / "few.bin"
        write_safetensors(weights.with_name("other"), {name: 2 * w.astype("<f4") for name, w in read_safetensors(weights).items()})
        self.write_tokens("few.bin", [5, 9] * 1000)
        self.write_tokens("other", [7, 5] * 1000)
        evaluate = ("evaluate", f"--model.path={model}", "--evaluate.cache=full", "--evaluate.requests=scored.jsonl",
                    "--evaluate.answers=out/answers.jsonl")
        study = ("study", f"--model.path={model}", "--tokens.path=few.bin", "--tokens.sequence_length=20", "--output.directory=out",
                 "--run.save_minutes=0.00001")
        for command, path in (evaluate, weights), (study, weights), (study, tokens):
            self.check_replaced(command, path)

    def check_replaced(self, command, path):
        out, kept, trace = self.folder / "out", path.with_name("kept"), self.folder / "trace"
        trace.write_text("")
        expected = self.written(self.run_preloaded(command, FAILING_DISK=f"read {path} trace={trace} 1+"))
        reads = len(trace.read_text().splitlines())
        self.assertGreater(reads, 1)
        for read in (1, reads // 2, reads * 3 // 4, reads):
            shutil.copy(path, kept)
            shutil.copy(path.with_name("other"), f"{path}.other")
            run = self.run_preloaded(command, FAILING_DISK=f"read {path} replace {read}")
            self.assertRegex(run.stderr, f"headspan: .*{path.name}: was changed while it was read: .*run again")
            self.assertEqual((run.returncode, [*out.rglob("*.h5"), *out.rglob("*.jsonl")]), (1, []))
            kept.rename(path)
            self.assertTrue(same(self.written(self.run_preloaded(command)), expected), f"{command[0]} of another {path.name}")

    def written(self, run):
        """Returns what a run has written, and removes it."""
        self.assertEqual(run.returncode, 0, run.stderr)
        out = self.folder / "out"
        files = {path.name: without_dates(path) for path in out.rglob("*") if path.suffix in (".h5", ".jsonl")}
        shutil.rmtree(out)
        return files

    PLAN = ("plan", "--ranks=1", "--rates=rates.ini", f"--model.path={GOLDEN / 'llama_gqa'}", "--tokens.path=tokens.bin",
            "--output.directory=out")

    def test_rates(self):
        self.check("rates.ini", *self.PLAN)

    def test_an_error_that_passes(self):
        for call in ("open", "read"):
            run = self.run_preloaded(self.PLAN, FAILING_DISK=f"{call} *rates.ini {errno.EIO} 1")
            notice = f"headspan: notice: cannot {call}: rates.ini: Input/output error: tries again for 2 s"
            self.assertEqual((run.returncode, run.stderr.splitlines().count(notice)), (0, 1), run.stderr)

    def test_a_file_that_is_closed(self):
        """The last write of two ranks comes when HDF5 closes their file: where it fails rank 0 goes on alone, and both would wait."""
        study = ("study", f"--model.path={GOLDEN / 'llama_gqa'}", "--tokens.path=tokens.bin", "--output.directory=two",
                 "--output.save_gram=true")
        writes, trace = "write *.gram.h5.tmp.*", self.folder / "writes"
        run = self.run_preloaded(study, FAILING_DISK=f"{writes} trace={trace} 1+")
        self.assertEqual(run.returncode, 0, run.stderr)
        shutil.rmtree(self.folder / "two")
        last = len(trace.read_text().splitlines())
        run = self.run_preloaded(study, FAILING_DISK=f"{writes} {errno.ENOSPC} {last}")
        self.assertRegex(run.stderr, r"(?m)^headspan: rank 0: two/\S+\.gram\.h5\.tmp\.\S+: No space left on device$")
        self.assertEqual((run.returncode, [*(self.folder / "two").rglob("*.tmp.*")]), (1, []))

    def test_manifest(self):
        self.check("manifest.tsv", "study", "--model.manifest=manifest.tsv", "--tokens.path=tokens.bin", "--output.directory=out")


if __name__ == "__main__":
    FailingDisk.library = sys.argv.pop(3)
    main()
