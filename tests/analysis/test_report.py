"""The page of `headspan-report report` in headless Chromium: no request, no error; hover, click, keys, slider and
streams show the numbers that the results hold; narrow screens and print.

    test_report.py [--pictures FOLDER] [unittest's arguments]
"""
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

import matplotlib
import numpy as np
from browser import Page
from samples import check_nothing_is_replaced, layers, make_stream, random_stream, run, write_result

from headspan_report import pack, report

PICTURES = None
STEPS = (0, 10, 100, 1000)
KV, QUERY = layers(2, 3, 3), layers(4, 6, 6)  # the first layer has fewer heads


def streams_of(step):
    return {"k": random_stream(KV, step), "q": random_stream(QUERY, step + 1), "v": random_stream(KV, step + 2)}


class Packed(unittest.TestCase):
    def test_back_again(self):
        random = np.random.default_rng(0)
        for dtype in (np.uint8, np.uint16):
            values = random.integers(0, np.iinfo(dtype).max + 1, (5, 3, 7)).astype(dtype)
            np.testing.assert_array_equal(pack.unpack(pack.pack(values), dtype, 21), values.reshape(5, 21))

    def test_rounding(self):
        r2 = np.random.default_rng(0).random(1000)
        self.assertLessEqual(np.abs(pack.share8(r2) / 254 - r2).max(), 1 / 508 + 1e-12)
        self.assertLessEqual(np.abs(pack.signed16(-r2) / 32767 - 1 + r2).max(), 1 / 65534 + 1e-12)
        self.assertEqual(pack.share8(np.array([np.nan, -1.0, 2.0])).tolist(), [255, 0, 254])


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_report_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        for step in STEPS:
            streams = streams_of(step)
            if step == 100:
                streams["k"]["tables"]["status"][3, 1] = 8
            write_result(cls.folder / "results", f"step{step}", streams, step=step, validation_loss=9 - step / 500,
                         job="[model]\nmanifest = <b>&mine</b>\n", versions="GCC <12>")
        (cls.folder / "results" / "tiny" / "step5.h5").write_bytes(b"")
        cls.page_path = cls.folder / "report.html"
        cls.done = run("report", cls.folder / "results", "--output", cls.page_path)
        cls.page = Page()
        cls.addClassCleanup(cls.page.__exit__)
        cls.seconds = cls.page.open(cls.page_path)

    def r2(self, step, stream):
        return streams_of(step)[stream]["tables"]

    def choose(self, stream, checkpoint):
        self.page.evaluate(f"document.querySelectorAll('#streams input')['kqv'.indexOf('{stream}')].click()")
        self.page.evaluate(f"slider.value = {checkpoint}; slider.dispatchEvent(new Event('input'))")
        self.page.wait(f"document.body.dataset.drawn === '{stream} {checkpoint}'")

    def point(self, selector, x, y, click=False):
        self.page.mouse(selector, x, y, click)
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))")
        return self.page.text("#detail")

    def test_refused_files_are_told_here_too(self):
        self.assertEqual(self.done.returncode, 2)
        self.assertIn("step5.h5: has no .done", self.done.stderr)
        self.assertIn("step5.h5: has no .done", self.page.text("#warnings"))
        self.assertIn("1 fits flagged: an in-sample R² lies outside [0, 1]", self.page.text("#warnings"))
        self.assertIn("step100 Keys", self.page.text("#warnings"))
        self.assertIn("Overlap dimension of the projections (Fig. 4, left), since the results hold no",
                      self.page.text("#absent"))

    def test_nothing_is_fetched_and_nothing_goes_wrong(self):
        self.assertEqual(self.page.requests(), [self.page_path.resolve().as_uri()])
        self.assertEqual(self.page.complaints(), [])
        self.assertLess(self.seconds, 5)
        addresses = re.findall(r"(?:src|srcset|href)\s*=\s*\"(?!data:|#)([^\"]*)", self.page_path.read_text())
        self.assertEqual(set(addresses), {"https://arxiv.org/abs/2603.13314"})  # to be followed, of the paper

    def test_all_images_are_there(self):
        sizes = self.page.evaluate("[...document.images].map(image => [image.naturalWidth, image.complete])")
        self.assertGreaterEqual(len(sizes), 8)
        self.assertTrue(all(width > 100 and complete for width, complete in sizes), sizes)

    def test_text_of_files_is_no_markup(self):
        self.assertIn("manifest = <b>&mine</b>", self.page.evaluate("document.querySelector('pre').textContent"))
        self.assertEqual(self.page.evaluate("document.querySelectorAll('pre b').length"), 0)

    def test_pairs_under_the_pointer(self):
        for stream, layer, step in (("k", KV, 10), ("q", QUERY, 1000)):
            r2, n = self.r2(step, stream)["r2"], len(layer)
            self.choose(stream, STEPS.index(step))
            for target, source in ((0, 1), (n - 1, 0), (n - 1, n - 2), (4, 2)):
                text = self.point("#pairs", (source + 0.5) / n, (target + 0.5) / n)
                found = float(re.search(r"From .*: R² (\d\.\d\d)\.", text)[1])
                self.assertAlmostEqual(found, r2[target, source], delta=0.0071)
                self.assertIn(f"From layer {layer[source]} head", text)
            self.assertIn("not causal", self.point("#pairs", (n - 0.5) / n, 0.5 / n))
            self.assertIn("the head itself", self.point("#pairs", 1.5 / n, 1.5 / n))

    def test_heads_under_the_pointer(self):
        tables, n = self.r2(100, "q"), len(QUERY)
        self.choose("q", 2)
        target = n - 1  # layer 2 of 3, head 5 of 6: the right top
        sources = [s for s in range(n) if s != target]
        best = max(sources, key=lambda s: tables["r2"][target, s])

        text = self.point("#heads", 2.5 / 3, 0.5 / 6)

        self.assertIn("layer 2 head 5", text)
        self.assertIn(f"Best from layer {QUERY[best]} head {best - list(QUERY).index(QUERY[best])}", text)
        self.assertIn(f"R² {tables['r2'][target, best]:.3f} in-sample", text)
        self.assertIn(f"{tables['r2_heldout'][target, best]:.3f} held-out", text)
        self.assertIn("Effective rank 2.0 of 4", text)
        second = tables["references_forward"][target, 1]
        self.assertIn(f"L{QUERY[second]} H{second - list(QUERY).index(QUERY[second])}", text)
        self.assertRegex(text, rf"{tables['r2_forward'][target, 1]:.2f}")

    def test_a_click_keeps_a_head(self):
        self.choose("k", 0)
        kept = self.point("#heads", 0.5 / 3, 2.5 / 3, click=True)
        self.page.mouse("h1")
        self.assertIn("kept", kept)
        self.assertIn("layer 0 head 0 (kept", self.page.text("#detail"))
        self.page.evaluate("document.getElementById('heads').focus({preventScroll: true})")
        self.page.key("ArrowRight", 39)
        self.assertIn("layer 1 head 0 (kept", self.page.text("#detail"))
        self.page.key("Escape", 27)
        self.assertIn("Point at a head", self.page.text("#detail"))

    def test_slider_by_keys(self):
        self.choose("v", 3)
        self.assertEqual(self.page.text("#label"), "step1000, 4.1M tokens, validation loss 7")
        self.page.evaluate("slider.focus()")
        self.page.key("ArrowLeft", 37)
        self.page.wait("document.body.dataset.drawn === 'v 2'")
        self.assertEqual(self.page.text("#label"), "step100, 410k tokens, validation loss 8.8")
        r2 = self.r2(100, "v")["r2"]
        best = [max(r2[t, s] for s in range(8) if s != t and KV[s] <= KV[t]) for t in range(8)]
        self.assertIn(f"Mean R² from the best source {np.mean(best):.3f}", self.page.text("#numbers"))

    def test_colours_mean_what_the_scale_says(self):
        self.choose("k", 1)
        self.page.mouse("h1")
        r2, cividis = self.r2(10, "k")["r2"], matplotlib.colormaps["cividis"]
        places = [(7, 0), (6, 3), (3, 1), (1, 0)]
        pixels = self.page.evaluate(f"""(() => {{ const c = document.getElementById("pairs"), s = c.width / 8;
            const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            return {[list(place) for place in places]}.map(([target, source]) => {{
                const at = 4 * (Math.floor((target + .5) * s) * c.width + Math.floor((source + .5) * s));
                return [...data.slice(at, at + 3)]; }}); }})()""")
        for place, pixel in zip(places, pixels):
            np.testing.assert_allclose(pixel, np.array(cividis(r2[place])[:3]) * 255, atol=9)

    def test_on_paper_and_on_a_phone(self):
        self.page.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(self.page.evaluate("getComputedStyle(document.querySelector('.controls')).display"), "none")
        self.picture("print")
        pdf = self.page.call("Page.printToPDF")["data"]
        self.assertGreater(len(pdf), 50_000)
        self.page.call("Emulation.setEmulatedMedia", media="")
        self.choose("q", 3)
        self.point("#pairs", 0.2, 0.9, click=True)
        self.picture("wide")
        self.page.resize(390, 844, mobile=True)
        self.page.evaluate("new Promise(done => setTimeout(done, 100))")
        self.picture("phone")
        widths = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        long_names = self.page.evaluate("""(() => {
            const detail = byId("detail"), wide = detail.querySelector(".wide");
            wide.firstChild.style.minWidth = "500px";
            return [detail.scrollWidth - detail.clientWidth, wide.scrollWidth, getComputedStyle(wide).overflowX];
            })()""")
        font = self.page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
        self.page.resize(1200, 900)
        self.page.evaluate("state.kept = null; draw()")
        self.assertEqual(widths, [390, 390])
        self.assertEqual(long_names, [0, 500, "auto"])  # the table can be scrolled and stays in its box
        self.assertGreaterEqual(font, 16)

    def picture(self, name):
        if PICTURES:
            self.page.picture(Path(PICTURES) / f"report_{name}.png")


