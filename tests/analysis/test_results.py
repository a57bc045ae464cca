"""headspan.open against h5py, loops over definitions, closed forms, the references that the program chose itself, and the
table of headspan-report. Files of earlier versions are those of tests/data/versions.

usage: test_results.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import subprocess
import sys
import tarfile
from pathlib import Path

import h5py
import numpy as np
import xarray
from samples import ANALYSIS, lead_away, write_done
from scipy import integrate, stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from program import GOLDEN, TESTS, StudyTest, main

import headspan
from headspan.error import EnvironmentFailed
from headspan_report.aggregate import aggregate

HEAD_SIZE, HIDDEN_SIZE, REFERENCES = 8, 32, 5  # of olmo2_gqa; the job's
PAIRS = ("k", "q", "z", "cross/q-k", "cross/z-v", "cross/k-reference", "cross/reference-k")


def is_source(group, source, target):
    """The rule of the page. source, target: (layer, head)."""
    if "reference" in group:
        return True
    if group.startswith("cross/z"):
        return source[0] < target[0]
    return source[0] <= target[0] and ("cross" in group or source != target)


def datasets_of(file):
    names = []
    file.visititems(lambda name, thing: names.append(name) if isinstance(thing, h5py.Dataset) else None)
    return names


class Results(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tokens = cls.write_tokens("tokens.bin", np.random.default_rng(1).integers(3, 60, 400))
        cls.keys = {"model.path": GOLDEN / "olmo2_gqa", "tokens.path": tokens, "tokens.sequence_length": 40}
        cls.path, = cls.study(1, "streams", {**cls.keys, "predict.streams": "k,q,v,z", "cross.streams": "q:k,z:v",
                                             "predict.similarity": "cka", "attention.scores": "true", "output.save_gram": "true"})
        cls.of_two, = cls.study(1, "models", {**cls.keys, "cross.model": GOLDEN / "olmo2_gqa"})
        cls.result, cls.two = headspan.open(cls.path), headspan.open(str(cls.of_two))

    def each(self):
        """Yields group, the Result that has it, and the group in h5py, for all groups of pairs."""
        for group in PAIRS:
            of = self.two if "reference" in group else self.result
            with h5py.File(of.path) as file:
                yield group, of, file[group]

    def test_everything_in_the_file(self):
        for result in (self.result, self.two):
            with h5py.File(result.path) as file:
                found = datasets_of(file)
                self.assertEqual({name.rpartition("/")[0] for name in found}, set(result.groups))
                for name in found:
                    group, _, variable = name.rpartition("/")
                    values, ours = file[name][...], result[group][variable]
                    if values.dtype.kind == "O":
                        values = values.astype(str)
                    np.testing.assert_array_equal(ours.values, values, err_msg=name)
                    if values.ndim > 1:
                        dims = tuple(Path(scale[0].name).name for scale in file[name].dims)
                        self.assertEqual(ours.dims, dims, name)
                for name, value in file["k"].attrs.items():
                    if isinstance(value, (int, float, np.number, np.ndarray)):
                        np.testing.assert_array_equal(result["k"].attrs[name], value, err_msg=name)
                self.assertEqual(result["k"].attrs["capture"], "roped")
                self.assertEqual(result.attrs["checkpoint"], file.attrs["checkpoint"].decode())
        self.assertEqual(repr(self.result), "<headspan result olmo2_gqa/olmo2_gqa: "
                                            "k, q, v, z, attention, cross/q-k, cross/z-v, overlap, tokens>")

    def test_causal_mask(self):
        for group, result, pairs in self.each():
            mask = result.causal_mask(group)
            targets, sources = (list(zip(pairs[f"{of}_layer"][...], pairs[f"{of}_head"][...])) for of in ("target", "source"))
            expected = [[is_source(group, source, target) for source in sources] for target in targets]
            np.testing.assert_array_equal(mask.values, expected, err_msg=group)
            self.assertEqual((mask.dims, mask.dtype), (("target", "source"), bool))
            for target, chosen in enumerate(pairs["references_pairwise"][...]):  # by the program
                self.assertTrue(mask.values[target][chosen[chosen >= 0]].all(), group)
                self.assertEqual(np.sum(chosen >= 0), min(REFERENCES, mask.values[target].sum()), group)

    def test_best_sources(self):
        for group, result, pairs in self.each():
            best, r2 = result.best_sources(group), pairs["r2"][...]
            for target, chosen in enumerate(pairs["references_pairwise"][:, 0]):  # by the program
                row = best.sel(target=target)
                self.assertEqual((row.target_layer, row.target_head), (pairs["target_layer"][target], pairs["target_head"][target]))
                if chosen < 0:
                    self.assertEqual((row.source, row.source_layer, row.source_head), (-1, -1, -1))
                    self.assertTrue(np.isnan(row.r2) and np.isnan(row.r2_heldout))
                    continue
                self.assertAlmostEqual(float(row.r2), r2[target, chosen], delta=1e-12, msg=group)
                source = int(row.source)
                self.assertEqual((row.source_layer, row.source_head), (pairs["source_layer"][source], pairs["source_head"][source]))
                self.assertEqual(row.r2_heldout, pairs["r2_heldout"][target, source])
            self.assertEqual(best.r2.dims, ("target",))

    def test_joint_curves(self):
        for group, result, pairs in self.each():
            r2, n = result.joint_curves(group).r2, pairs.attrs["n_fit"]
            self.assertEqual(r2.dims, ("rule", "part", "target", "count"))
            rules = ["pairwise", "forward", *(["pairwise_all", "forward_all"] if "r2_forward_all" in pairs else [])]
            self.assertEqual(r2.rule.values.tolist(), rules)
            for rule in rules:
                in_sample = pairs[f"r2_{rule}"][...]
                regressors = HEAD_SIZE * np.arange(1, REFERENCES + 1)
                for part, expected in (("in_sample", in_sample), ("heldout", pairs[f"r2_{rule}_heldout"][...]),
                                       ("adjusted", 1 - (1 - in_sample) * (n - 1) / (n - regressors - 1))):
                    np.testing.assert_allclose(r2.sel(rule=rule, part=part), expected, rtol=1e-12, err_msg=group)

    def test_nulls_of_pairs(self):
        """Random projections in closed form; the best of C from the distribution function of scipy."""
        for group in ("k", "cross/q-k", "cross/z-v"):
            data = self.result[group]
            n, share, count = data.attrs["n_fit"], HEAD_SIZE / HIDDEN_SIZE, np.arange(1, REFERENCES + 1)
            floor = HEAD_SIZE / (n - 1)
            np.testing.assert_allclose(data.null_pairs.sel(part=["in_sample", "adjusted", "heldout"]),
                                       [floor + (1 - floor) * share, share, share])
            np.testing.assert_allclose(data.noise_floor, data.attrs["noise_floor"])
            np.testing.assert_allclose(data.geometric_null, np.minimum(1, data.attrs["geometric_null"]))
            curve = self.result.joint_curves(group).null_top
            np.testing.assert_allclose(curve.sel(part="heldout"), np.minimum(1, count * share))
            np.testing.assert_allclose(curve.sel(part="in_sample"),
                                       count * floor + (1 - count * floor) * np.minimum(1, count * share))
            nu = HEAD_SIZE * (HIDDEN_SIZE + 2) / 2 - 1
            beta = stats.beta(share * nu, (1 - share) * nu)
            sources = [c for c in self.result.causal_mask(group).values.sum(axis=1) if c]
            best = np.mean([integrate.quad(lambda x, c=c, beta=beta: 1 - beta.cdf(x)**c, 0, 1)[0] for c in sources])
            table = self.result.best_sources(group)
            self.assertAlmostEqual(table.r2_heldout.attrs["null"], best, delta=1e-6)
            self.assertAlmostEqual(table.r2.attrs["null"], floor + (1 - floor) * best, delta=1e-6)

    def test_nulls_are_those_of_the_report(self):
        table = aggregate([self.path.parent]).table
        for stream in ("k", "q", "v", "z"):
            ours, theirs = self.result[stream], table.sel(stream=stream)
            for name in ("null_best", "null_pairs", "null_top", "noise_floor", "geometric_null"):
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        overlap = self.result["overlap"].null_overlap_dimension
        for projection in ("k", "q", "v"):
            np.testing.assert_array_equal(overlap.sel(projection=projection),
                                          table.null_overlap_dimension.sel(stream=projection))
        few, = self.study(1, "keys", {**self.keys, "predict.streams": "k"})
        overlap = headspan.open(few)["overlap"].null_overlap_dimension
        np.testing.assert_array_equal(np.isnan(overlap).all("tolerance"), overlap.projection != "k")

    def test_nulls_of_two_models_are_unknown(self):
        self.assertTrue(np.isnan(self.two["cross/k-reference"].null_top).all())
        self.assertTrue(np.isnan(self.two.best_sources("cross/reference-k").r2.attrs["null"]))

    def test_tree(self):
        if not hasattr(xarray, "DataTree"):
            with self.assertRaisesRegex(EnvironmentFailed, "'xarray>=2024.10'"):
                _ = self.result.tree
            return
        tree = self.result.tree
        self.assertEqual(tree.attrs["mode"], "corrected")
        for group in self.result.groups:
            self.assertTrue(tree[group].to_dataset().identical(self.result[group]), group)

    def test_without_held_out_tokens(self):
        path, = self.study(1, "all", {**self.keys, "tokens.heldout": 0, "predict.selection": "forward"})
        result = headspan.open(path)
        self.assertNotIn("r2_heldout", result.best_sources("k"))
        curves = result.joint_curves("k")
        self.assertEqual(curves.rule.values.tolist(), ["forward"])
        self.assertEqual(curves.r2.isnull().all(["rule", "target", "count"]).values.tolist(), [False, False, True])

    def test_groups_that_are_not_there(self):
        with self.assertRaisesRegex(KeyError, "w; this result has k, q, v, cross/k-reference"):
            _ = self.two["w"]
        for ask in (self.result.best_sources, self.result.causal_mask, self.result.joint_curves):
            with self.assertRaises(KeyError):
                ask("tokens")

    def test_results_of_earlier_versions(self):
        for archive in sorted((TESTS / "data" / "versions").glob("*.tar.xz")):
            version = archive.name.replace(".tar.xz", "")
            with self.subTest(version=version), tarfile.open(archive) as files:
                path = self.folder / f"{version}.h5"
                path.write_bytes(files.extractfile(f"{version}/result.h5").read())
                write_done(path)
                with h5py.File(path) as file:
                    np.testing.assert_array_equal(headspan.open(path).joint_curves("v").r2.sel(rule="forward", part="in_sample"),
                                                  file["v/r2_forward"][...])


class Refused(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tokens = cls.write_tokens("tokens.bin", np.random.default_rng(1).integers(3, 60, 400))
        cls.path, = cls.study(1, "results", {"model.path": GOLDEN / "olmo2_gqa", "tokens.path": tokens, "predict.streams": "k",
                                             "tokens.sequence_length": 40, "output.save_gram": "true"})

    def refused(self, path, told):
        with self.assertRaises(headspan.InputError) as caught:
            headspan.open(path)
        self.assertIn(f"{path}: {told}", str(caught.exception))

    def changed(self, change):
        """Returns the path of a copy with its own .done, in which `change` has altered the open file."""
        path = self.folder / "copy.h5"
        path.write_bytes(self.path.read_bytes())
        with h5py.File(path, "r+") as file:
            change(file)
        write_done(path)
        return path

    def test_what_is_no_complete_file(self):
        self.refused(self.folder, "is a folder; give one of its results")
        self.refused(self.folder / "none.h5", "is missing or still being written")
        path = self.folder / "cut.h5"
        path.write_bytes(self.path.read_bytes())
        self.refused(path, "has no .done beside it: it was not finished")
        write_done(path)
        path.write_bytes(self.path.read_bytes()[:-1])
        self.refused(path, "size = ")
        write_done(path)
        self.refused(path, "cannot be read (")

    def test_what_is_no_result(self):
        self.refused(self.path.with_name(self.path.stem + ".gram.h5"), "k/r2, q/r2, v/r2: are missing")
        self.refused(self.changed(lambda file: file.attrs.__delitem__("checkpoint")),
                     "checkpoint: is missing; this is no result of headspan")
        self.refused(self.changed(lambda file: file.attrs.__delitem__("headspan_schema")),
                     "headspan_schema: is missing; this is no result of headspan")
        text = self.folder / "text.h5"
        text.write_text("text")
        write_done(text)
        self.refused(text, "cannot be read (")

    def test_a_newer_schema(self):
        headspan.open(self.changed(lambda file: file.attrs.update({"headspan_schema": "1.7"})))
        self.refused(self.changed(lambda file: file.attrs.update({"headspan_schema": "2.0"})),
                     "headspan_schema = 2.0: is not known; this program reads 1.x")

    def test_what_is_not_held_in_the_file(self):
        path = self.changed(lambda file: None)
        with h5py.File(path, "r+") as file:
            for told in lead_away(file, "stray", self.folder / "none.h5"):
                file.flush()
                write_done(path)
                self.refused(path, told)

    def test_a_damaged_group(self):
        def damage(file):
            stray = file.create_dataset("k/stray", (2,), "f8", chunks=(2,), compression="gzip")
            stray.id.write_direct_chunk((0,), b"not deflated")
        result = headspan.open(self.changed(damage))
        with self.assertRaisesRegex(headspan.InputError, r"copy\.h5: k: cannot be read"):
            _ = result["k"]


class Import(StudyTest):
    def test_is_quick(self):
        """Programs that need no result do not wait for xarray."""
        told = "import sys, headspan; sys.exit('xarray' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-B", "-c", told], cwd=ANALYSIS, check=False).returncode, 0)


if __name__ == "__main__":
    main()
