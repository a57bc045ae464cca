"""`headspan-report compression`: every number and every recommendation on the page of hand-made plans and summaries."""
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
from browser import Page
from matplotlib.image import imread
from plans import MODEL, on_both, write_plan, write_run, write_summary
from samples import check_nothing_is_replaced, lead_away, replace_by_fifo, run, within, write_done

from headspan.error import InputError
from headspan_report.figures import compression as compression_figures
from headspan_report.compression.page import advice
from headspan_report.compression.plan import read_folder, read_plan

INT8, LATENT, WHOLE = "quantise-8", "latent-0.25", "latent-whole-kv-0.5"
KEYS, VALUES, HEADS = "headspan-k-0.5", "headspan-v-0.5", "headspan-kv-0.5"
# Layers keep 3, 2 and 1 of 4 heads of 4 bytes in K and V. Layer 1 refers to the 3 of layer 0, layer 2 to all 5 before.
HEADS_STORED, HEADS_READ = 2 * 4 * (3 + 2 + 1), 2 * 4 * (3 + (2 + 3) + (1 + 5))  # 48 and 112 of 96


def write_sample(folder):
    write_run(folder, INT8, "quantise", 0.53, on_both(0.001, 0.0001, 0.002, 0.0002), ((8, 8),), bits="8")
    write_run(folder, LATENT, "latent", 0.25, on_both(0.02, 0.003, 0.04, 0.005), ((2, 8), (3, 4)), decode=(50, 40))
    write_run(folder, WHOLE, "latent", 0.5, on_both(0.004, 0.0003, 0.00012, 0.000002), ((4, 16),), bits="16")
    kept = {"k": ([0], [1, 3], [0, 1, 2, 3]), "v": ([2], [2], [2])}
    for name, streams, kl in ((KEYS, "k", 0.6), (VALUES, "v", 0.2)):
        write_run(folder, name, "headspan", 0.75, on_both(kl, 0.01, kl / 3, 0.01), kept=kept, streams=streams,
                  stored_asked=0.5)
    kept = dict.fromkeys("kv", ([0, 1, 2], [0, 1], [0]))
    write_run(folder, HEADS, "headspan", HEADS_STORED / 96, on_both(0.7, 0.01, 0.3, 0.01), kept=kept,
              bytes_read=float(HEADS_READ))


class TestPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_compression_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        write_sample(cls.folder / "one")
        cls.path = cls.folder / "out.html"
        cls.done = run("compression", cls.folder / "one", "--output", cls.path)
        cls.page = Page(390, 844, mobile=True)
        cls.addClassCleanup(cls.page.__exit__)
        cls.page.open(cls.path)

    def rows(self, table):
        return self.page.evaluate(f"[...document.querySelectorAll('table.{table} tbody tr')]"
                                  ".map(row => [...row.cells].map(cell => cell.textContent))")

    def test_done(self):
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""))
        self.assertIn("models=1 runs=6 refused=0", self.done.stdout)

    def test_nothing_is_fetched_and_nothing_goes_wrong(self):
        self.assertEqual(self.page.requests(), [self.path.resolve().as_uri()])
        self.assertEqual(self.page.complaints(), [])
        self.assertEqual(self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]"), [390, 390])
        sizes = self.page.evaluate("[...document.images].map(image => image.naturalWidth)")
        self.assertEqual(len(sizes), 4)  # two texts, kept heads, bits
        self.assertGreater(min(sizes), 100)

    def test_a_shade_says_that_there_is_more_to_the_side(self):
        """At 390 px. The strip of pixels at an edge contains white unless it is shaded."""
        count = self.page.evaluate("document.querySelectorAll('.wide').length")
        self.assertEqual(count, 3)  # the tables: figures are as wide as the page
        for i in range(count):
            seen = []
            for scroll in (0, 100, 10000):
                left, top, right, bottom = self.page.evaluate(f"""(() => {{
                    const wide = document.querySelectorAll('.wide')[{i}];
                    wide.scrollIntoView({{block: "center"}});
                    wide.scrollLeft = {scroll};
                    const box = wide.getBoundingClientRect();
                    return [box.left, box.top, box.right, box.bottom].map(Math.round); }})()""")
                self.page.picture(self.folder / "seen.png", whole=False)
                strip = imread(self.folder / "seen.png")[max(top, 0):min(bottom, 844), left:right, :3].min(axis=2)
                seen.append((strip[:, 2].max() < .99, strip[:, -3].max() < .99))
            self.assertEqual(seen, [(False, True), (True, True), (True, False)], i)

    def test_every_number_of_the_table(self):
        self.assertEqual(self.rows("runs"), [
            ["int8", "keys and values", "0.530", "0.534 / 0.531 / 0.530",
             "0.0010 ± 0.0001", "+0.0010 ± 0.0100", "0.0020 ± 0.0002",
             "+0.0020 ± 0.0200", "51 of 96", "51 (0.530)", "102 of 192", "30", "40", "0.75"],
            ["headspan, causal", "keys and values", "0.500", "0.504 / 0.501 / 0.500",
             "0.7000 ± 0.0100", "+0.7000 ± 0.0100", "0.3000 ± 0.0100",
             "+0.3000 ± 0.0200", f"{HEADS_STORED} of 96", f"{HEADS_READ} ({HEADS_READ / 96:.3f})", "96 of 192", "30",
             "40", "0.75"],
            ["latent", "keys and values", "0.250", "0.256 / 0.251 / 0.250",
             "0.0200 ± 0.0030", "+0.0200 ± 0.0100", "0.0400 ± 0.0050",
             "+0.0400 ± 0.0200", "24 of 96", "24 (0.250)", "48 of 192", "50", "40", "1.25"],
            ["latent, whole columns", "keys and values", "0.500", "0.504 / 0.501 / 0.500",
             "0.0040 ± 0.0003", "+0.0040 ± 0.0100",
             "0.000120 ± 0.000002", "+0.0001 ± 0.0200", "48 of 96", "48 (0.500)", "96 of 192", "30", "40", "0.75"],
            ["headspan, causal", "keys alone", "0.750", "0.752 / 0.750 / 0.750",
             "0.6000 ± 0.0100", "+0.6000 ± 0.0100", "0.2000 ± 0.0100",
             "+0.2000 ± 0.0200", "72 of 96", "72 (0.750)", "144 of 192", "30", "40", "0.75"],
            ["headspan, causal", "values alone", "0.750", "0.752 / 0.750 / 0.750",
             "0.2000 ± 0.0100", "+0.2000 ± 0.0100", "0.0667 ± 0.0100",
             "+0.0667 ± 0.0200", "72 of 96", "72 (0.750)", "144 of 192", "30", "40", "0.75"]])

    def test_titles_say_what_is_seen(self):
        titles = self.page.evaluate("[...document.querySelectorAll('figure h3')].map(title => title.textContent)")
        self.assertEqual(titles[0], "docs.heldout: least KL 0.004 at 0.5 of the bytes (latent, whole columns), 0.02 at "
                         "0.27 of the bytes (latent), nothing stores 0.16 or less; the full cache has 0")
        self.assertEqual(titles[2], "headspan, causal keeps 6 of 12 keys and 6 of 12 values at 0.500 of "
                         "the bytes")
        self.assertEqual(titles[3], "Bits a column: 8.0 for keys and 8.0 for values at 0.500 of the bytes; 3.5 for keys "
                         "and 3.5 for values at 0.250 of the bytes; the full cache has 16")

    def test_pointing_at_the_rate_tells_the_loss(self):
        chart = '[id="text-docs.heldout"] .chart > div:first-child'
        self.page.mouse(f"{chart} .u-over", 0.05, 0.5)
        self.page.wait(f"document.querySelector('{chart} .u-legend').textContent.includes('0.250')")
        words = self.page.evaluate(f"document.querySelector('{chart} .u-legend').textContent")
        for told in ("stored0.250", "latent0.02 at 0.250", "int8, int4, int30.001 at 0.530",
                     "headspan, causal0.7 at 0.500"):
            self.assertIn(told, words)

    def test_keys_against_values(self):
        self.assertEqual(self.rows("streams"), [
            ["headspan, causal", "0.5", "docs.heldout", "0.6000 ± 0.0100", "0.2000 ± 0.0100", "3.00",
             "0.7000 ± 0.0100"],
            ["headspan, causal", "0.5", "prose.heldout", "0.2000 ± 0.0100", "0.0667 ± 0.0100", "3.00",
             "0.3000 ± 0.0100"]])

    def test_own_domain_is_marked(self):
        self.assertEqual(self.rows("domains"), [
            ["headspan, causal", "0.500", "docs", "0.7000 ± 0.0100", "0.3000 ± 0.0100"],
            ["latent", "0.250", "docs", "0.0200 ± 0.0030", "0.0400 ± 0.0050"],
            ["latent, whole columns", "0.500", "docs", "0.0040 ± 0.0003", "0.000120 ± 0.000002"]])
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('td.own')].map(cell => cell.textContent)"),
                         ["0.7000 ± 0.0100", "0.0200 ± 0.0030", "0.0040 ± 0.0003"])

    def test_advice(self):
        own, other = self.page.evaluate("[...document.querySelectorAll('.advice')].map(p => p.textContent)")
        self.assertEqual(own, (
            "On docs.heldout, of the calibration's own domain: "
            "At or below 0.5 of the bytes take latent, whole columns (0.500 of the bytes) with KL 0.0040 ± 0.0003. "
            "At or below 0.27 of the bytes take latent (0.250 of the bytes) with KL 0.0200 ± 0.0030. "
            "Nothing here stores 0.16 of the bytes or less. "
            "At half the bytes plain int8 (0.530 of the bytes) with KL 0.0010 ± 0.0001 beats every method that stores "
            "16-bit numbers; the best of them is latent, whole columns (0.500 of the bytes) with KL 0.0040 ± 0.0003. "
            "The best of what keeps whole heads, headspan, causal (0.500 of the bytes), reads more than the full "
            f"cache: a decode step reads {HEADS_READ} bytes a token in place of 96, {HEADS_READ / 96:.3f} times as "
            "many."))
        self.assertIn("of another domain than any calibration", other)
        self.assertIn("int8 does not beat every method that stores 16-bit numbers: latent, whole columns "
                      "(0.500 of the bytes) with KL 0.000120 ± 0.000002, int8 (0.530", other)