class NothingIsReplaced(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_report_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.result = write_result(self.folder / "results", "step0", {"k": random_stream(layers(2, 2), 0)})

    def check(self, target, told, *words):
        check_nothing_is_replaced(self, self.folder, f"{target}: {told}", "report", self.folder / "results", *words,
                                  "--output", target)

    def test_what_is_read(self):
        manifest, losses = self.folder / "manifest.tsv", self.folder / "losses.tsv"
        manifest.write_text("name\tpath\nstep0\tstep0\n")
        losses.write_text("step\tloss\n0\t9\n")
        for path in (self.result, Path(f"{self.result}.done"), manifest, losses):
            self.check(path, f"would replace {path}, which is read", "--manifest", manifest, "--losses", losses)

    def test_through_links(self):
        page = self.folder / "page.html"
        page.symlink_to(self.result)
        self.check(page, f"would replace {self.result}, which is read")
        page.unlink()
        os.link(self.result, page)
        self.check(page, f"would replace {self.result}, which is read")

    def test_no_regular_file(self):
        os.mkfifo(self.folder / "page.html")
        for path in (self.folder / "page.html", self.folder / "results"):
            self.check(path, "would replace what is no regular file")


class SmallStudies(unittest.TestCase):
    """Studies with less: one checkpoint, one stream, no steps, no references, no held-out tokens."""

    def check(self, *results):
        with tempfile.TemporaryDirectory(prefix="headspan_report_") as name:
            folder = Path(name)
            for checkpoint, streams, attributes in results:
                write_result(folder, checkpoint, streams, **attributes)
            done = run("report", folder, "--output", folder / "report.html")
            self.assertEqual(done.returncode, 0, done.stderr)
            with Page() as page:
                page.open(folder / "report.html")
                self.assertEqual(page.complaints(), [])
                return page.text("body")

    def test_one_checkpoint_of_one_stream_without_steps(self):
        sample = make_stream(layers(1), [[np.nan]], n_heldout=0, hidden_size=0)
        text = self.check(("final", {"v": sample}, {"step": -1, "mode": "paper"}))
        self.assertIn("no checkpoint tells its training step", text)
        self.assertIn("nulls are missing", text)

    def test_without_steps_other_findings_lead(self):
        text = self.check(("final", {"k": random_stream(layers(3, 3), 1)}, {"step": -1}))
        lead = text[:text.index("R² is how much")]
        self.assertRegex(lead, r"\d of the best links stay within a layer at final|of 6 heads are above the null at final")
        self.assertIn("half of the heads reach R²", lead)

    def test_a_large_map_shows_fewer_checkpoints(self):
        results = [(f"step{step}", {"k": random_stream(layers(2, 2), step)}, {"step": step}) for step in range(10)]
        usual = report.LARGEST_MAP
        self.addCleanup(setattr, report, "LARGEST_MAP", usual)
        report.LARGEST_MAP = 700
        text = self.check(*results)
        shown = int(re.search(r"the map shows (\d+) of 10 checkpoints", text)[1])
        self.assertIn(shown, range(2, 9))
        self.assertIn("step9", text)

    def test_without_joint_regressions(self):
        sample = random_stream(layers(2, 2), 0)
        for name in [name for name in sample["tables"] if name.endswith(("wise", "ward")) or "wise_" in name
                     or "ward_" in name]:
            del sample["tables"][name]
        text = self.check(("step0", {"k": sample}, {}), ("step3-random", {"k": sample}, {"init": "random", "step": 3}))
        self.assertIn("the results hold no joint regressions", text)
        self.assertIn("random weights", text)


if __name__ == "__main__":
    if "--pictures" in sys.argv:
        at = sys.argv.index("--pictures")
        PICTURES = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
