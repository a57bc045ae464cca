"""Algorithm 1 of the paper, as its text and as its code have it, against a plain reimplementation and its own invariants: on
random graphs, and on graphs with ties, disconnected ones, with R2 at the ends of tau, without edges.

usage: test_reference_graph.py GRAPH_FILTER [unittest's arguments]
"""
import itertools
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from elimination import select_graph

FILTER = sys.argv.pop(1)
LAYERS, OF_LAYER = 4, 5
HEADS = LAYERS * OF_LAYER
LAYER = np.repeat(np.arange(LAYERS), OF_LAYER)


def graphs():
    """name: R2 [target, source], NaN on the diagonal."""
    rng = np.random.default_rng(11)
    found = {f"random {i}": rng.uniform(-0.2, 1, (HEADS, HEADS)) for i in range(4)}
    found |= {f"ties {i}": rng.integers(0, 3, (HEADS, HEADS)) / 2 for i in range(4)}
    found["all equal"] = np.full((HEADS, HEADS), 0.5)
    found["ones"] = np.ones((HEADS, HEADS))
    found["zeros"] = np.zeros((HEADS, HEADS))
    found["negative"] = np.full((HEADS, HEADS), -1.0)
    found["near one"] = 1 - rng.uniform(0, 1e-5, (HEADS, HEADS))
    found["near zero"] = rng.uniform(0, 1e-5, (HEADS, HEADS))
    found["close together"] = rng.uniform(0.3, 0.301, (HEADS, HEADS))
    found["layers apart"] = np.where(LAYER[:, None] == LAYER, rng.uniform(0, 1, (HEADS, HEADS)), -1)
    found["one source"] = np.where(np.arange(HEADS) == 2, 0.9, -1.0) * np.ones((HEADS, 1))
    found["some unknown"] = np.where(rng.random((HEADS, HEADS)) < 0.3, np.nan, found["random 0"])
    for r2 in found.values():
        np.fill_diagonal(r2, np.nan)
    return found


def run(cases):
    """The program's {target: references} of each (r2, share, rule, minimum, maximum)."""
    text = "".join(f"{HEADS} {int(rule == 'code')} {share} {minimum} {maximum} {' '.join(map(str, LAYER))} "
                   f"{' '.join(repr(float(x)) for x in r2.ravel())}\n" for r2, share, rule, minimum, maximum in cases)
    printed = subprocess.run([FILTER], input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    return [{t: [int(r) for r in word.split(",")] for t, word in enumerate(line.split()) if word != "-"}
            for line in printed.splitlines()]


class ReferenceGraph(unittest.TestCase):
    names = graphs()

    @classmethod
    def setUpClass(cls):
        cls.keys = list(itertools.product(cls.names, (0.1, 0.5, 0.9), ("text", "code"), (1, 5), (1, 5)))
        cls.found = run([(cls.names[name], *rule) for name, *rule in cls.keys])

    def test_is_that_of_a_plain_reimplementation(self):
        self.assertEqual(len(self.found), len(self.keys))
        for (name, share, rule, minimum, maximum), found in zip(self.keys, self.found):
            expected = select_graph(self.names[name], LAYER, share, rule, minimum, maximum)
            with self.subTest(graph=name, share=share, rule=rule, minimum=minimum):
                self.assertEqual(found, {int(t): [int(r) for r in references] for t, references in expected.items()})

    def test_references_are_known_earlier_and_kept(self):
        for (name, share, rule, minimum, maximum), found in zip(self.keys, self.found):
            with self.subTest(graph=name, share=share, rule=rule, minimum=minimum):
                for target, references in found.items():
                    self.assertEqual(len(references), len(set(references)))
                    self.assertGreaterEqual(len(references), min(minimum, maximum))
                    self.assertLessEqual(len(references), maximum)
                    for reference in references:
                        self.assertNotIn(reference, found)
                        self.assertLessEqual(LAYER[reference], LAYER[target])
                        self.assertGreaterEqual(self.names[name][target, reference], 0)

    def test_the_cases_are_what_they_are_for(self):
        of = dict(zip(self.keys, self.found))
        self.assertEqual(of["negative", 0.5, "text", 1, 1], {})  # no edge at any tau
        self.assertEqual(set(map(tuple, of["one source", 0.5, "code", 1, 1].values())), {(2,)})
        self.assertGreater(len(of["layers apart", 0.5, "text", 1, 5]), HEADS // 4)
        self.assertTrue(any(len(found) == HEADS // 2 for found in self.found))


if __name__ == "__main__":
    unittest.main()
