"""What query heads attend to in the map of `headspan-report report`, in headless Chromium: the scores of a head at the
checkpoint of the slider, and heads coloured by them, against the numbers of the files; streams and results without.

    test_map_scores.py [unittest's arguments]
"""
import re
import unittest

import h5py
import matplotlib
import numpy as np
from samples import layers, make_scores, random_stream, write_result
from test_page import WithPage

SCORES = ("induction", "duplicate_token", "previous_token", "first_token", "entropy")
WORDS = ["induction", "duplicate token", "previous token", "first token", "entropy, nats"]
KV, QUERY = layers(2, 2, 2), layers(4, 4, 4)
STEPS = (0, 10, 100)
NONE_AT = 1  # of STEPS


def streams_of(step):
    streams = {name: random_stream(layer, step + i)
               for i, (name, layer) in enumerate({"k": KV, "q": QUERY, "v": KV, "z": QUERY}.items())}
    streams["q"]["tables"]["r2_heldout"] = streams["q"]["tables"]["r2"] ** 2  # another map than in-sample
    return streams


def scores_of(step, layer=QUERY):
    values = np.random.default_rng(step).random((len(SCORES), len(layer)))
    values[-1] *= 6  # entropy in nats is not below 1
    return make_scores(layer, values)


def colours(shares):
    """Returns the colours that the page gives to shares of the scale: it has every 32nd of cividis."""
    stops = matplotlib.colormaps["cividis"](np.linspace(0, 1, 9))[:, :3] * 255
    return np.stack([np.interp(shares, np.linspace(0, 1, 9), channel) for channel in stops.T], axis=1)


class WithMap(WithPage):
    def setUp(self):
        super().setUp()
        self.page.evaluate("state.kept = state.shown = null; state.colour = 'best'; setColours(); draw()")

    def choose(self, stream, checkpoint):
        self.page.evaluate(f"document.querySelectorAll('#streams input')['kqvz'.indexOf('{stream}')].click()")
        self.page.evaluate(f"slider.value = {checkpoint}; slider.dispatchEvent(new Event('input'))")
        self.page.wait(f"document.body.dataset.drawn === '{stream} {checkpoint}'")

    def colour_by(self, name):
        self.page.evaluate(f"colour.value = '{name}'; colour.dispatchEvent(new Event('change'))")
        self.settle()

    def offered(self):
        """Returns what can colour heads; None if nothing is offered."""
        seen = self.page.evaluate("document.getElementById('colour').getClientRects().length")
        return self.texts("#colour option") if seen else None

    def told(self):
        """Returns the rows of the scores of the head that is kept or pointed at: score -> (head, uniform)."""
        rows = self.page.evaluate("[...document.querySelectorAll('#detail tr')].map(r => [...r.cells].map(c => c.innerText))")
        return {row[0]: tuple(row[1:]) for row in rows if row[0] in WORDS}


