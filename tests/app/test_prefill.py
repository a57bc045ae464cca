"""evaluate with documents that begin in the middle of a sequence, with recent tokens that stay exact, and with an exact
prefill, through the program, against numpy.

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
           ("olmo2_mha", "headspan", {"stored": 0.5, "references": 2, "scope": "causal"}), ("llama_gqa", "rotated-q8", {}),
           ("qwen3", "oscar", {"bits": 3}), ("olmo2_gqa", "latent", {"stored": 0.15, "units": "measured"}))  # the last with gains
ON_THE_HOST = (("llama_gqa", "kivi", {"bits": 2}), ("qwen3", "hadamard", {"bits": 3}))  # which devices do not store
QUANTISE = ("olmo2_gqa", "quantise", {"bits": 4})


class Prefill(CompressionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(8)
        ids = rng.integers(END + 1, EOS, 4 * LENGTH)
        ids[[1, 11, 13, 39, 45, 46, 83, 150]] = END  # among the first tokens, close together, last of a sequence
        cls.documents = cls.write_tokens("documents.bin", ids)
        cls.windows = np.split(ids, 4)
        cls.plans = {}

    def assert_scores(self, found, expected):
        for field in ("loss", "full_loss", "kl", "kl_se", "dloss"):
            self.assertAlmostEqual(found[field] / expected[field], 1, 4 if "kl" in field or field == "dloss" else 6, field)

    def plan_of(self, model, algorithm, more):
        """Returns the path of a plan and what is in it; each is made once. Bands have gains where units are measured, or else it
        is no test of gains."""
        key = json.dumps([model, algorithm, more])
        if key not in self.plans:
            path = self.calibrate(1, model, f"plan{len(self.plans)}", algorithm=algorithm, exact_first=3, **more)
            self.plans[key] = path, cached_forward.read_plan(path)
        groups = [group for layers in self.plans[key][1].streams.values() for group in layers]
        self.assertEqual(any("weights" in group for group in groups), "units" in more)
        return self.plans[key]

    def test_every_document_begins_with_exact_tokens(self):
        self.check_documents(*METHODS)

    def test_documents_in_what_only_the_host_stores(self):
        self.check_documents(*ON_THE_HOST)

    def check_documents(self, *methods):
        for model, algorithm, more in methods:
            path, plan = self.plan_of(model, algorithm, more)
            reference = Model(GOLDEN / model)
            expected, without = (cached_forward.summary(reference, self.windows, plan, ends) for ends in ({END}, ()))
            self.assertGreater(abs(expected["kl"] / without["kl"] - 1), 1e-3, "the documents make no difference")
            for ranks, cache in ((1, "simulated"), (2, "compressed")):
                with self.subTest(model=model, algorithm=algorithm, cache=cache, **more):
                    found = self.evaluate(ranks, model, "documents", plan=path, cache=cache, texts=self.documents, batch=2)
                    self.assert_scores(found["texts"]["documents"], expected)

    def test_a_query_reads_recent_tokens_as_they_are(self):
        self.check_recent(*METHODS, QUANTISE)

    def test_recent_tokens_of_what_only_the_host_stores(self):
        self.check_recent(*ON_THE_HOST)

    def check_recent(self, *methods):
        """The query's own token is the first of them. In windows of 80 tokens, so that kivi's groups become complete."""
        windows = np.split(np.concatenate(self.windows), 2)
        for number, (model, algorithm, more) in enumerate(methods):
            path, plan = self.plan_of(model, algorithm, more)
            reference = Model(GOLDEN / model)
            for recent, cache, prefill in ((1, "simulated", "compressed"), (6, "compressed", "compressed"),
                                           (6, "compressed", "exact")):
                with self.subTest(model=model, algorithm=algorithm, recent=recent, cache=cache, prefill=prefill, **more):
                    expected, other = (cached_forward.summary(reference, windows, plan, {END}, prefill == "exact", count)
                                       for count in (recent, recent - 1))
                    self.assertGreater(abs(expected["kl"] / other["kl"] - 1), 2e-4, "one token less makes no difference")
                    found = self.evaluate(1 + number % 3, model, "recent", plan=path, cache=cache, texts=self.documents, batch=1,
                                          prefill=prefill, exact_recent=recent, **{"tokens.sequence_length": 2 * LENGTH})
                    self.assertEqual(found["exact_recent"], recent)
                    self.assert_scores(found["texts"]["documents"], expected)

    def test_a_text_behind_an_exact_prefill(self):
        self.check_prefill(*METHODS)

    def test_what_only_the_host_stores_behind_an_exact_prefill(self):
        self.check_prefill(*ON_THE_HOST)

    def check_prefill(self, *methods):
        for number, (model, algorithm, more) in enumerate(methods):
            path, plan = self.plan_of(model, algorithm, more)
            expected = cached_forward.summary(Model(GOLDEN / model), self.windows, plan, {END}, prefilled=True)
            with self.subTest(model=model, algorithm=algorithm, **more):
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

    def test_requests(self):
        kivi = ON_THE_HOST[0]
        cases = ((METHODS[0], "exact", 0), (kivi, "exact", 0), (METHODS[-1], "exact", 4), (kivi, "exact", 3), (kivi, "compressed", 3),
                 (METHODS[2], "compressed", 4))
        for (model, algorithm, more), prefill, recent in cases:
            path, plan = self.plan_of(model, algorithm, more)
            with self.subTest(model=model, algorithm=algorithm, prefill=prefill, recent=recent):
                self.check_requests(model, path, plan, prefill, recent)

    def check_requests(self, model, path, plan, prefill, recent):
        reference = Model(GOLDEN / model)
        scored = [{"id": i, "context": tokens[:9 + 5 * i].tolist(), "continuation": tokens[9 + 5 * i:14 + 7 * i].tolist()}
                  for i, tokens in enumerate(self.windows)]
        greedy = [{"id": f"g{i}", "context": tokens[:35 - 3 * i].tolist(), "max_new_tokens": 5}
                  for i, tokens in enumerate(self.windows)]
        for name, requests in (("scored", scored), ("greedy", greedy)):
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
        answers = self.folder / "answers.jsonl"
        self.evaluate(1, model, "asked", plan=path, prefill=prefill, exact_recent=recent, batch=3, answers=answers,
                      requests=self.folder / "scored.jsonl", generate=self.folder / "greedy.jsonl")
        found = [json.loads(line) for line in answers.read_text().splitlines()]

        def rows_of(tokens, prompt):
            return self.rows(reference, np.array(tokens), plan, prompt if prefill == "exact" else 0, recent)

        for request, answer in zip(scored, found):
            tokens, prompt = request["context"] + request["continuation"], len(request["context"])
            rows = rows_of(tokens, prompt)
            self.assertAlmostEqual(answer["loglikelihood"], sum(rows[i - 1, tokens[i]] for i in range(prompt, len(tokens))), 5)
        for request, answer in zip(greedy, found[len(scored):]):
            tokens, prompt = list(request["context"]), len(request["context"])
            for _ in range(5):
                tokens.append(int(rows_of(tokens, prompt)[-1].argmax()))
            self.assertEqual(answer["tokens"], tokens[prompt:])

    @staticmethod
    def rows(model, tokens, plan, prompt, recent):
        """Returns the log probabilities behind each token of a prompt and of its continuation."""
        rows = cached_forward.log_probabilities(cached_forward.logits(model, tokens, plan, {END, EOS}, prompt, recent))
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
