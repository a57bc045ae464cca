"""The files between headspan-harness and `headspan evaluate`, and what stops a generation: everything that needs
neither lm_eval nor transformers. test_harness_metrics.py has the rest."""
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from samples import ANALYSIS

from headspan.error import EnvironmentFailed, InputError
from headspan_harness.exchange import GENERATED, SCORED, Answers, Pending, Program, identified
from headspan_harness.tokenizer import StopTokens

# Answers each request with the sum of its tokens; beside the answers it leaves the words it was started with.
ADDER = """
import json, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
answers = open(options["--evaluate.answers"], "w")
for line in open(options["--evaluate.requests"]):
    request = json.loads(line)
    total = sum(request["context"] + request["continuation"])
    print(json.dumps({"id": request["id"], "loglikelihood": -total, "greedy": total > 9}), file=answers)
open(sys.argv[0] + ".words", "w").write(json.dumps(sys.argv[1:]))
"""


class HarnessFiles(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_harness_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.requests = [identified(context=[1, 2], continuation=[3]), identified(context=[1], continuation=[2, 3]),
                         identified(context=[1, 2], continuation=[3])]
        self.path = self.folder / "answers.jsonl"

    def write(self, *answers):
        self.path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))

    def refused(self, message, call, error=InputError):
        with self.assertRaises(error) as told:
            call()
        self.assertIn(message, str(told.exception))


class RequestsTest(HarnessFiles):
    def test_ids_are_of_the_content(self):
        text = '{"context":[1,2],"continuation":[3]}'
        self.assertEqual(self.requests[0]["id"], hashlib.sha256(text.encode()).hexdigest()[:32])
        self.assertEqual(self.requests[0]["id"], self.requests[2]["id"])
        self.assertNotEqual(self.requests[0]["id"], self.requests[1]["id"])

    def test_equal_requests_are_written_once_and_kinds_apart(self):
        asked = self.folder / "asked"
        pending = Pending(asked, "a model")
        generation = identified(context=[1], max_new_tokens=2, stop=[[0]])

        with contextlib.redirect_stdout(io.StringIO()) as told:
            scores = pending.ask(SCORED, self.requests[:1]) + pending.ask(SCORED, self.requests[1:])
            texts = pending.ask(GENERATED, [generation])

        lines = [json.loads(line) for line in (self.folder / "asked" / "requests.jsonl").read_text().splitlines()]
        self.assertEqual(lines, self.requests[:2])
        self.assertEqual(json.loads((self.folder / "asked" / "generate.jsonl").read_text()), generation)
        self.assertEqual((len(scores), len(texts)), (3, 1))
        self.assertEqual(told.getvalue().splitlines()[-1], (
            f"status=asked generate=1 written={asked}/generate.jsonl; next: headspan evaluate --model.path 'a model' "
            f"--evaluate.requests {asked}/requests.jsonl --evaluate.generate {asked}/generate.jsonl "
            f"--evaluate.answers {asked}/answers.jsonl"))


class AnswersTest(HarnessFiles):
    def ask(self, kind=SCORED, requests=None):
        return Answers(self.path).ask(kind, requests or self.requests)

    def test_any_order_and_more_than_asked(self):
        first, second = ({"id": request["id"], "loglikelihood": -number / 2, "greedy": number == 1}
                         for number, request in enumerate(self.requests[:2], 1))
        self.write(second, {"id": "other", "tokens": []}, first)
        self.assertEqual(self.ask(), [first, second, first])

    def test_missing_ones_are_named(self):
        ids = [request["id"] for request in self.requests]
        self.write({"id": ids[0], "loglikelihood": -1.0, "greedy": True})
        self.refused(f"{self.path}: id = {ids[1]}: 1 of 3 requests have no answer; ", self.ask)
        many = [identified(context=[number], continuation=[1]) for number in range(9)]
        names = ", ".join(request["id"] for request in many[:5])
        self.refused(f"id = {names}, ...: 9 of 9 requests", lambda: self.ask(requests=many))

    def test_what_is_no_answer(self):
        name = self.requests[0]["id"]
        for answer in ({"loglikelihood": None, "greedy": True}, {"loglikelihood": float("nan"), "greedy": True},
                       {"loglikelihood": -1.0, "greedy": 1}, {"tokens": [1]}):
            self.write({"id": name} | answer)
            self.refused(f"{self.path}: id = {name}: is no answer to a line of requests; ",
                         lambda: self.ask(requests=self.requests[:1]))
        generation = identified(context=[1], max_new_tokens=2, stop=[[0]])
        for other in ({"tokens": [1.5]}, {"loglikelihood": -1.0, "greedy": True}):
            self.write({"id": generation["id"]} | other)
            self.refused("is no answer to a line of generate", lambda: self.ask(GENERATED, [generation]))

    def test_damaged_files(self):
        self.refused(f"{self.path}: cannot be read ", self.ask)
        for text in ("[]", "{", '{"tokens": []}'):
            self.path.write_text('{"id": "a"}\n' + text + "\n")
            self.refused(f"{self.path}: line = 2: is no JSON object with an id; ", self.ask)