class Scores(WithMap):
    @classmethod
    def folders(cls):
        cls.files = [write_result(cls.folder / "results", f"step{step}", streams_of(step), step=step,
                                  scores=None if i == NONE_AT else scores_of(step)) for i, step in enumerate(STEPS)]
        return [cls.folder / "results"]

    def in_file(self, checkpoint, score):
        with h5py.File(self.files[checkpoint]) as file:
            return file[f"attention/{score}"][...], float(file[f"attention/{score}"].attrs["uniform"])

    def check_told(self, checkpoint, head):
        told = self.told()
        self.assertEqual(list(told), WORDS)
        for score, words in zip(SCORES, WORDS):
            values, uniform = self.in_file(checkpoint, score)
            self.assertAlmostEqual(float(told[words][0]), values[head], delta=0.00056)  # of 6 nats in 16 bits: 0.00005
            self.assertAlmostEqual(float(told[words][1]), uniform, delta=0.00051)

    def test_scores_of_a_head_follow_the_slider(self):
        for stream in "qz":
            self.choose(stream, 2)
            self.page.evaluate("document.getElementById('heads').focus({preventScroll: true})")
            for _ in range(2):
                self.page.key("ArrowUp", 38)
            self.page.key("ArrowRight", 39)
            self.page.wait("document.querySelector('#detail h3').textContent.startsWith('layer 1 head ')")
            head = 4 + int(re.search("layer 1 head ([0-9])", self.page.text("#detail"))[1])
            self.check_told(2, head)
            self.assertIn("in-sample", self.page.text("#detail"))
            self.page.evaluate("slider.focus()")
            self.page.key("ArrowLeft", 37)
            self.page.wait(f"document.body.dataset.drawn === '{stream} {NONE_AT}'")
            self.assertEqual([told[0] for told in self.told().values()], ["–"] * len(SCORES))
            self.page.key("ArrowLeft", 37)
            self.page.wait(f"document.body.dataset.drawn === '{stream} 0'")
            self.check_told(0, head)
            self.page.key("Home", 36)

    def test_pointing_tells_them_too(self):
        self.choose("q", 0)
        self.page.mouse("#heads", 2.5 / 3, 0.5 / 4)
        self.settle()
        self.check_told(0, 11)
        self.page.mouse("#pairs", 1.5 / 12, 6.5 / 12)  # of the target
        self.settle()
        self.check_told(0, 6)
        self.page.mouse("h1")

    def heads_seen(self):
        """Returns the colour in the middle of each head of Q, in [0, 255]."""
        seen = self.seen("#heads") * 255
        y, x = np.array(seen.shape[:2]) / (4, 3)
        return np.array([seen[int((3.5 - i % 4) * y), int((layer + 0.5) * x)] for i, layer in enumerate(QUERY)])

    def test_heads_are_coloured_by_what_is_chosen(self):
        r2 = streams_of(100)["q"]["tables"]["r2"]
        causal = (QUERY[None, :] <= QUERY[:, None]) & ~np.eye(len(QUERY), dtype=bool)
        best = np.where(causal, r2, -1).max(axis=1)
        self.choose("q", 2)
        self.page.mouse("h1")
        for name, unit, values in (("best", "R²", best), ("heldout", "R²", best ** 2),
                                   *((score, "nats" if score == "entropy" else "score", self.in_file(2, score)[0])
                                     for score in SCORES)):
            with self.subTest(colour=name):
                self.colour_by(name)
                low, high = np.quantile(values, (0.01, 0.99))
                low, high = np.floor(20 * low) / 20, np.ceil(20 * high) / 20
                np.testing.assert_allclose(self.heads_seen(), colours((values - low) / (high - low)), atol=6)
                words = self.texts("#heads-scale span")
                self.assertRegex(words[0], rf"^{unit} (≤ )?{low:.2f}$")
                self.assertRegex(words[1], rf"^(≥ )?{high:.2f}$")

    def test_uniform_attention_is_the_null(self):
        self.choose("z", 0)
        for score, words in zip(SCORES, WORDS):
            self.colour_by(score)
            self.assertEqual(self.page.text("#heads-title"),
                             f"Heads: {words} (null, uniform attention: {self.in_file(0, score)[1]:.3f})")
        self.colour_by("rank")
        self.assertEqual(self.page.text("#heads-title"), "Heads: effective rank")

    def test_a_checkpoint_without_scores_is_grey(self):
        self.choose("q", NONE_AT)
        self.colour_by("induction")
        np.testing.assert_allclose(self.heads_seen(), 0xe1, atol=1)

    def test_keys_and_values_have_none(self):
        self.choose("q", 0)
        self.assertEqual(self.offered()[3:], WORDS)
        self.colour_by("induction")
        for stream in "kv":
            self.choose(stream, 0)
            self.page.mouse("#heads", 0.1, 0.9)
            self.settle()
            self.assertEqual((self.told(), len(self.offered())), ({}, 3))
            self.assertEqual(self.page.text("#heads-title"), "Heads: R² from the best causal source")
            self.assertEqual(self.page.evaluate("colour.value"), "best")
            self.page.mouse("h1")
        self.choose("z", 0)
        self.assertEqual(self.page.evaluate("colour.value"), "induction")
        self.assertIn("Heads: induction", self.page.text("#heads-title"))

    def test_by_keys(self):
        self.choose("q", 0)
        self.page.evaluate("colour.focus()")
        for _ in range(3):
            self.page.key("ArrowDown", 40)
        self.page.wait("document.getElementById('heads-title').textContent.startsWith('Heads: induction')")

    def test_on_a_phone(self):
        self.page.resize(360, 800, mobile=True)
        self.choose("z", 0)
        self.colour_by("entropy")
        self.page.mouse("#heads", 0.5, 0.5)
        self.settle()
        self.assertEqual(self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]"), [360, 360])
        outside = self.page.evaluate("""(() => { const edge = document.querySelector(".controls").getBoundingClientRect().right;
            return [...document.querySelectorAll(".controls *, #heads-scale *, #heads-title, #detail *")]
                .filter(e => e.getBoundingClientRect().right > edge + 0.5).map(e => e.outerHTML); })()""")
        self.assertEqual(outside, [])

    def test_nothing_goes_wrong(self):
        self.assertEqual((self.done.returncode, self.page.complaints()), (0, []))
        self.assertEqual(self.page.requests(), [self.path.resolve().as_uri()])


