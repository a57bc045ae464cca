"""evaluate with documents that begin in the middle of a sequence, and with an exact prefill, through the program, against
numpy.

usage: test_prefill.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import cached_forward
from compression_case import EOS, LENGTH, CompressionTest
from forward import Model
from program import GOLDEN, main

END = 2  # of the golden models
METHODS = (("olmo2_gqa", "latent", {"stored": 0.2}), ("qwen3", "rotated-q4", {}),
           ("olmo2_mha", "headspan", {"stored": 0.5, "references": 2, "scope": "causal"}))
IN_GROUPS = ("llama_gqa", "kivi", {"bits": 2})  # which only the host stores


class Prefill(CompressionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(8)
        ids = rng.integers(END + 1, EOS, 4 * LENGTH)
        ids[[1, 11, 13, 39, 45, 46, 83, 150]] = END  # among the first tokens, close together, last of a sequence
        cls.documents = cls.write_tokens("documents.bin", ids)
        cls.windows = np.split(ids, 4)

    def assert_scores(self, found, expected):
        for field in ("loss", "full_loss", "kl", "kl_se", "dloss"):
            self.assertAlmostEqual(found[field] / expected[field], 1, 4 if "kl" in field or field == "dloss" else 6, field)

    def test_every_document_begins_with_exact_tokens(self):
        self.check_documents(*METHODS)

    def test_documents_in_groups_of_tokens(self):
        self.check_documents(IN_GROUPS)

    def check_documents(self, *methods):
        for model, algorithm, more in methods:
            path = self.calibrate(1, model, f"documents{algorithm}", algorithm=algorithm, exact_first=3, **more)
            plan, reference = cached_forward.read_plan(path), Model(GOLDEN / model)
            expected, without = (cached_forward.summary(reference, self.windows, plan, ends) for ends in ({END}, ()))
            self.assertGreater(abs(expected["kl"] / without["kl"] - 1), 1e-3, "the documents make no difference")
            for ranks, cache in ((1, "simulated"), (2, "compressed")):
                with self.subTest(model=model, algorithm=algorithm, cache=cache):
                    found = self.evaluate(ranks, model, "documents", plan=path, cache=cache, texts=self.documents, batch=2)
                    self.assert_scores(found["texts"]["documents"], expected)

    def test_a_text_behind_an_exact_prefill(self):
        self.check_prefill(*METHODS)

    def test_groups_of_tokens_behind_an_exact_prefill(self):
        self.check_prefill(IN_GROUPS)

    def check_prefill(self, *methods):
        for number, (model, algorithm, more) in enumerate(methods):
            path = self.calibrate(1, model, f"prefilled{algorithm}", algorithm=algorithm, exact_first=2, **more)
            plan, reference = cached_forward.read_plan(path), Model(GOLDEN / model)
            expected = cached_forward.summary(reference, self.windows, plan, {END}, prefilled=True)
            with self.subTest(model=model, algorithm=algorithm):
                ranks = 1 + number % 3
                found = self.evaluate(ranks, model, "prefilled", plan=path, texts=self.documents, prefill="exact", batch=3,
                                      **({"run.tensor_parallel": 2} if ranks == 2 else {}))
                self.assertEqual((found["prefill"], found["exact_recent"]), ("exact", 0))
                self.assert_scores(found["texts"]["documents"], expected)
                self.assertGreater(found["tokens_per_second"]["decode"], 0)

    def test_an_exact_prefill_keeps_recent_tokens(self):
        """With as many recent tokens as there are, nothing is lost, in whichever phase a token is read."""
        path = self.calibrate(1, "olmo2_gqa", "recent", stored=0.1)
        found = self.evaluate(1, "olmo2_gqa", "recent", plan=path, texts=self.documents, prefill="exact", exact_recent=LENGTH)
        self.assertLess(abs(found["texts"]["documents"]["kl"]), 1e-12)
        some = self.evaluate(1, "olmo2_gqa", "recent", plan=path, texts=self.documents, prefill="exact", exact_recent=5)
        none = self.evaluate(1, "olmo2_gqa", "recent", plan=path, texts=self.documents, prefill="exact")
        self.assertLess(some["texts"]["documents"]["kl"], 0.9 * none["texts"]["documents"]["kl"])

    def test_requests_behind_an_exact_prefill(self):
        for model, algorithm, more in (METHODS[0], IN_GROUPS):
            path = self.calibrate(1, model, f"asked{algorithm}", algorithm=algorithm, exact_first=2, **more)
            plan, reference = cached_forward.read_plan(path), Model(GOLDEN / model)
            scored = [{"id": i, "context": tokens[:9 + 5 * i].tolist(), "continuation": tokens[9 + 5 * i:14 + 7 * i].tolist()}
                      for i, tokens in enumerate(self.windows)]
            greedy = [{"id": f"g{i}", "context": tokens[:35 - 3 * i].tolist(), "max_new_tokens": 5}
                      for i, tokens in enumerate(self.windows)]
            for name, requests in (("scored", scored), ("greedy", greedy)):
                (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
            answers = self.folder / f"{algorithm}.jsonl"
            self.evaluate(1, model, "asked", plan=path, prefill="exact", requests=self.folder / "scored.jsonl", batch=3,
                          generate=self.folder / "greedy.jsonl", answers=answers)
            found = [json.loads(line) for line in answers.read_text().splitlines()]
            for request, answer in zip(scored, found):
                tokens, prompt = np.array(request["context"] + request["continuation"]), len(request["context"])
                rows = self.rows(reference, tokens, plan, prompt)
                self.assertAlmostEqual(answer["loglikelihood"],
                                       sum(rows[i - 1, tokens[i]] for i in range(prompt, len(tokens))), 5)
            for request, answer in zip(greedy, found[len(scored):]):
                context, continued = list(request["context"]), []
                for _ in range(5):
                    rows = self.rows(reference, np.array(context + continued), plan, len(context))
                    continued.append(int(rows[-1].argmax()))
                self.assertEqual(answer["tokens"], continued)

    @staticmethod
    def rows(model, tokens, plan, prompt):
        """Returns the log probabilities behind each token of a prompt and of its continuation."""
        rows = cached_forward.log_probabilities(cached_forward.logits(model, tokens, plan, {END, EOS}, prompt))
        rows[:prompt] = cached_forward.log_probabilities(cached_forward.logits(model, tokens, None))[:prompt]
        return rows

    def test_only_compressed_caches_have_an_exact_prefill(self):
        for cache in ("full", "simulated"):
            keys = {"model.path": GOLDEN / "qwen3", "evaluate.plan": self.folder / "p.h5", "evaluate.texts": self.text,
                    "evaluate.prefill": "exact", "evaluate.cache": cache}
            self.assertIn("evaluate.prefill = exact: is for evaluate.cache = compressed",
                          self.run_command(1, "evaluate", keys, code=2))


if __name__ == "__main__":
    main()