class ProgramTest(HarnessFiles):
    def test_is_given_files_and_answers(self):
        adder = self.folder / "adder.py"
        adder.write_text(ADDER)

        answers = Program(f"{sys.executable} '{adder}' evaluate --model.dtype float32", "a model").ask(
            SCORED, self.requests)

        self.assertEqual([answer["loglikelihood"] for answer in answers], [-6, -6, -6])
        words = json.loads(Path(f"{adder}.words").read_text())
        self.assertEqual(words[:5], ["evaluate", "--model.dtype", "float32", "--model.path", "a model"])
        self.assertEqual([words[5], words[7]], ["--evaluate.requests", "--evaluate.answers"])
        self.assertFalse(Path(words[6]).exists())

    def test_that_fails(self):
        def ask(command):
            return lambda: Program(command, "model").ask(SCORED, self.requests)

        self.refused("--model_args: command = no-such-program: cannot be started ", ask("no-such-program"))
        self.refused("--model_args: command = a 'b: cannot be started ", ask("a 'b"))
        self.refused("--model_args: command = sh -c 'exit 2': ended with exit code 2; ", ask("sh -c 'exit 2'"))
        self.refused("--model_args: command = false: ended with exit code 1; ", ask("false"), EnvironmentFailed)
        self.refused("answers.jsonl: cannot be read ", ask("true"))


class Letters:
    """A tokenizer with a few pieces, longest match first; lower case only; no space before a text's first piece."""
    pieces = ("<end>", "\n", "\n\n", ".\n", "stop", " stop", "\nb", "a", "o", "p", "s", "t")

    def __len__(self):
        return len(self.pieces)

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        tokens, text = [], text.lower()
        while text:
            tokens.append(max((piece for piece in self.pieces if text.startswith(piece)), key=len))
            text = text[len(tokens[-1]):]
        return self.ids(*tokens)

    def decode(self, tokens):
        return "".join(self.pieces[token] for token in tokens).removeprefix(" ")

    def ids(self, *pieces):
        return [self.pieces.index(piece) for piece in pieces]


class StopTokensTest(HarnessFiles):
    def stops(self, *strings, config="{}", generation=None):
        (self.folder / "config.json").write_text(config)
        if generation:
            (self.folder / "generation_config.json").write_text(generation)
        stops = StopTokens(self.folder, Letters()).of(strings)
        return [tuple(Letters.pieces[token] for token in stop) for stop in stops]

    def test_what_begins_with_the_string(self):
        self.assertEqual(self.stops("\n", ""), [("\n",), ("\n\n",), ("\nb",)])
        self.assertEqual(self.stops("pot"), [("p", "o", "t")])
        self.assertEqual(self.stops("<end>", "stop"), [("<end>",), ("stop",)])

    def test_none_that_takes_text_with_it(self):
        self.assertEqual(self.stops("POT"), [])  # reads as pot
        self.assertEqual(self.stops("\n\n"), [])  # behind a line's end
        self.assertEqual(self.stops("pot", "stop"), [("stop",)])  # pot behind sto

    def test_ends_of_the_model(self):
        self.assertEqual(self.stops(config='{"eos_token_id": 7}'), [("a",)])
        self.assertEqual(self.stops(config='{"eos_token_id": 7}', generation='{"eos_token_id": [8, 0]}'),
                         [("o",), ("<end>",)])

    def test_none_beyond_the_vocabulary(self):
        self.assertEqual(self.stops("\n", config='{"vocab_size": 6}'), [("\n",), ("\n\n",)])


class CommandTest(unittest.TestCase):
    def test_names_the_missing_package(self):
        environment = os.environ | {"PYTHONPATH": str(ANALYSIS)}
        done = subprocess.run([sys.executable, "-S", "-B", "-m", "headspan_harness", "--tasks", "arc_easy"], text=True,
                              capture_output=True, timeout=60, env=environment, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", (
            "headspan-harness: the package lm_eval is missing: pip install './analysis[harness]'\n")))


if __name__ == "__main__":
    unittest.main()
