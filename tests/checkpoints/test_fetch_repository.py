"""checkpoints/fetch.py with the name of a repository instead of a manifest, against a hub on this machine, and without a network.

    test_fetch_repository.py PROGRAM       the program reads what was fetched
"""
import subprocess
import sys
import unittest

from fetch_case import SHARDED, SINGLE, SOURCE, FetchCase

PROGRAM = sys.argv.pop(1)


class FetchRepositoryTest(FetchCase):
    def fetch_repository(self, *words, status=0, **environment):
        """Runs fetch.py on a repository. Returns its standard output and standard error."""
        self.hub.requests.clear()
        run = subprocess.run([self.python, "-B", SOURCE / "checkpoints" / "fetch.py", *words],
                             env={**self.environment(), **environment}, capture_output=True, text=True, timeout=100,
                             cwd=self.folder)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        return run.stdout, run.stderr

    def test_repository_goes_into_a_folder_with_its_tokenizer(self):
        at = self.folder / "here"
        for revision, folder in (((), at), (("--revision", "step1"), at / "step1")):
            expected = {**self.single[1 if revision else 2], "tokenizer.json": b"{}"}

            out, _ = self.fetch_repository(SINGLE, *revision, "--directory", at)

            found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            del found["SHA256SUMS"]
            self.assertEqual(found, expected)
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
            self.assertTrue(out.splitlines()[-1].startswith("status=done complete=1 "), out)
            self.fetch_repository(SINGLE, *revision, "--directory", at)
            self.assertEqual(self.hub.downloads(), [])

    def test_all_revisions_come_with_a_manifest(self):
        at = self.folder / "all"

        _, err = self.fetch_repository(SINGLE, "--all-revisions", "--directory", at)

        self.assertIn("lab/single: main: is not named after a training step, and is left out", err)
        rows = self.cells(at / "manifest.tsv")
        self.assertEqual([(row["name"], row["step"], row["path"], row["commit"]) for row in rows.values()],
                         [(f"step{i}", str(i), f"step{i}", self.hub.commit(SINGLE, f"step{i}")) for i in range(3)])
        before = (at / "manifest.tsv").read_bytes()
        self.fetch_repository(SINGLE, "--all-revisions", "--directory", at)
        self.assertEqual(((at / "manifest.tsv").read_bytes(), self.hub.downloads()), (before, []))
        inspect = subprocess.run([PROGRAM, "inspect", at / "manifest.tsv"], capture_output=True, text=True)
        self.assertIn("3 of 3 exist", inspect.stdout + inspect.stderr)

    def test_weights_of_pytorch_are_taken_and_the_conversion_is_told(self):
        shards = {f"pytorch_model-0000{i}-of-00002.bin": b"%d" % i for i in (1, 2)}
        index = b'{"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}'
        self.hub.repositories["lab/old"] = {"main": {"config.json": b"{}", "pytorch_model.bin": b"all"}}
        self.hub.repositories["lab/large"] = {"main": {"config.json": b"{}", "pytorch_model.bin.index.json": index, **shards}}
        for repository in ("lab/old", "lab/large"):
            at = self.folder / repository

            _, err = self.fetch_repository(repository, "--directory", at)

            names = {path.name for path in at.iterdir()} - {"SHA256SUMS"}
            self.assertEqual(names, set(self.hub.repositories[repository]["main"]))
            self.assertIn(f"convert them with: python3 checkpoints/convert.py {at}", err)

    def test_offline_copies_from_the_cache(self):
        cache = self.folder / "home" / "hub" / "models--lab--single"
        commit = self.hub.commit(SINGLE, "main")
        snapshot = cache / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text(commit)
        for name, value in {**self.single[2], "tokenizer.json": b"{}", "README.md": b"readme"}.items():
            (snapshot / name).write_bytes(value)

        self.fetch_repository(SINGLE, "--directory", self.folder / "copy", HF_HUB_OFFLINE="1")

        self.assertEqual(self.hub.requests, [])
        found = {path.name: path.read_bytes() for path in (self.folder / "copy").iterdir()}
        del found["SHA256SUMS"]
        self.assertEqual(found, {**self.single[2], "tokenizer.json": b"{}"})
        for words, message in (([SHARDED], "lab/sharded: is not in the cache"),
                               ([SINGLE, "--revision", "step1"], "revision = step1: does not exist in lab/single")):
            _, err = self.fetch_repository(*words, "--directory", self.folder / "none", status=2, HF_HUB_OFFLINE="1")
            self.assertIn(message, err)

    def test_words_that_do_not_suit_a_repository_or_a_manifest_are_refused(self):
        for words, message in ((("lab/none",), "repository = lab/none: does not exist, or needs a login"),
                               ((SINGLE, "step1"), "NAME = step1: lab/single is a repository; give --revision"),
                               ((SINGLE, "--revision", "step9"), "revision = step9: does not exist in lab/single"),
                               ((SHARDED, "--revision", "main"), "revision = main: does not exist"),
                               ((self.manifest, "--revision", "step1"), "--revision: is of a repository"),
                               ((self.manifest, "--all-revisions"), "--all-revisions: is of a repository")):
            with self.subTest(message):
                _, err = self.fetch_repository(*words, "--directory", self.folder / "none", status=2)
                self.assertIn(message, err)


if __name__ == "__main__":
    unittest.main()
