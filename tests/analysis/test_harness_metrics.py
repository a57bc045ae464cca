"""headspan-harness in the real lm-evaluation-harness, on tasks in local files (harness/): its metrics from headspan's
answers against those of the harness's hf model with the same weights.

usage: test_harness_metrics.py HEADSPAN MPIEXEC [unittest's arguments]

If a package is missing the exit code is 77, which means skipped to ctest; harness.sh installs them.
"""
import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ("lm_eval", "torch", "transformers", "accelerate", "sacrebleu")
TASKS = ("headspan_choice", "headspan_rolling", "headspan_until")
TINY_OLMO2 = ROOT / "checkpoints" / "tiny-olmo2"
BEGIN, END = "<|begin|>", "<|endoftext|>"
missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing; bash tests/analysis/harness.sh runs this test in an environment of "
          "its own")
    sys.exit(77)
COMMAND = [str(Path(sys.argv.pop(1)).resolve()), "evaluate", "--model.dtype", "float32", "--evaluate.cache", "full"]
MPIEXEC = sys.argv.pop(1)

# The JSON files of the tasks are copied into the cache of datasets; nothing is fetched.
cache = tempfile.TemporaryDirectory(prefix="headspan_harness_cache_")
os.environ.update(HF_HOME=cache.name, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
sys.path.insert(0, str(ROOT / "analysis"))
from lm_eval import simple_evaluate  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from headspan.error import InputError  # noqa: E402
from headspan_harness import __main__ as command_line  # noqa: E402
from headspan_harness import model as _  # noqa: E402, F401, registers headspan

TASK_MANAGER = TaskManager(include_path=str(HERE / "harness"), include_defaults=False)


def make_model(folder, fields=None, config=None):
    """Makes tiny-olmo2 with a tokenizer.json of these fields and this tokenizer_config.json, or without a tokenizer."""
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(TINY_OLMO2 / "step3000" / name)
    if fields:
        (folder / "tokenizer.json").write_text(json.dumps(fields))
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END} | config))
    return folder


def tokenizer_fields():
    return json.loads((TINY_OLMO2 / "tokenizer.json").read_text())


def fields_with_begin():
    """Replaces the last merge by BEGIN, with which each text begins."""
    fields = tokenizer_fields()
    vocabulary = fields["model"]["vocab"]
    fields["model"]["merges"].pop()
    token = len(vocabulary) - 1
    vocabulary.pop(next(piece for piece, known in vocabulary.items() if known == token))
    vocabulary[BEGIN] = token
    fields["added_tokens"].append(fields["added_tokens"][0] | {"id": token, "content": BEGIN})
    fields["post_processor"] = {
        "type": "TemplateProcessing", "special_tokens": {BEGIN: {"id": BEGIN, "ids": [token], "tokens": [BEGIN]}},
        "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}
    return fields


CHAT = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}is: {% endif %}")


def evaluate(model, tasks=TASKS, chat=False, gen_kwargs=None, **arguments):
    arguments = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    return simple_evaluate(model, model_args=arguments, tasks=list(tasks), task_manager=TASK_MANAGER, device="cpu",
                           batch_size=1, bootstrap_iters=0, log_samples=True, gen_kwargs=gen_kwargs,
                           apply_chat_template=chat)


class HarnessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_harness_")
        cls.addClassCleanup(temporary.cleanup)
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(HERE / "harness")  # the tasks' files
        cls.folder = Path(temporary.name)
        cls.plain = make_model(cls.folder / "plain", tokenizer_fields(), {"chat_template": CHAT})
        cls.begin = make_model(cls.folder / "begin", fields_with_begin(), {"bos_token": BEGIN})

    def run_command(self, *words):
        """Runs headspan-harness in this process. Returns exit code, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        line = ["--include_path", ".", *map(str, words)]
        with mock.patch.object(sys, "argv"), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command_line.main(line)
        return code, out.getvalue(), err.getvalue()

    def agree(self, ours, theirs, tasks=TASKS):
        """Checks the metrics and the answer to each request, to a relative 1e-6."""
        self.assertEqual(sorted(ours["results"]), sorted(tasks))
        self.close(ours["results"], theirs["results"], "results")
        for task in tasks:
            pairs = zip(ours["samples"][task], theirs["samples"][task], strict=True)
            for number, (our, their) in enumerate(pairs):
                self.assertEqual(our["doc"], their["doc"])
                self.close(our["resps"], their["resps"], f"{task} {number}")

    def close(self, our, their, where):
        if isinstance(their, dict):
            self.assertEqual(sorted(our), sorted(their), where)
            our, their = [our[key] for key in sorted(our)], [their[key] for key in sorted(their)]
        if isinstance(their, (list, tuple)):
            self.assertEqual(len(our), len(their), where)
            for a, b in zip(our, their):
                self.close(a, b, where)
        elif isinstance(their, float):
            self.assertLessEqual(abs(our - their), 1e-6 * max(1, abs(their)), where)
        else:
            self.assertEqual(our, their, where)


class AgainstHf(HarnessTest):
    """One command; the program runs once for each type of request."""

    def compare(self, ours, theirs=None, tasks=TASKS, launcher=(), **options):
        theirs = evaluate("hf", tasks, dtype="float32", **options, **(theirs or ours))
        command = shlex.join([*launcher, *COMMAND])
        self.agree(evaluate("headspan", tasks, command=command, **options, **ours), theirs, tasks)
        return theirs

    def test_window_of_the_model(self):
        theirs = self.compare({"pretrained": self.plain})

        # The tasks say something: choices are neither all right nor all wrong, and each stop string was met.
        self.assertTrue(0 < theirs["results"]["headspan_choice"]["acc,none"] < 1)
        generated = [sample["resps"][0][0] for sample in theirs["samples"]["headspan_until"]]
        self.assertEqual(generated[:3], ["waitable", " the same as a string. If the string is a st",
                                         " mixmask , and the d"])
        self.assertEqual(generated[-1], ".")  # and the text's end

    def test_begin_token_and_a_small_window(self):
        self.compare({"pretrained": self.begin, "max_length": 32})

    def test_begin_token_left_out_on_two_ranks(self):
        self.compare({"pretrained": self.begin, "add_bos_token": False}, tasks=["headspan_choice", "headspan_until"],
                     launcher=[MPIEXEC, "-n", "2"])

    def test_chat_template_and_default_length(self):
        self.compare({"pretrained": self.plain}, tasks=["headspan_until"], chat=True, gen_kwargs={"max_gen_toks": None})

    def test_tokenizer_of_elsewhere(self):
        bare = make_model(self.folder / "bare")
        tokenizer = TINY_OLMO2 / "tokenizer.json"
        self.compare({"pretrained": bare, "tokenizer": tokenizer}, {"pretrained": self.plain}, ["headspan_choice"])


@unittest.skipIf(importlib.util.find_spec("optimum") is None, "optimum-quanto is missing")
class ThroughACache(HarnessTest):
    """The model of analysis/measuring_caches.md: in one chunk a cache that returns what it is given loses nothing."""

    def test_one_chunk_and_single_tokens(self):
        from transformers import QuantizedCache
        page = (ROOT / "analysis" / "measuring_caches.md").read_text()
        code = re.search(r"<!-- run by: tests/analysis/test_harness_metrics.py -->\n```python\n(.*?)```\n", page, re.S).group(1)
        plan, tokens = self.folder / "plan.h5", TINY_OLMO2 / "tokens" / "docs.fit.bin"
        subprocess.run([COMMAND[0], "calibrate", "--model.path", self.plain, "--tokens.path", tokens, "--tokens.limit", "4000",
                        "--compress.algorithm", "hadamard", "--compress.bits", "2", "--compress.plan", plan], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        names = {"path": str(self.plain), "plan": plan}
        exec(code, names)
        model, headspan = names["model"], names["model"].make_cache

        def bits(make_cache, step=None):
            model.make_cache, model.step = make_cache, step
            return simple_evaluate(model, tasks=["headspan_rolling"], task_manager=TASK_MANAGER, bootstrap_iters=0)["results"][
                "headspan_rolling"]["bits_per_byte,none"]

        def quantized(config):
            return QuantizedCache("quanto", config, nbits=2, q_group_size=64, residual_length=1)

        full = evaluate("hf", ["headspan_rolling"], pretrained=self.plain, dtype="float32")["results"]["headspan_rolling"][
            "bits_per_byte,none"]
        self.assertAlmostEqual(bits(quantized), full, delta=1e-6)  # two bits, and nothing is lost
        self.assertGreater(bits(quantized, 1), full + 0.01)
        ours = bits(headspan), bits(headspan, 1)
        self.assertGreater(ours[0], full + 0.01)
        self.assertAlmostEqual(ours[0], ours[1], delta=1e-3)


class TwoPasses(HarnessTest):
    """A pass before and one after a run of the program: first with the command line, then with simple_evaluate."""

    def answer(self):
        words = [word for kind, file in self.asked.items() for word in (f"--evaluate.{kind}", file)]
        subprocess.run([*COMMAND, "--model.path", self.begin, *words, "--evaluate.answers", self.answers],
                       check=True, stdout=subprocess.DEVNULL, timeout=300)

    def test_both(self):
        given = {"pretrained": self.begin, "max_length": 64}
        folder, reported = self.folder / "asked", self.folder / "reported"
        self.asked = {kind: folder / f"{kind}.jsonl" for kind in ("requests", "generate")}
        self.answers = folder / "answers.jsonl"
        words = ["--output_path", reported, "--model_args", *(f"{name}={value}" for name, value in given.items())]

        # First pass: nothing is reported.
        code, out, err = self.run_command("--tasks", *TASKS, *words, f"requests={folder}")
        self.assertEqual(code, 0, err)
        self.assertEqual([line.partition(" ")[0] for line in out.splitlines()], ["status=asked"] * 3)
        self.assertEqual(out.splitlines()[-1].partition("; next: ")[2],
                         f"headspan evaluate --model.path {self.begin} --evaluate.requests {self.asked['requests']} "
                         f"--evaluate.generate {self.asked['generate']} --evaluate.answers {self.answers}")
        self.assertFalse(reported.exists())
        written = {kind: file.read_text() for kind, file in self.asked.items()}

        # Second pass.
        self.answer()
        theirs = evaluate("hf", dtype="float32", **given)
        self.agree(evaluate("headspan", answers=self.answers, **given), theirs)
        code, out, err = self.run_command("--tasks", TASKS[0], *words, f"answers={self.answers}")
        self.assertEqual(code, 0, err)
        self.assertIn(f"|{TASKS[0]}|", out)
        ours = json.loads(next(reported.rglob("results_*.json")).read_text())["results"][TASKS[0]]
        for metric in ("acc,none", "acc_norm,none"):
            self.assertAlmostEqual(ours[metric], theirs["results"][TASKS[0]][metric], delta=1e-6)

        # Another first pass writes the same, over what is there; of fewer tasks it leaves no file of the others.
        self.assertIsNone(evaluate("headspan", requests=folder, **given))
        self.assertEqual({kind: file.read_text() for kind, file in self.asked.items()}, written)
        self.assertIsNone(evaluate("headspan", TASKS[:1], requests=folder, **given))
        self.assertFalse(self.asked["generate"].exists())

        # An answer less.
        lost = json.loads(self.asked["requests"].read_text().splitlines()[3])["id"]
        lines = self.answers.read_text().splitlines(keepends=True)
        self.answers.write_text("".join(line for line in lines if json.loads(line)["id"] != lost))
        code, out, err = self.run_command("--tasks", TASKS[0], *words, f"answers={self.answers}")
        self.assertEqual((code, out), (2, ""))
        self.assertIn(f"headspan-harness: {self.answers}: id = {lost}: 1 of ", err.splitlines()[-1])


class Refused(HarnessTest):
    def refused(self, message, task="headspan_choice", gen_kwargs=None, **arguments):
        arguments = {"pretrained": self.plain} | (arguments or {"requests": self.folder / "refused"})
        with self.assertRaises(InputError) as told:
            evaluate("headspan", [task], gen_kwargs=gen_kwargs, **arguments)
        self.assertTrue(str(told.exception).startswith(message), told.exception)

    def test_sampling(self):
        for name, value in {"do_sample": True, "temperature": 0.7, "num_beams": 4, "repetition_penalty": 1.2}.items():
            self.refused("task headspan_until: generation_kwargs: "
                         + ("do_sample = True" if name == "temperature" else f"{name} = {value}"),
                         "headspan_until", gen_kwargs={"do_sample": None, name: value})

    def test_lengths(self):
        requests = self.folder / "refused"
        self.refused("max_length = 3: a continuation has ", max_length=3, requests=requests)
        self.refused("max_gen_toks = 24: leaves no context of max_length = 24 ", "headspan_until", max_length=24,
                     requests=requests)
        self.refused("--model_args: max_length = 0.5: is no length", max_length=0.5, requests=requests)

    def test_arguments(self):
        requests = self.folder / "refused"
        self.refused("--model_args: dtype = float32: is unknown; pretrained, one of ", dtype="float32")
        self.refused("--model_args: does not say what to do; ", max_length=9)
        self.refused("--model_args: does not say what to do; ", requests=requests, command="x")
        self.refused(f"{self.folder}/none/config.json: cannot be read ", pretrained=self.folder / "none",
                     requests=requests)
        self.refused(f"{self.folder}/none.jsonl: cannot be read ", answers=self.folder / "none.jsonl")
        self.refused("--model_args: requests = ", requests=self.plain / "config.json")

    def test_cache_of_the_harness(self):
        code, out, err = self.run_command("--tasks", TASKS[0], "--use_cache", self.folder / "cache", "--model_args",
                                          f"pretrained={self.plain}", f"requests={self.folder / 'refused'}")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("headspan-harness: --use_cache: would keep the blank answers", err.splitlines()[-1])

    def test_tokenizers(self):
        requests = self.folder / "refused"
        empty = make_model(self.folder / "empty")
        self.refused(f"{empty}: has no tokenizer ", pretrained=empty, requests=requests)
        self.refused(f"{self.folder}/none: has no tokenizer ", tokenizer=self.folder / "none", requests=requests)
        endless = self.folder / "endless"
        endless.mkdir()
        (endless / "config.json").write_text('{"max_position_embeddings": 8}')
        tokenizer = TINY_OLMO2 / "tokenizer.json"
        self.refused(f"{tokenizer}: eos_token: is not said", pretrained=endless, tokenizer=tokenizer, requests=requests)


if __name__ == "__main__":
    unittest.main()