class TestFolders(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_compression_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        write_sample(self.folder / "one")
        self.path = self.folder / "out.html"

    def check(self, *folders, refused=()):
        """Returns the text of the page; `refused` are all messages, on stderr and on the page."""
        done = run("compression", *folders or [self.folder / "one"], "--output", self.path)
        self.assertEqual(done.returncode, 2 if refused else 0, done.stderr)
        told = done.stderr.splitlines()
        self.assertEqual(len(told), len(refused), told)
        page = self.path.read_text()
        for text in refused:
            self.assertTrue(any(text in line for line in told), told)
            self.assertIn(text, page)
        return page

    def test_alone(self):
        write_summary(self.folder / "one", "alone", 0.5, on_both(1, 1, 1, 1))
        write_plan(self.folder / "one", "running", "latent", 0.5)
        page = self.check(refused=("alone.json: has no plan beside it; calibrate alone.h5",
                                   "running.h5: has no summary beside it; evaluate it into running.json"))
        self.assertIn("6 runs", page)

    def test_another_model(self):
        write_run(self.folder / "one", "stray", "latent", 0.1, on_both(9, 1, 9, 1),
                  title="Compression of the KV cache of checkpoints/tiny/step8")
        page = self.check(refused=("stray.h5: title = Compression of the KV cache of checkpoints/tiny/step8: is of "
                                   "another model than the page; Compression of the KV cache of checkpoints/tiny/step7 "
                                   "in 6 of 7 plans of the folder",))
        self.assertNotIn("9.0000", page)

    def test_another_config(self):
        write_run(self.folder / "one", "stray", "latent", 0.1, on_both(9, 1, 9, 1), config_sha256="c1")
        self.check(refused=("stray.h5: config_sha256 = c1: is of another model",))

    def test_another_schema(self):
        folder = self.folder / "one"
        write_run(folder, "newer", "latent", 0.1, on_both(9, 1, 9, 1), headspan_schema="2.0")
        write_run(folder, "older", "latent", 0.1, on_both(9, 1, 9, 1), headspan_schema=None)
        self.check(refused=("newer.h5: headspan_schema = 2.0: is not known; this program reads 1.x",
                            "older.h5: headspan_schema: is missing; this is no plan of headspan calibrate"))

    def test_damaged_and_false(self):
        one = self.folder / "one"
        with open(one / f"{INT8}.h5", "ab") as file:
            file.write(b"more")
        write_summary(one, LATENT, 0.25, on_both(1, 1, 1, 1), plan="elsewhere/other.h5")
        write_summary(one, WHOLE, 0.25, {"docs.heldout": (1, 1, 1, None, None)})
        (one / f"{KEYS}.json").write_text("{")
        (one / f"{HEADS}.h5.done").unlink()
        self.check(refused=(f"{HEADS}.h5: has no .done beside it: it was not finished; make the plan again",
                            f"{INT8}.h5: size = ", f"{LATENT}.json: plan = elsewhere/other.h5: is another plan",
                            f"{WHOLE}.json: texts.docs.heldout.kl = null: is no finite number",
                            f"{KEYS}.json: cannot be read as JSON"))

    def test_a_text_of_one_sequence_has_no_errors(self):
        folder = self.folder / "short"
        texts = {"docs.heldout": (3.02, None, 3, 0.02, None), "prose.heldout": (5.04, 0.2, 5, 0.04, 0.005)}
        write_run(folder, LATENT, "latent", 0.25, texts, ((2, 8), (3, 4)))
        write_run(folder, "near", "paper-code", 0.2, texts)
        write_run(folder, "whole", "latent", 0.5, on_both(0.004, 0.0003, 0.002, 0.0002), ((4, 16),))
        page = self.check(folder)
        self.assertIn("<td>0.020000 ± –</td><td>+0.0200 ± –</td><td>0.0400 ± 0.0050</td>", page)
        own, other = page.split("<strong>On prose.heldout")
        self.assertIn("0.27 of the bytes take latent (0.250 of the bytes) with KL 0.020000 ± –.", own)
        self.assertNotIn("within two standard errors", own)
        self.assertIn("within two standard errors", other)
        axes = compression_figures.draw_text(read_folder(folder)[0], "docs.heldout", False).axes
        for axis, values, error in ((axes[0], (0.02, 0.004), 0.0003), (axes[1], np.exp([3.02, 3.004]), None)):
            drawn = {one.get_label(): one for one in axis.containers}
            latent = drawn["latent"].lines
            np.testing.assert_allclose(latent[0].get_xydata()[:, 1], values)
            without, bar = latent[2][0].get_segments()
            self.assertEqual(len(without), 0)
            self.assertAlmostEqual(np.ptp(bar[:, 1]), 2 * (error or 0.1 * np.exp(3.004)))
            self.assertFalse(drawn["paper-code"].has_yerr)

    def test_a_summary_without_the_full_cache(self):
        write_summary(self.folder / "one", WHOLE, 0.5, {"docs.heldout": (1, None, 1, 1, None)})
        path = self.folder / "one" / f"{WHOLE}.json"
        path.write_text(path.read_text().replace('"kl": 1', '"kl": null'))
        self.check(refused=(f"{WHOLE}.json: texts.docs.heldout.kl = null: is no finite number; evaluate with "
                            "evaluate.reference = true",))

    def test_only_regular_files_are_opened(self):
        one = self.folder / "one"
        empty = one / "empty.h5"
        empty.write_bytes(b"")
        write_done(empty)
        for path in (one / f"{INT8}.h5.done", one / f"{LATENT}.json", empty):
            replace_by_fifo(path)
        with within(60):
            self.check(refused=(f"{INT8}.h5.done is no regular file", f"{LATENT}.json is no regular file",
                                "empty.h5 is no regular file"))

    def test_what_is_not_held_in_the_plan(self):
        one = self.folder / "one"
        replace_by_fifo(write_plan(self.folder, "pipe", "latent", 0.5))
        for other in (one / f"{WHOLE}.h5", self.folder / "pipe.h5", self.folder / "none.h5"):
            with h5py.File(one / f"{KEYS}.h5", "r+") as file:
                for told in lead_away(file, "k/1/kept", other):
                    file.flush()
                    write_done(one / f"{KEYS}.h5")
                    with within(60), self.assertRaises(InputError) as caught:
                        read_plan(one / f"{KEYS}.h5")
                    self.assertIn(f"{KEYS}.h5: {told}; ", str(caught.exception))

    def test_nothing_that_is_read_is_replaced(self):
        one = self.folder / "one"
        for name in (f"{INT8}.h5", f"{INT8}.h5.done", f"{LATENT}.json"):
            check_nothing_is_replaced(self, self.folder, f"{one / name}: would replace {one / name}, which is read",
                                      "compression", one, "--output", one / name)
        check_nothing_is_replaced(self, self.folder, f"{one}: would replace what is no regular file", "compression", one,
                                  "--output", one)

    def test_figures(self):
        write_run(self.folder / "two", LATENT, "latent", 0.25, on_both(0.05, 0.003, 0.01, 0.001), model_type="llama")
        svg, png = (self.folder / f"compression.{kind}" for kind in ("svg", "png"))
        done = run("compression", *self.folder.iterdir(), "--output", self.path, "--figures", self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"written={self.path} {svg} {png}\n", done.stdout)
        self.assertEqual((svg.read_text().count(f"<!-- {MODEL}, docs.heldout -->"), imread(png).ndim), (2, 3))

    def test_figures_of_keys_alone(self):
        write_run(self.folder / "keys", KEYS, "latent", 0.75, on_both(0.05, 0.003, 0.01, 0.001), streams="k")
        done = run("compression", self.folder / "keys", "--output", self.path, "--figures", self.folder)
        self.assertIn("no figure to write: no plan compresses both keys and values", done.stderr)
        self.assertEqual((done.returncode, list(self.folder.glob("*.svg"))), (2, []))

    def test_nothing_to_show(self):
        (self.folder / "empty").mkdir()
        for folder, told in (("empty", "hold no plan with its summary"), ("absent", "is no folder")):
            done = run("compression", self.folder / folder, "--output", self.path)
            self.assertEqual((done.returncode, self.path.exists()), (2, False))
            self.assertIn(told, done.stderr)

    def test_another_calibration_of_the_model(self):
        write_run(self.folder / "two", LATENT, "latent", 0.25, on_both(0.05, 0.003, 0.01, 0.001), ((8, 4),),
                  tokens_path="prose.fit.bin")
        page = self.check(self.folder / "one", self.folder / "two")
        self.assertEqual(page.count("<section id=\"model-"), 1)
        self.assertIn("calibrated on\ndocs, prose", page)
        self.assertEqual(page.count("<td class=own>0.0100 ± 0.0010</td>"), 1)
        self.assertIn("take latent, calibrated on prose (0.250 of the bytes) with KL 0.0100 ± 0.0010", page)

    def test_two_models(self):
        write_run(self.folder / "two", LATENT, "latent", 0.25, on_both(0.05, 0.003, 0.01, 0.001), model_type="llama")
        page = self.check(self.folder / "one", self.folder / "two")
        self.assertEqual(page.count("<section id=\"model-"), 2)

    def test_no_plan_is_recommended_twice(self):
        folder = self.folder / "few"
        write_run(folder, LATENT, "latent", 0.25, on_both(0.02, 0.003, 0.04, 0.005), ((2, 8), (3, 4)))
        write_run(folder, "near", "paper-code", 0.3, on_both(0.021, 0.003, 0.9, 0.005))
        page = self.check(folder)
        self.assertIn("At or below 0.5 and 0.27 of the bytes take latent (0.250 of the bytes) with KL 0.0200 ± 0.0030; "
                      "within two standard errors of it: paper-code (0.300 of the bytes). Nothing here stores 0.16", page)
        self.assertEqual(page.count("take latent"), 2)  # once for each text

    def test_within_two_standard_errors(self):
        write_run(self.folder / "one", "near", "paper-code", 0.2, on_both(0.027, 0.002, 0.06, 0.002))
        page = self.check()
        near = "within two standard errors of it: paper-code (0.200 of the bytes)"
        self.assertEqual(page.count(near), 1)  # 0.007 < 2 hypot(0.003, 0.002) on docs; 0.02 > 2 hypot(0.005, 0.002)

    def test_what_the_best_heads_read(self):
        kept = dict.fromkeys("kv", ([0, 1], [0, 1], [0, 1]))  # layers 1 and 2 refer to the 2 and 4 before: 2 * 4 * 12
        write_run(self.folder / "one", "as-much", "paper-code", 0.5, on_both(0.6, 0.01, 0.4, 0.01), kept=kept,
                  bytes_read=96.0)
        page = self.check()
        best = "The best of what keeps whole heads, headspan, causal (0.500 of the bytes), reads more"
        self.assertEqual((page.count("of what keeps whole heads"), page.count(best)), (1, 1))
        self.assertGreater(page.index(best), page.index("<strong>On prose.heldout"))  # on docs 0.6 < 0.7, and 96 of 96

    def test_plans_that_do_not_say_what_is_read(self):
        write_run(self.folder / "one", "before", "latent", 0.1, on_both(9, 1, 9, 1), bytes_read=None)
        self.check(refused=("before.h5: bytes_read: is missing; this is no plan of headspan calibrate, or an older "
                            "one: calibrate again",))

    def test_maps(self):
        plan = read_plan(self.folder / "one" / f"{KEYS}.h5")
        np.testing.assert_array_equal(compression_figures.kept_map(plan, "k"),
                                      [[1, 0, 1], [0, 1, 1], [0, 0, 1], [0, 1, 1]])
        plan = read_plan(self.folder / "one" / f"{LATENT}.h5")
        np.testing.assert_array_equal(compression_figures.columns_by_bits(plan, "v", [16, 8, 4]),
                                      [[0, 0, 0], [2, 2, 2], [3, 3, 3]])

    def test_rounded_caches_of_others(self):
        folder = self.folder / "rounded"
        for name, algorithm, stored, bits, asked in (("hadamard-3", "hadamard", 0.2, 3, "3"), ("hadamard", "hadamard", 0.27, 4, "auto"),
                                                     ("rotated-q4", "rotated-q4", 0.28, 4, "auto"),
                                                     ("rotated-q8", "rotated-q8", 0.53, 8, "auto"), ("kivi-2", "kivi", 0.19, 2, "2"),
                                                     ("oscar-2", "oscar", 0.16, 2, "auto")):
            write_run(folder, name, algorithm, stored, on_both(stored, 0.01, stored, 0.01), ((8, bits),), bits=asked)
        runs, _ = read_folder(folder)
        self.assertEqual({run.plan.method: run.plan.calibration for run in runs},
                         dict.fromkeys(("Hadamard, 3 bits", "Hadamard, 4 bits", "Hadamard, q4_0", "Hadamard, q8_0", "KIVI, 2 bits"),
                                       "") | {"OSCAR, 2 bits": "docs"})
        axes = compression_figures.draw_text(runs, "docs.heldout", False).axes
        drawn = {one.get_label(): one.lines[0].get_xydata().tolist() for one in axes[0].containers}
        self.assertEqual(drawn, {"Hadamard, Lloyd's levels": [[0.2, 0.2], [0.27, 0.27]],
                                 "Hadamard, q8_0, q4_0": [[0.28, 0.28], [0.53, 0.53]], "KIVI": [[0.19, 0.19]], "OSCAR": [[0.16, 0.16]]})

    def test_what_was_kept_as_it_was(self):
        folder = self.folder / "kept"
        write_run(folder, "latent", "latent", 0.2, on_both(0.01, 0.001, 0.02, 0.001), ((8, 4),))
        for name, summary in (("recent", {"exact_recent": 32}), ("prefill", {"exact_recent": 0, "prefill": "exact"})):
            write_run(folder, name, "latent", 0.2, on_both(0.001, 0.0001, 0.002, 0.0001), ((8, 4),), summary=summary)
        write_run(folder, "groups", "kivi", 0.2, on_both(0.5, 0.1, 0.6, 0.1), ((8, 2),), bits=2, group=32)
        runs, _ = read_folder(folder)
        shares = {"latent": 105.6, "recent": 105.6 + 32, "prefill": 105.6, "groups": 105.6 + 15.5}
        self.assertEqual({run.plan.path.stem: round(512 * run.share_at(512), 6) for run in runs}, shares)
        self.assertEqual([run.method for run in sorted(runs, key=lambda run: run.plan.path.stem)],
                         ["KIVI, 2 bits", "latent", "latent, exact prefill", "latent, last 32 exact"])
        axes = compression_figures.draw_text(runs, "docs.heldout", False).axes
        self.assertEqual(len(axes[0].containers), 4)
        (_, _, told), _ = advice(runs, ["docs.heldout", "prose.heldout"], False)
        self.assertIn("take latent (0.200 of the bytes) with KL 0.0100 ± 0.0010", told)
        self.assertNotIn("exact", told)

    def test_lines_of_the_figure(self):
        runs, _ = read_folder(self.folder / "one")
        axes = compression_figures.draw_text(runs, "docs.heldout", False).axes
        self.assertEqual((axes[0].get_yscale(), axes[1].get_yscale()), ("log", "linear"))
        drawn = {one.get_label(): one.lines[0].get_xydata().tolist() for one in axes[0].containers}
        self.assertEqual(drawn, {"int8, int4, int3": [[0.53, 0.001]], "latent": [[0.25, 0.02]],
                                 "latent, whole columns": [[0.5, 0.004]], "headspan, causal": [[0.5, 0.7]]})
        latent = [one for axis in axes[:2] for one in axis.containers if one.get_label() == "latent"]
        low, high = latent[0].lines[2][0].get_segments()[0][:, 1]
        self.assertAlmostEqual(low, 0.02 - 0.003)
        self.assertAlmostEqual(high, 0.02 + 0.003)
        self.assertAlmostEqual(latent[1].lines[0].get_ydata()[0], np.exp(3.02))


if __name__ == "__main__":
    unittest.main()
