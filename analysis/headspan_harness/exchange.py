"""Requests to `headspan evaluate` and its answers, both as JSON lines.

    requests   {"id", "context": [ids], "continuation": [ids]}              {"id", "loglikelihood", "greedy"}
    generate   {"id", "context": [ids], "max_new_tokens", "stop": [[ids]]}   {"id", "tokens": [ids]}

The first word is the kind: the key of [evaluate] that takes the file. An id is the hash of its request: equal requests
are sent once, and every pass of the harness uses the same ids. A source has one method, ask(kind, requests), which
returns an answer to each request: Pending writes the requests and returns blank answers, Answers reads a file, Program
runs headspan in between.
"""
import hashlib
import json
import math
import shlex
import subprocess
import tempfile
from pathlib import Path

from headspan.error import EnvironmentFailed, InputError

SCORED, GENERATED = KINDS = "requests", "generate"
NAMED = 5  # ids in a message


def identified(**request):
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return {"id": hashlib.sha256(text.encode()).hexdigest()[:32]} | request


def write_requests(path, requests):
    """Writes one line for each different request."""
    lines = {request["id"]: json.dumps(request, separators=(",", ":")) + "\n" for request in requests}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines.values()))
    except OSError as error:
        raise EnvironmentFailed(f"cannot write {path}: {error.strerror or error}") from error
    return len(lines)


def read_answers(path):
    """Returns id -> answer."""
    answers = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                answers |= parsed(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, "", "", f"cannot be read ({error})",
                         "give evaluate.answers of headspan evaluate") from error
    return answers


def parsed(path, number, line):
    try:
        answer = json.loads(line)
        return {answer["id"]: answer}
    except (ValueError, KeyError, TypeError):
        raise InputError(path, "line", number, "is no JSON object with an id", "one answer a line") from None


def chosen(path, kind, requests, answers):
    """Returns the answer to each request."""
    missing = list(dict.fromkeys(request["id"] for request in requests if request["id"] not in answers))
    if missing:
        names = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        raise InputError(path, "id", names, f"{len(missing)} of {len(requests)} requests have no answer",
                         "answer the requests of these very tasks, limits and lengths")
    for request in requests:
        if not is_answer(kind, answers[request["id"]]):
            raise InputError(path, "id", request["id"], f"is no answer to a line of {kind}",
                             "a finite loglikelihood and greedy, or tokens")
    return [answers[request["id"]] for request in requests]


def is_answer(kind, answer):
    if kind == SCORED:
        loglikelihood = answer.get("loglikelihood")
        return (isinstance(loglikelihood, (int, float)) and math.isfinite(loglikelihood)
                and isinstance(answer.get("greedy"), bool))
    tokens = answer.get("tokens")
    return isinstance(tokens, list) and all(isinstance(token, int) for token in tokens)


class Pending:
    """Writes FOLDER/requests.jsonl and generate.jsonl, and prints the command that answers them."""
    is_pending = True

    def __init__(self, folder, model):
        self.folder, self.model = Path(folder), model
        self.asked = {}  # kind -> requests
        try:
            for kind in KINDS:
                self.file(kind).unlink(missing_ok=True)  # left by an earlier run
        except OSError as error:
            raise InputError("--model_args", "requests", folder, f"is no folder to write to ({error})",
                             "name a new one") from error

    def file(self, kind):
        return self.folder / f"{kind}.jsonl"

    def ask(self, kind, requests):
        self.asked.setdefault(kind, []).extend(requests)
        count = write_requests(self.file(kind), self.asked[kind])
        files = [word for kind in KINDS if kind in self.asked
                 for word in (f"--evaluate.{kind}", str(self.file(kind)))]
        print(f"status=asked {kind}={count} written={self.file(kind)}; next: " + shlex.join(
            ["headspan", "evaluate", "--model.path", str(self.model), *files,
             "--evaluate.answers", str(self.folder / "answers.jsonl")]), flush=True)
        blank: dict = {"loglikelihood": 0.0, "greedy": False} if kind == SCORED else {"tokens": []}
        return [blank] * len(requests)  # the harness needs answers, and model.py prevents it from scoring them


class Answers:
    """Reads the answers of headspan evaluate."""
    is_pending = False

    def __init__(self, path):
        self.path, self.answers = path, read_answers(path)

    def ask(self, kind, requests):
        return chosen(self.path, kind, requests, self.answers)


class Program:
    """Runs COMMAND (a launcher, the program, `evaluate`, a job file, options) for each list of requests."""
    is_pending = False

    def __init__(self, command, model):
        self.command, self.model = command, model

    def ask(self, kind, requests):
        with tempfile.TemporaryDirectory(prefix="headspan_harness_") as folder:
            asked, answers = Path(folder, f"{kind}.jsonl"), Path(folder, "answers.jsonl")
            write_requests(asked, requests)
            self.run(["--model.path", str(self.model), f"--evaluate.{kind}", str(asked),
                      "--evaluate.answers", str(answers)])
            return chosen(answers, kind, requests, read_answers(answers))

    def run(self, options):
        """Runs the program. Its output goes to standard error, because the harness's tables use standard output."""
        try:
            code = subprocess.run([*shlex.split(self.command), *options], stdout=2, check=False).returncode
        except (OSError, ValueError) as error:
            raise InputError("--model_args", "command", self.command, f"cannot be started ({error})",
                             "for example: mpirun -n 4 build/release/headspan evaluate") from error
        if code == 2:
            raise InputError("--model_args", "command", self.command, "ended with exit code 2", "see its message above")
        if code != 0:
            raise EnvironmentFailed(f"--model_args: command = {self.command}: ended with exit code {code}; "
                                    "see its message above")
