"""checkpoints/fetch.py against a hub on this machine: the files on disk afterwards, the requests to the hub, the
messages, and the exit code.

    test_fetch.py PROGRAM       the program reads what was fetched
"""
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

from fetch_case import HEADER, MIB, SHARDED, SINGLE, FetchCase, content
from hub_server import sha256

PROGRAM = sys.argv.pop(1)


class FetchTest(FetchCase):
    def test_takes_configuration_and_weights_only_and_fills_the_row(self):
        out, _ = self.fetch("step1")

        at = self.manifest.parent / "at-step1"
        sums = "".join(f"{sha256(self.single[1][name])}  {name}\n" for name in sorted(self.single[1]))
        self.assertEqual(content(at), {**self.single[1], "SHA256SUMS": sums.encode()})
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=at, check=True)
        row = self.cells()["step1"]
        self.assertEqual(row["commit"], self.hub.commit(SINGLE, "step1"))
        self.assertEqual(row["bytes"], "1001")
        self.assertEqual(row["sha256"], hashlib.sha256(self.single[1]["model.safetensors"]).hexdigest())
        self.assertEqual(self.cells()["step0"]["commit"], "")
        self.assertTrue(out.splitlines()[-1].startswith("status=done complete=1 incomplete=0 nonexistent=0 bytes="))
        self.assertEqual([p.name for p in self.manifest.parent.iterdir() if p.is_file()], ["manifest.tsv"])

    def test_shards_and_their_digest_and_the_program_reads_them(self):
        self.write_rows("stage1-step1000-tokens9B", repository=SHARDED)

        self.fetch()

        at = self.manifest.parent / "at-stage1-step1000-tokens9B"
        self.assertEqual({name: value for name, value in content(at).items() if name != "SHA256SUMS"}, self.sharded)
        row = self.cells()["stage1-step1000-tokens9B"]
        shards = sorted(p.name for p in at.glob("*.safetensors"))
        lines = subprocess.run(["sha256sum", *shards], cwd=at, capture_output=True, check=True).stdout
        self.assertEqual(row["sha256"], hashlib.sha256(lines).hexdigest())
        self.assertEqual(int(row["bytes"]), sum((at / name).stat().st_size for name in shards))
        for path in (at, self.manifest):
            inspect = subprocess.run([PROGRAM, "inspect", path], capture_output=True, text=True)
            self.assertEqual(inspect.returncode, 0, inspect.stdout + inspect.stderr)
        self.assertIn("1 of 1 exist", inspect.stdout)

    def test_second_run_downloads_nothing(self):
        self.fetch()
        before = self.manifest.read_bytes()

        out, _ = self.fetch()

        self.assertEqual(self.hub.downloads(), [])
        self.assertEqual(out.splitlines()[-1], "status=done complete=3 incomplete=0 nonexistent=0 bytes=0")
        self.assertEqual(self.manifest.read_bytes(), before)

    def test_dry_run_counts_bytes_and_writes_nothing(self):
        self.fetch("step0")
        before = self.manifest.read_bytes()

        out, _ = self.fetch("step0", "step1", "--dry-run")

        sizes = [sum(map(len, files.values())) for files in self.single]
        self.assertEqual(out.splitlines(), ["name\tfiles\tbytes\tbytes_to_fetch", f"step0\t2\t{sizes[0]}\t0",
                                            f"step1\t2\t{sizes[1]}\t{sizes[1]}",
                                            f"total\t4\t{sizes[0] + sizes[1]}\t{sizes[1]}"])
        self.assertEqual(self.hub.downloads(), [])
        self.assertEqual(self.manifest.read_bytes(), before)
        self.assertFalse((self.manifest.parent / "at-step1").exists())

    def test_row_that_does_not_exist_is_named_and_the_others_are_fetched(self):
        self.write_rows("step0", "step7", "step2")

        out, err = self.fetch(status=2)

        self.assertIn(f"step7: revision = step7: does not exist in {SINGLE}", err)
        self.assertIn("complete=2 incomplete=0 nonexistent=1", out.splitlines()[-1])
        self.assertEqual(content(self.manifest.parent / "at-step2")["model.safetensors"],
                         self.single[2]["model.safetensors"])
        self.assertEqual([bool(row["commit"]) for row in self.cells().values()], [True, False, True])
        self.assertFalse((self.manifest.parent / "at-step7").exists())

    def test_list_tells_what_the_repository_has(self):
        self.hub.repositories[SINGLE] = {f"step{i}": self.single[0] for i in (0, 1000, 900)}
        self.write_rows("step900", "step7")

        out, err = self.fetch("--list", status=2)

        commit = self.hub.commit(SINGLE, "step0")
        self.assertEqual(out.splitlines(), ["repository\trevision\tcommit\tname", f"{SINGLE}\tstep0\t{commit}\t",
                                            f"{SINGLE}\tstep900\t{commit}\tstep900", f"{SINGLE}\tstep1000\t{commit}\t"])
        self.assertIn("step7: revision = step7: does not exist", err)
        self.assertEqual(self.hub.downloads(), [])

    def test_repository_that_does_not_exist(self):
        self.write_rows("step0", "step1", repository="lab/nothing")

        _, err = self.fetch(status=2)

        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("repository = lab/nothing: does not exist, or needs a login", err)

    def check_refused(self, name, sent, told):
        """`name` of step1 is sent as `sent`: it is named and not kept, and the other rows are fetched."""
        self.hub.sent_instead[self.single[1][name]] = sent

        out, err = self.fetch(status=1)

        self.assertRegex(err, f"step1: .*{name}: {told}")
        self.assertIn("complete=2 incomplete=1 nonexistent=0", out.splitlines()[-1])
        left = content(self.manifest.parent / "at-step1")
        self.assertEqual({key: value for key, value in left.items() if self.single[1].get(key) != value}, {})
        self.assertNotIn(name, left)
        self.assertEqual([bool(row["commit"]) for row in self.cells().values()], [True, False, True])

        self.hub.sent_instead.clear()
        self.fetch()
        self.assertEqual(content(self.manifest.parent / "at-step1")[name], self.single[1][name])

    def test_wrong_sha256_is_refused(self):
        sent = bytes(1001)
        self.check_refused("model.safetensors", sent, f"sha256 = {sha256(sent)}: is not what the hub lists, "
                           f"{sha256(self.single[1]['model.safetensors'])}")

    def test_wrong_sizes_are_refused(self):
        whole = self.single[1]["model.safetensors"]
        for sent in (whole[:-1], whole + b"x"):
            with self.subTest(size=len(sent)):
                shutil.rmtree(self.manifest.parent / "at-step1", ignore_errors=True)
                self.write_rows("step0", "step1", "step2")
                self.check_refused("model.safetensors", sent, "size: .* has not the 1001 bytes that it lists")

    def test_wrong_small_file_is_refused(self):
        self.single[1]["config.json"] = b'{"a": 1}'
        self.hub.repositories[SINGLE]["step1"] = self.single[1]
        self.check_refused("config.json", b'{"a": 2}', "git digest = .* is not what the hub lists")

    def stop_in_the_middle(self, number):
        """Sends a signal when some of the weights of step1 have arrived. Returns the exit code, the weights and how
        many bytes of them are on disk."""
        weights = random.Random(5).randbytes(24 * MIB)
        self.hub.repositories[SINGLE]["step1"] = {"config.json": b"{}", "model.safetensors": weights}
        self.hub.stall[weights] = 12 * MIB
        partial = self.manifest.parent / "at-step1" / "model.safetensors.incomplete"
        process = subprocess.Popen(self.command("step0", "step1"), env=self.environment(), stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not partial.exists() or partial.stat().st_size == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.send_signal(number)
        code = process.wait(timeout=60)
        self.hub.stall.clear()
        self.hub.go_on.set()
        return code, weights, partial.stat().st_size

    def test_killed_in_the_middle_it_goes_on_there(self):
        at = self.manifest.parent / "at-step1"

        code, weights, came = self.stop_in_the_middle(signal.SIGKILL)

        self.assertEqual(code, -signal.SIGKILL)
        self.assertFalse((at / "model.safetensors").exists())
        self.assertEqual([bool(row["commit"]) for row in self.cells().values()], [True, False, False])
        self.assertEqual(subprocess.run([PROGRAM, "inspect", at], capture_output=True).returncode, 2)

        self.fetch("step0", "step1")

        self.assertEqual({path for _, path, _ in self.hub.downloads()},
                         {f"/content/{sha256(weights)}",
                          f"/{SINGLE}/resolve/{self.hub.commit(SINGLE, 'step1')}/model.safetensors"})
        self.assertEqual({wanted for _, _, wanted in self.hub.downloads()}, {f"bytes={came}-"})
        self.assertEqual((at / "model.safetensors").read_bytes(), weights)
        self.assertFalse((at / "model.safetensors.incomplete").exists())
        self.assertEqual(self.cells()["step1"]["sha256"], sha256(weights))

    def test_interrupted_it_says_so(self):
        self.assertEqual(self.stop_in_the_middle(signal.SIGINT)[0], 3)

    def test_the_commit_of_the_manifest_is_meant_even_if_the_branch_moves(self):
        self.fetch("step1")
        shutil.rmtree(self.manifest.parent / "at-step1")
        revisions = self.hub.repositories[SINGLE]
        revisions["kept"], revisions["step1"] = revisions["step1"], revisions["step2"]

        _, err = self.fetch("step1")

        self.assertIn("taking the commit of the manifest", err)
        self.assertEqual(content(self.manifest.parent / "at-step1")["model.safetensors"],
                         self.single[1]["model.safetensors"])

        del revisions["kept"]
        _, err = self.fetch("step1", status=2)
        self.assertRegex(err, f"step1: commit = .*: {SINGLE} has no such commit")

    def test_files_of_another_commit_do_not_pass_for_this_one(self):
        self.single[2]["model.safetensors"] = bytes(1001)  # the size of step1's
        self.hub.repositories[SINGLE]["step2"] = self.single[2]
        self.fetch("step1")
        shutil.move(self.manifest.parent / "at-step1", self.manifest.parent / "at-step2")

        self.fetch("step2")

        self.assertEqual(content(self.manifest.parent / "at-step2")["model.safetensors"], bytes(1001))

    def test_a_sha256_in_the_manifest_that_the_commit_has_not(self):
        self.fetch("step1")
        digest = self.cells()["step1"]["sha256"]
        self.manifest.write_text(self.manifest.read_text().replace(digest, "0" * 64))

        _, err = self.fetch("step1", status=2)

        self.assertRegex(err, f"step1: sha256 = 0000.* has {digest}")

    def test_incomplete_repositories_are_refused(self):
        index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
        self.hub.repositories[SINGLE] = {
            "step0": {"config.json": b"{}"}, "step1": {"model.safetensors": b"0"},
            "step2": {"config.json": b"{}", "model.safetensors.index.json": index,
                      "model-00001-of-00002.safetensors": b"1"}}
        before = self.manifest.read_bytes()

        _, err = self.fetch(status=2)

        self.assertRegex(err, r"step0: .*: holds no model.safetensors.index.json")
        self.assertRegex(err, r"step1: .*: holds no config.json")
        self.assertRegex(err, r"step2: .*: weight_map = model-00002-of-00002.safetensors: is not in the repository")
        self.assertEqual(self.manifest.read_bytes(), before)

    def test_another_directory_gets_a_manifest_of_its_own(self):
        before = self.manifest.read_bytes()
        other = self.folder / "scratch"

        self.fetch("step0", "--directory", other)
        self.fetch("step2", "--directory", other)

        self.assertEqual(self.manifest.read_bytes(), before)
        self.assertFalse((self.manifest.parent / "at-step0").exists())
        rows = self.cells(other / "manifest.tsv")
        self.assertEqual([row["bytes"] for row in rows.values()], ["1000", "", "1002"])
        self.assertEqual(content(other / "at-step2")["model.safetensors"], self.single[2]["model.safetensors"])
        inspect = subprocess.run([PROGRAM, "inspect", other / "manifest.tsv"], capture_output=True, text=True)
        self.assertIn("2 of 3 exist", inspect.stdout)

        self.write_rows("stage1-step1000-tokens9B", repository=SHARDED)
        _, err = self.fetch("--directory", other, status=2)
        self.assertIn("give each manifest a directory of its own", err)

    def test_bad_manifests_and_names(self):
        cases = {
            "name\tpath\trepository\n": "column = revision: is not there once",
            HEADER + "a\t0\t0\ta\tlab/single\n": "line 2: has 5 fields; the header has 6",
            HEADER + "a\t0\t0\ta\t\tstep0\n": "line 2 repository = '': is empty",
            HEADER + "a\t0\t0\ta\tlab/single\tstep0\n" * 2: "name = a: is given twice",
            HEADER + "b\t0\t0\tb\tlab/single\tstep0\n": "NAME = a: is no row; the rows are b",
        }
        for text, told in cases.items():
            with self.subTest(told):
                self.manifest.write_text(text)
                _, err = self.fetch("a", status=2)
                self.assertIn(f"fetch: {self.manifest}: {told}", err)
        self.manifest.unlink()
        self.assertIn("does not exist", self.fetch(status=2)[1])

    def test_no_hub(self):
        self.hub.shutdown()
        self.hub.server_close()

        _, err = self.fetch(status=1)

        self.assertIn(self.hub.endpoint, err)
        self.assertEqual(len(err.splitlines()), 1, err)


if __name__ == "__main__":
    unittest.main()
