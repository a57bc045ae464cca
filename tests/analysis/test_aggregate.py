"""`headspan-report aggregate`: its two outputs against numbers computed here, and every kind of file that must be
refused by name while the others are used."""
import csv
import shutil
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import xarray
from samples import (check_nothing_is_replaced, layers, make_overlap, make_stream, random_stream, run, run_process,
                     write_done, write_result)

from headspan_report.aggregate import aggregate

LAYER = layers(2, 2)
R2 = [[9, .5, .1, .1], [.3, 9, .1, .1], [.8, .2, 9, .6], [.1, .7, .4, 9]]  # best causal: .5 .3 .8 .7


class AggregateTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_aggregate_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.results = self.folder / "results"

    def aggregate(self, *words, code=0):
        """Runs it and reads both outputs."""
        done = run("aggregate", self.results, "--output", self.folder / "out" / "emergence", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        with open(self.folder / "out" / "emergence.csv", newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.table = xarray.load_dataset(self.folder / "out" / "emergence.nc", engine="h5netcdf")
        return done

    def write(self, checkpoint, seed=0, streams=("k",), **more):
        samples = {name: random_stream(LAYER, seed + i) for i, name in enumerate(streams)}
        return write_result(self.results, checkpoint, samples, **more)


class Figures(AggregateTest):
    def test_by_hand(self):
        write_result(self.results, "step7", {"v": make_stream(LAYER, R2)}, step=7, validation_loss=2.5)

        self.aggregate()

        row = dict(self.rows[0])
        floor, random = 4 / 999, 4 / 32
        expected = {
            "step": 7, "training_tokens": 7 * 4096, "validation_loss": 2.5,
            "r2_best_in_sample_mean": .575, "r2_best_in_sample_median": .6, "r2_best_in_sample_q25": .45,
            "r2_best_heldout_mean": .565, "r2_best_adjusted_mean": 1 - .425 * 999 / 995,
            "r2_pairs_in_sample_mean": (.5 + .3 + .8 + .2 + .6 + .1 + .7 + .4) / 8,
            "r2_intra_in_sample_mean": (.5 + .3 + .6 + .4) / 4, "r2_inter_in_sample_mean": (.8 + .2 + .1 + .7) / 4,
            "share_above_pairs_0.1": 7 / 8, "share_above_pairs_0.5": 3 / 8,
            "top_r2_pairwise_count1_in_sample_mean": .575,
            "top_r2_forward_count2_heldout_mean": np.mean([.91, .96]) - .01,  # the first layer has one source only
            "dominance_caption_links1": .5, "dominance_caption_links3": 4 / 8,
            # best links, either way: 0-2 (.8), 1-3 (.7), 2-0, 3-1: two pairs between layers
            "dominance_code_links1": 0, "null_dominance_caption_links1": (1 + 1 + 1 / 3 + 1 / 3) / 4,
            "near_far_in_sample_window2_near": .45, "effective_rank_mean": 2, "effective_rank_layer": 3,
            "noise_floor_count1": floor, "geometric_null_count2": 2 * random,
            "null_top_in_sample_count1": floor + (1 - floor) * random, "null_pairs_heldout": random,
            "null_ceiling": 4 / 32, "heads": 4, "n_fit": 1000, "flagged_pairs_deficient_source": 0}
        for name, value in expected.items():
            self.assertAlmostEqual(float(row[name]), value, places=12, msg=name)
        for name in ("ceiling_layer_mean", "alignment", "overlap_dimension_raw_paper", "near_far_heldout_window4_far"):
            self.assertEqual(row[name], "", name)
        self.assertEqual((row["checkpoint"], row["stream"], row["refused"]), ("step7", "v", ""))

    def test_both_outputs_say_the_same(self):
        for step in (30, 0, 10):
            self.write(f"step{step}", step, ("k", "q", "v"), step=step)

        self.aggregate()

        self.assertEqual([(row["checkpoint"], row["stream"]) for row in self.rows],
                         [(f"step{step}", stream) for step in (0, 10, 30) for stream in "kqv"])
        k = self.table.sel(stream="q").isel(checkpoint=2)
        self.assertEqual(float(self.rows[7]["r2_intra_heldout_q95"]),
                         float(k.r2.sel(scope="intra", part="heldout", statistic="q95")))
        self.assertEqual(float(self.rows[7]["top_r2_forward_count2_adjusted_median"]),
                         float(k.top_r2.sel(rule="forward", count=2, part="adjusted", statistic="median")))
        self.assertEqual(float(self.rows[7]["null_dominance_code_links3"]),
                         float(k.null_dominance.sel(dominance_rule="code", links=3)))

    def test_ceilings_overlap_and_what_is_left_out(self):
        """Two KV heads per layer and four query heads: NaN where a projection has fewer heads."""
        dimension = np.arange(2 * 2 * 2 * 2, dtype=float).reshape(2, 2, 2, 2)
        alignment = np.full((2, 2, 4, 4), .25)
        alignment[0, :, 2:, :] = alignment[0, :, :, 2:] = np.nan
        alignment[0, :, 0, 1] = alignment[0, :, 1, 0] = .5
        alignment[:, :, range(4), range(4)] = 1
        overlap = make_overlap(["k", "q"], dimension, alignment)
        k = make_stream(LAYER, R2, ceiling_layer=np.array([.1, .2, .3, np.nan]), ceiling_causal=np.full(4, .9),
                        status_ceiling_layer=np.array([0, 1, 0, 16], np.uint8),
                        canonical_layer=np.array([[[1, .3], [.3, 1]], [[1, .5], [.5, 1]]]))
        write_result(self.results, "step0", {"k": k, "q": random_stream(layers(4, 4), 1)}, overlap=overlap)

        self.aggregate()

        k, q = self.rows
        self.assertAlmostEqual(float(k["ceiling_layer_mean"]), .2)
        self.assertAlmostEqual(float(k["ceiling_causal_median"]), .9)
        self.assertEqual(k["ceiling_layer_heldout_mean"], "")
        self.assertAlmostEqual(float(k["canonical"]), .4)
        self.assertEqual(k["flagged_ceiling_layer_deficient_source"], "1")
        self.assertEqual(k["flagged_ceiling_layer_not_computed"], "1")
        self.assertEqual(float(k["overlap_dimension_raw_1e-2"]), 2.5)  # mean over layers of entries 2 and 3
        self.assertEqual(float(q["overlap_dimension_effective_paper"]), 12.5)
        self.assertAlmostEqual(float(k["alignment"]), .5)
        self.assertAlmostEqual(float(q["alignment"]), .25)
        self.assertEqual(q["ceiling_layer_mean"], "")
        self.assertEqual((k["heads"], q["heads"]), ("4", "8"))
        self.assertEqual(self.table.head_source.sel(stream="k").values[0, 4:].tolist(), [-1] * 4)
        self.assertTrue(np.isnan(self.table.head_best.sel(stream="k").values[0, :, 4:]).all())

    def test_random_weights_stand_last(self):
        self.write("step20", step=20)
        self.write("step9-random", 1, step=9, init="random")

        self.aggregate()

        self.assertEqual([row["init"] for row in self.rows], ["pretrained", "random"])

    def test_paper_mode_has_nothing_held_out(self):
        sample = make_stream(LAYER, R2, n_heldout=0)
        write_result(self.results, "step0", {"k": sample}, mode="paper")

        self.aggregate()

        self.assertEqual(self.rows[0]["r2_best_heldout_mean"], "")
        self.assertAlmostEqual(float(self.rows[0]["r2_best_in_sample_mean"]), .575)

    def test_flags_are_counted(self):
        sample = make_stream(LAYER, R2)
        sample["tables"]["status"][0, 2], sample["tables"]["status"][1, 3] = 1 | 8, 1
        write_result(self.results, "step0", {"k": sample})

        self.aggregate()

        found = {name.removeprefix("flagged_pairs_"): int(value) for name, value in self.rows[0].items()
                 if name.startswith("flagged_pairs_")}
        self.assertEqual(found, {"deficient_source": 2, "constant_target_coordinate": 0, "too_few_tokens": 0,
                                 "outside_band": 1, "not_computed": 0})

    def test_losses_and_manifest(self):
        for step in (0, 10):
            self.write(f"step{step}", step=step, validation_loss=9.0)
        losses, manifest = self.folder / "log.tsv", self.folder / "manifest.tsv"
        losses.write_text("step\tloss\n10\t3.25\n")
        manifest.write_text("name\tstep\ttokens\tpath\n" +
                            "".join(f"step{step}\t{step}\t0\tstep{step}\n" for step in (0, 10, 30)))

        done = self.aggregate("--losses", losses, "--manifest", manifest, code=2)

        self.assertEqual([row["validation_loss"] for row in self.rows[:2]], ["9.0", "3.25"])
        losses.write_text("name\tvalidation_loss\nstep0\t7.5\nstep10\t\n")
        run("aggregate", self.results, "--losses", losses, "--output", self.folder / "named")
        with open(self.folder / "named.csv", newline="") as file:
            self.assertEqual([row["validation_loss"] for row in csv.DictReader(file)], ["7.5", "9.0"])
        message = f"{manifest}: name = step30: has no result here; run the study again"
        self.assertEqual(done.stderr, f"headspan-report: {message}\n")
        self.assertEqual(self.rows[2]["refused"], message)
        self.assertEqual(self.table.attrs["missing"], message)


class Refused(AggregateTest):
    """Three good results and one bad: it is named, and the three are used."""

    def setUp(self):
        super().setUp()
        for step in (0, 10, 20):
            self.write(f"step{step}", step, step=step)
        self.bad = self.write("step30", 30, step=30)

    def check(self, *words, path=None):
        found = aggregate([self.results])
        self.assertEqual([row.attributes["checkpoint"] for row in found.rows], ["step0", "step10", "step20"])
        self.assertEqual(len(found.refused), 1, found.refused)
        for word in (f"{path or self.bad}: ", *words):
            self.assertIn(word, str(found.refused[0]))

    def again(self, **more):
        """Writes another file in place of the last."""
        shutil.rmtree(self.bad.parent / "x", ignore_errors=True)
        sample = more.pop("sample", random_stream(LAYER, 5))
        write_result(self.results, "step30", {"k": sample}, step=30, **more)

    def edit(self, change):
        with h5py.File(self.bad, "r+") as file:
            change(file)
        write_done(self.bad)

    def test_without_done(self):
        """What a user sees: the message on stderr and in both outputs, and the exit code."""
        Path(f"{self.bad}.done").unlink()
        self.check("has no .done beside it")

        done = self.aggregate(code=2)

        told = (f"{self.bad}: has no .done beside it: it was not finished; "
                "run the study again: it computes what is missing")
        self.assertEqual(done.stderr, f"headspan-report: {told}\n")
        self.assertEqual([row["checkpoint"] for row in self.rows], ["step0", "step10", "step20", ""])
        self.assertEqual(self.rows[-1]["refused"], told)
        self.assertEqual(self.table.attrs["refused"], told)

    def test_done_that_cannot_be_read(self):
        Path(f"{self.bad}.done").unlink()
        Path(f"{self.bad}.done").mkdir()
        self.check("cannot be read", "Is a directory")

    def test_link_that_leads_nowhere(self):
        Path(f"{self.bad}.done").unlink()
        self.bad.rename(self.folder / "moved.h5")
        self.bad.symlink_to(self.folder / "none.h5")
        self.check("is missing or still being written")

    def test_at_work(self):
        self.bad.unlink()
        Path(f"{self.bad}.done").rename(f"{self.bad}.lock")
        self.check("is missing or still being written")

    def test_still_being_written(self):
        self.bad.rename(f"{self.bad}.tmp.123")
        Path(f"{self.bad}.done").unlink()
        self.check("is missing or still being written")

    def test_stopped(self):
        self.bad.rename(f"{self.bad}.state")
        Path(f"{self.bad}.done").rename(f"{self.bad}.state.done")
        self.check("is missing or still being written")

    def test_done_without_file(self):
        self.bad.unlink()
        self.check("is missing")

    def test_cut_short(self):
        size = self.bad.stat().st_size
        self.bad.write_bytes(self.bad.read_bytes()[:-100])
        self.check(f"size = {size - 100}: its .done says {size}")

    def test_one_byte_changed(self):
        content = bytearray(self.bad.read_bytes())
        content[len(content) // 2] ^= 1
        self.bad.write_bytes(content)
        self.check("sha256 = ", "its .done says ")

    def test_not_hdf5(self):
        self.bad.write_bytes(b"hello" * 99)
        write_done(self.bad)
        self.check("cannot be read")

    def test_other_hdf5(self):
        self.edit(lambda file: file.attrs.pop("headspan_schema"))
        self.check("headspan_schema: is missing; this is no result of headspan")

    def test_later_schema(self):
        self.again(headspan_schema="2.0")
        self.check("headspan_schema = 2.0: is not known")

    def test_table_of_wrong_shape(self):
        def change(file):
            del file["k/r2_heldout"]
            file["k/r2_heldout"] = np.zeros((4, 3))
        self.edit(change)
        self.check("k: r2_heldout = 4 x 3: has the wrong shape; it should be 4 x 4")

    def test_table_is_missing(self):
        self.edit(lambda file: file["k"].pop("status"))
        self.check("k: status: is missing")

    def test_reference_that_there_is_not(self):
        def change(file):
            file["k/references_forward"][0, 0] = 4
        self.edit(change)
        self.check("references_forward: names a head outside 0..3")

    def test_attribute_is_missing(self):
        self.edit(lambda file: file["k"].attrs.pop("n_fit"))
        self.check("cannot be read", "n_fit")

    def test_other_tokens(self):
        self.again(tokens_sha256="bb")
        self.check("tokens_sha256 = bb: is of another study; aa in 3 of 4 results here")

    def test_other_split(self):
        self.again(split=(0, 1, 0))
        self.check("split = ", "is of another study")

    def test_other_family(self):
        self.again(model_type="llama")
        self.check("model_type = llama: is of another study; olmo2 in 3 of 4 results here")

    def test_other_shape(self):
        self.again(sample=random_stream(layers(2, 3), 5))
        self.check("heads = k 2 layers of 2, 3 heads of 4, hidden size 32: is of another study; "
                   "k 2 layers of 2 heads of 4, hidden size 32 in 3 of 4 results here")

    def test_other_mode(self):
        self.again(mode="paper")
        self.check("mode = paper: is of another study")

    def test_other_streams(self):
        shutil.rmtree(self.bad.parent / "none", ignore_errors=True)
        self.write("step30", 30, ("k", "v"), step=30)
        self.check("streams = k v: is of another study")

    def test_the_same_unit_twice(self):
        copy = self.results / "zz" / "tiny"
        copy.mkdir(parents=True)
        for path in (self.bad, Path(f"{self.bad}.done")):
            shutil.move(path, copy / path.name.replace("30", "20"))
        other = copy / "step20.h5"
        with h5py.File(other, "r+") as file:
            file.attrs["checkpoint"] = "step20"
        write_done(other)
        self.check("checkpoint = tiny/step20: is there twice", path=other)

    def test_grams_are_no_results(self):
        gram = self.bad.with_name("step30.gram.h5")
        self.bad.rename(gram)
        Path(f"{self.bad}.done").rename(f"{gram}.done")
        self.aggregate()
        self.assertEqual(len(self.rows), 3)


class NothingToDo(AggregateTest):
    def test_nothing_there(self):
        self.results.mkdir()
        for where, message in ((self.results, "hold no results"), (self.folder / "none", "is no folder")):
            done = run("aggregate", where, "--output", self.folder / "emergence")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"headspan-report: {where}: {message}", done.stderr)
        self.assertEqual(list(self.folder.glob("emergence*")), [])

    def test_nothing_good(self):
        Path(f"{self.write('step0')}.done").unlink()
        done = run("aggregate", self.results, "--output", self.folder / "emergence")
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no .done", done.stderr)
        self.assertEqual(list(self.folder.glob("emergence*")), [])

    def test_bad_tables(self):
        self.write("step0")
        for text, message in (("step\tloss\n0\tx\n", "loss = x: is no number"), ("a\tb\n1\t2\n", "lacks a column"),
                              ("", "has no rows")):
            losses = self.folder / "log.tsv"
            losses.write_text(text)
            done = run("aggregate", self.results, "--output", self.folder / "emergence", "--losses", losses)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_nothing_that_is_read_is_replaced(self):
        result = self.write("step0")
        losses, table = self.folder / "log.csv", self.folder / "log.nc"
        losses.write_text("step\tloss\n0\t9\n")
        for target, read in ((losses, losses), (table, result)):
            if target == table:
                table.symlink_to(result)
            check_nothing_is_replaced(self, self.folder, f"{target}: would replace {read}, which is read", "aggregate",
                                      self.results, "--losses", losses, "--output", table)
        table.unlink()
        table.mkdir()
        check_nothing_is_replaced(self, self.folder, f"{table}: would replace what is no regular file", "aggregate",
                                  self.results, "--output", self.folder / "log")

    def test_output_that_cannot_be_written(self):
        self.write("step0")
        (self.folder / "file").write_text("")
        done = run("aggregate", self.results, "--output", self.folder / "file" / "emergence")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)

    def test_as_a_program(self):
        self.write("step0")
        good = run_process("aggregate", self.results, "--output", self.folder / "emergence")
        bad = run_process("aggregate", self.folder / "none", "--output", self.folder / "emergence")
        self.assertEqual((good.returncode, good.stderr), (0, ""))
        self.assertRegex(good.stdout, "^status=done checkpoints=1 streams=1 refused=0 missing=0 written=.*\\n$")
        self.assertEqual((bad.returncode, bad.stdout, len(bad.stderr.splitlines())), (2, "", 1))


if __name__ == "__main__":
    unittest.main()