class Several(WithMap):
    """Studies without scores, with scores of heads in other layers, and with scores, no held-out tokens and more streams
    than the first."""

    @classmethod
    def folders(cls):
        four, other = streams_of(0), {"q": random_stream(QUERY, 1)}
        write_result(cls.folder / "none", "step0", {"k": four["k"], "q": four["q"]}, model_name="none")
        write_result(cls.folder / "other", "step0", other, scores=scores_of(0, layers(5, 4, 3)), model_name="other")
        last = {name: random_stream(layer, 5, n_heldout=0) for name, layer in {"k": QUERY, "q": QUERY, "v": KV, "z": QUERY}.items()}
        write_result(cls.folder / "all", "step0", last, scores=scores_of(0), model_name="all")
        return [cls.folder / name for name in ("none", "other", "all")]

    def study(self, number, stream):
        self.page.evaluate(f"choice.value = {number}; choice.dispatchEvent(new Event('change'))")
        self.page.evaluate(f"document.querySelectorAll('#streams input')[{stream}].click()")
        self.settle()

    def buttons(self):
        return self.page.evaluate("[...document.querySelectorAll('#streams label')].filter(l => l.getClientRects().length)"
                                  ".map(l => l.textContent)")

    def check_without(self, number, stream):
        self.study(number, stream)
        self.page.mouse("#heads", 0.5, 0.5)
        self.settle()
        self.assertIn("layer 1 head", self.page.text("#detail"))
        self.assertEqual((self.offered(), self.told()), (None, {}))
        self.assertEqual(self.page.evaluate("document.getElementById('scores-told').getClientRects().length"), 0)
        self.assertEqual(self.page.text("#heads-title"), "Heads: R² from the best causal source")
        self.page.mouse("h1")

    def test_results_without_scores(self):
        self.check_without(0, 1)

    def test_scores_of_heads_in_other_layers(self):
        self.check_without(1, 0)

    def test_what_is_chosen_for_one_study_does_not_colour_another(self):
        self.study(2, 1)
        self.colour_by("rank")
        self.assertEqual(self.page.text("#heads-title"), "Heads: effective rank")
        self.check_without(0, 1)

    def test_a_study_with_more_streams_than_the_first(self):
        self.study(0, 0)
        self.assertEqual(self.buttons(), ["Keys", "Queries"])
        self.study(2, 3)
        self.assertEqual(self.buttons(), ["Keys", "Queries", "Values", "Outputs"])
        self.page.mouse("#heads", 0.5, 0.5)
        self.settle()
        self.assertEqual(len(self.told()), len(SCORES))
        self.page.mouse("h1")

    def test_keys_have_none_even_if_there_are_as_many(self):
        self.study(2, 0)
        self.page.mouse("#heads", 0.5, 0.5)
        self.settle()
        self.assertEqual((self.told(), self.offered()), ({}, ["R² from the best causal source", "effective rank"]))
        self.page.mouse("h1")

    def test_without_held_out_tokens(self):
        self.study(2, 3)
        self.assertEqual(self.offered(), ["R² from the best causal source", "effective rank", *WORDS])
        self.assertEqual(self.page.complaints(), [])


if __name__ == "__main__":
    unittest.main()
