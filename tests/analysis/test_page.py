"""The look of the page of `headspan-report report` in headless Chromium: findings first, figures that fit a phone,
light and dark, the scales of the maps, interactive charts, a page without JavaScript, several studies on one page.

    test_page.py [unittest's arguments]
"""
import base64
import io
import re
import tempfile
import time
import unittest
from pathlib import Path

import matplotlib
import numpy as np
from browser import Page
from samples import layers, make_stream, random_stream, run, write_result

from headspan.error import InputError
from headspan_report.aggregate import aggregate_each

LAYER = layers(4, 4, 4)
CAUSAL = (LAYER[None, :] <= LAYER[:, None]) & ~np.eye(len(LAYER), dtype=bool)
STEPS = (0, 10, 100, 1000)


def low_stream(seed, low=0.12, high=0.33, layer=LAYER):
    """Returns a stream whose R² have a narrow range."""
    random = np.random.default_rng(seed)
    return make_stream(layer, low + (high - low) * random.random((len(layer),) * 2), references=3)


def best_of(stream, layer=LAYER):
    causal = (layer[None, :] <= layer[:, None]) & ~np.eye(len(layer), dtype=bool)
    return np.where(causal, stream["tables"]["r2"], -1).max(axis=1)


class WithPage(unittest.TestCase):
    """A page of one or more studies, opened once; `folders` writes the studies."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_page_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.path = cls.folder / "report.html"
        cls.done = run("report", *cls.folders(), "--output", cls.path)
        cls.page = Page()
        cls.addClassCleanup(cls.page.__exit__)
        cls.page.open(cls.path)

    def setUp(self):
        self.page.resize(1200, 900)
        self.theme("light")

    def theme(self, name):
        """Asks for the light or the dark theme, and waits for its pictures."""
        self.page.call("Emulation.setEmulatedMedia", media="",
                       features=[{"name": "prefers-color-scheme", "value": name}])
        self.page.wait("""[...document.querySelectorAll('picture')].every(picture => {
            const source = [...picture.querySelectorAll('source')].find(source => matchMedia(source.media).matches);
            return !source || source.srcset.includes(picture.querySelector('img').currentSrc); })""")
        self.settle()

    def settle(self):
        """Waits until the page has answered a change of its size or theme, and its pictures are decoded."""
        self.page.evaluate("""new Promise(done => setTimeout(done, 120))
            .then(() => Promise.all([...document.images].filter(image => image.offsetWidth).map(image => image.decode())))
            .then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))
            .then(() => true)""")

    def texts(self, selector):
        return self.page.evaluate(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent.trim())")

    def seen(self, selector):
        """Returns the pixels of an element: [y, x, colour] in [0, 1]."""
        left, top, width, height = self.page.evaluate(f"""(() => {{
            const box = document.querySelector('{selector}').getBoundingClientRect();
            return [box.left + scrollX, box.top + scrollY, box.width, box.height]; }})()""")
        clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
        data = self.page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        return matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png")[..., :3]


class OneStudy(WithPage):
    @classmethod
    def folders(cls):
        cls.results = {step: {"k": low_stream(step), "v": low_stream(step + 1, .2, .6)} for step in STEPS}
        for step, streams in cls.results.items():
            write_result(cls.folder / "results", f"step{step}", streams, step=step, validation_loss=9 - step / 500)
        return [cls.folder / "results"]

    def test_findings_lead(self):
        found = self.texts("#findings li")
        before, last = (best_of(self.results[step]["k"]).mean() for step in (0, 1000))
        self.assertIn(f"Keys: mean best-source R² is {before:.2f} at step 0, before training, and {last:.2f} at step "
                      "1000", found[-1])
        for text, anchor in zip(found, self.page.evaluate("[...document.querySelectorAll('#findings a')].map(a => a.hash)")):
            self.assertEqual(self.texts(f"{anchor} h3"), [text])
            self.assertRegex(text, r"; [^;]*(random \w+ gives?|the null is unknown)[^;]*$")
        first = self.page.evaluate("document.body.children[1].id")
        self.assertEqual(first, "findings")  # after the heading

    def test_the_paper_is_named_where_its_figures_are(self):
        title, address = "Linear Predictability of Attention Heads in Large Language Models", "https://arxiv.org/abs/2603.13314"
        links = self.page.evaluate("[...document.querySelectorAll('#figure-dominance .topic a')].map(a => [a.textContent, a.href])")
        self.assertEqual(links, [[title, address]])
        self.assertEqual(self.texts("#figure-dominance .topic"), [f"Where the best predictors are · Fig. 3 of {title}"])

    def test_figures_fit_a_phone(self):
        wide = self.page.evaluate("document.querySelector('#figure-dominance img').getBoundingClientRect().width")
        self.page.resize(390, 844, mobile=True)
        self.settle()
        sizes = self.page.evaluate("""[...document.images].map(image =>
            [image.currentSrc.length, image.naturalWidth, image.getBoundingClientRect().width])""")
        shown = [size for size in sizes if size[2] > 0]
        over = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        columns = self.page.evaluate("getComputedStyle(document.querySelector('.chart')).gridTemplateColumns.split(' ').length")
        self.assertGreater(wide, 1000)
        self.assertGreaterEqual(len(shown), 5)
        for _, natural, width in shown:
            self.assertLess(natural, 400)
            self.assertGreater(width / natural, 0.9)  # text of 9 points is not made smaller
        self.assertEqual((over, columns), ([390, 390], 1))

    def test_light_and_dark(self):
        for theme, ground in (("light", 1), ("dark", 0.102)):
            with self.subTest(theme=theme):
                self.theme(theme)
                deadline, ink = time.monotonic() + 20, 0.0  # a busy machine paints late
                while np.mean(ink) <= 0.002 and time.monotonic() < deadline:
                    figure = self.seen("#figure-dominance picture img")
                    ink = figure.max(axis=2) < 0.2 if theme == "light" else figure.min(axis=2) > 0.8
                self.assertGreater(np.mean(ink), 0.002)  # the axes and their numbers
                self.assertAlmostEqual(float(np.median(figure)), ground, delta=0.01)
                chart = self.seen("#figure-emergence .chart canvas")
                self.assertAlmostEqual(float(np.median(chart)), ground, delta=0.01)
                self.assertGreater(np.abs(chart - ground).max(), 0.4)

    def test_axes_of_the_maps(self):
        self.assertEqual(self.texts("#heads-x span"), ["0", "1", "2"])
        self.assertEqual(self.texts("#heads-y span"), ["0", "1", "2", "3"])
        self.assertEqual((self.texts("#pairs-x span"), self.texts("#pairs-y span")), (["0", "1", "2"],) * 2)
        heights = self.page.evaluate("[...document.querySelectorAll('#heads-y span')].map(e => e.getBoundingClientRect().top)")
        self.assertEqual(heights, sorted(heights, reverse=True))  # head 0 is at the bottom

    def test_scales_fit_what_is_shown(self):
        r2 = self.results[1000]["k"]["tables"]["r2"]
        for name, values in (("heads", best_of(self.results[1000]["k"])), ("pairs", r2[CAUSAL])):
            low, high = np.quantile(values, (0.01, 0.99))
            low, high = np.floor(20 * low) / 20, np.ceil(20 * high) / 20
            words = self.texts(f"#{name}-scale span")
            self.assertRegex(words[0], rf"^R² (≤ )?{low:.2f}$")
            self.assertRegex(words[1], rf"^(≥ )?{high:.2f}$")
        self.assertGreater(low, 0.09)
        self.assertLess(high, 0.4)
        colour = self.page.evaluate("""(() => { const c = document.getElementById("pairs"), s = c.width / 12;
            return [...c.getContext("2d").getImageData(Math.floor(0.5 * s), Math.floor(11.5 * s), 1, 1).data].slice(0, 3);
            })()""")
        wanted = matplotlib.colormaps["cividis"]((r2[11, 0] - low) / (high - low))[:3]
        np.testing.assert_allclose(colour, np.array(wanted) * 255, atol=9)

    def test_pointing_at_a_chart_tells_its_numbers(self):
        panel = "#figure-emergence .chart > div:nth-child(2)"  # of the values
        best = [best_of(self.results[step]["v"]).mean() for step in STEPS]
        self.assertIn(f"mean, in-sample{float(f'{best[3]:.4g}')}", self.page.text(f"{panel} .u-legend").replace("\n", "").replace("\t", ""))
        self.page.mouse(f"{panel} .u-over", 0.02, 0.5)
        self.settle()
        words = re.sub(r"\s", "", self.page.text(f"{panel} .u-legend"))
        self.assertIn("checkpointstep0", words)
        self.assertIn(f"mean,in-sample{float(f'{best[0]:.4g}')}", words)
        self.page.mouse("h1")

    def test_a_picture_stands_for_each_chart(self):
        shown = "getComputedStyle(document.querySelector('#figure-emergence {}')).display"
        self.assertEqual([self.page.evaluate(shown.format(part)) for part in ("picture", ".chart")], ["none", "grid"])
        self.page.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual([self.page.evaluate(shown.format(part)) for part in ("picture", ".chart")], ["inline", "none"])

    def test_without_javascript(self):
        with Page() as page:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
            page.call("Page.navigate", url=self.path.resolve().as_uri())
            page.wait("document.readyState === 'complete'")
            widths = page.evaluate("[...document.images].map(image => image.getBoundingClientRect().width)")
            self.assertGreaterEqual(len(widths), 6)
            self.assertGreater(min(widths), 500)
            self.assertIn("The map needs JavaScript", page.text("body"))


class SeveralStudies(WithPage):
    @classmethod
    def folders(cls):
        cls.small, cls.wide = layers(2, 2), layers(3, 3, 3)
        cls.other = {step: {"k": low_stream(step, layer=cls.wide)} for step in (5, 50)}
        for step in (0, 10):
            write_result(cls.folder / "a", f"step{step}", {"k": random_stream(cls.small, step, references=3),
                                                           "v": random_stream(cls.small, step + 1, references=3)}, step=step)
        for step, streams in cls.other.items():
            write_result(cls.folder / "b", f"step{step}", streams, step=step, model_name="wide", model_type="llama")
        write_result(cls.folder / "b", "step9", {"k": random_stream(cls.small, 9, references=3)}, step=9)  # of neither
        return [cls.folder / "a", cls.folder / "b"]

    def test_what_is_told(self):
        self.assertEqual(self.done.returncode, 2)
        self.assertIn("studies=2 checkpoints=4 streams=2 refused=1", self.done.stdout)
        self.assertIn("step9.h5", self.texts("#warnings li")[0])
        self.assertTrue(self.texts("#warnings li")[0].startswith("wide: "))
        self.assertEqual((self.page.complaints(), self.page.requests()), ([], [self.path.resolve().as_uri()]))

    def test_findings_of_each(self):
        self.assertEqual(self.texts("#findings h2"), ["tiny", "wide"])
        mean = best_of(self.other[50]["k"], self.wide).mean()
        self.assertTrue(any(f"{mean:.2f}" in text for text in self.texts("#findings ul:last-of-type li")))
        self.assertEqual(len(self.texts("#figure-emergence, #figure-emergence-1")), 2)
        self.assertEqual(len(set(re.findall(r'<figure id="([^"]*)', self.path.read_text()))),
                         len(re.findall(r"<figure id=", self.path.read_text())))

    def test_side_by_side(self):
        rows = self.page.evaluate("[...document.querySelectorAll('#overview tbody tr')].map(r => [...r.cells].map(c => c.textContent))")
        self.assertEqual([row[:2] for row in rows], [["tiny", "step10"], ["wide", "step50"]])
        self.assertEqual(rows[1][2], f"{best_of(self.other[50]['k'], self.wide).mean():.3f}")
        self.assertEqual(rows[1][5:], ["–"] * 3)  # it has no values
        means = [random_stream(self.small, 10, references=3), self.other[50]["k"]]
        means = [best_of(means[0], self.small).mean(), best_of(means[1], self.wide).mean()]
        self.assertRegex(self.texts("#figure-side h3")[0], rf"^Keys: mean best-source R² is {means[0]:.2f} in tiny at step 10 "
                         rf"and {means[1]:.2f} in wide at step 50; random projections give 0\.\d\d in tiny and 0\.\d\d in wide$")
        self.page.mouse("#figure-side .u-over", 0.95, 0.5)
        self.settle()
        told = self.page.evaluate("document.querySelector('#figure-side .u-legend').textContent")
        self.assertIn(f"tiny{float(f'{means[0]:.4g}')} at 10", told)
        self.assertIn(f"wide{float(f'{means[1]:.4g}')} at 50", told)

    def test_the_map_of_the_other(self):
        choose = "(() => { const c = document.getElementById('study-choice'); c.value = %d; c.dispatchEvent(new Event('change')); })()"
        self.page.evaluate(choose % 1)
        self.page.wait("document.body.dataset.drawn === 'k 1' && document.querySelectorAll('#heads-x span').length === 3")
        r2 = self.other[50]["k"]["tables"]["r2"]
        self.page.mouse("#pairs", 2.5 / 9, 8.5 / 9)
        self.settle()
        self.assertIn(f"From layer 0 head 2: R² {r2[8, 2]:.2f}", self.page.text("#detail"))
        self.assertIn("step50", self.page.text("#label"))
        visible = self.page.evaluate("[...document.querySelectorAll('#streams label')].filter(l => !l.hidden && "
                                     "getComputedStyle(l).display !== 'none').map(l => l.textContent)")
        self.page.evaluate(choose % 0)
        self.page.wait("document.querySelectorAll('#heads-x span').length === 2")
        self.assertEqual(visible, ["Keys"])


class FoldersAndStudies(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_page_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def write(self, folder, step, layer=None, **attributes):
        layer = layers(2, 2) if layer is None else layer
        return write_result(self.folder / folder, f"step{step}", {"k": random_stream(layer, step)}, step=step, **attributes)

    def steps(self, *folders, **more):
        return [list(study.table.step.values) for study in aggregate_each([self.folder / name for name in folders], **more)]

    def test_folders_of_one_study_are_one(self):
        self.write("a", 0), self.write("b", 10), self.write("c", 5, layers(3, 3)), self.write("c", 7, layers(3, 3))
        self.assertEqual(self.steps("a", "b", "c"), [[0, 10], [5, 7]])
        self.assertEqual(self.steps("c", "a", "c", "."), [[5, 7], [0, 10]])  # each file once

    def test_what_is_wrong_or_missing_is_told_once(self):
        self.write("a", 0), self.write("b", 5, layers(3, 3))
        Path(f"{self.write('c', 9)}.done").unlink()
        manifest = self.folder / "manifest.tsv"
        manifest.write_text("name\tpath\nstep0\tx\nstep5\tx\nstep6\tx\n")
        first, second = aggregate_each([self.folder / name for name in "abc"], manifest)
        self.assertRegex(" ".join(map(str, first.complaints())), r"step9\.h5: has no \.done.* name = step6: has no result")
        self.assertEqual(second.complaints(), [])
        with self.assertRaisesRegex(InputError, "hold no result that can be read, 1 that cannot"):
            aggregate_each([self.folder / "c"])


if __name__ == "__main__":
    unittest.main()
