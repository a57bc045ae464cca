"""A hub with a few repositories, and fetch.py run against it: what its tests share."""
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

from hub_server import Hub

SOURCE = Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests" / "data" / "golden"
SINGLE, SHARDED = "lab/single", "lab/sharded"
MIB = 1 << 20
HEADER = "name\tstep\ttokens\tpath\trepository\trevision\n"


def folder_files(folder):
    """Returns file name -> content, for the files that fetch.py should download."""
    names = ["config.json", *sorted(p.name for p in folder.glob("model*"))]
    return {name: (folder / name).read_bytes() for name in names}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class FetchCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = subprocess.run(["bash", SOURCE / "checkpoints" / "environment.sh"], stdout=subprocess.PIPE,
                                    text=True, check=True).stdout.strip()

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_fetch_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.manifest = self.folder / "sweep" / "manifest.tsv"
        self.manifest.parent.mkdir()
        self.sharded = folder_files(GOLDEN / "olmo2_sharded_bf16")
        self.single = [{"config.json": b"{}", "model.safetensors": random.Random(step).randbytes(1000 + step)}
                       for step in range(3)]
        more = {"README.md": b"readme", "tokenizer.json": b"{}", "generation_config.json": b"{}",
                "pytorch_model.bin": b"pickle", "optimizer.safetensors": b"moments"}
        self.hub = Hub({SINGLE: {"main": {**self.single[2], **more},
                                 **{f"step{i}": {**self.single[i], **more} for i in range(3)}},
                        SHARDED: {"stage1-step1000-tokens9B": {**self.sharded, **more}}})
        self.addCleanup(self.hub.server_close)
        self.addCleanup(self.hub.shutdown)
        self.addCleanup(self.hub.go_on.set)
        self.write_rows("step0", "step1", "step2")

    def write_rows(self, *revisions, repository=SINGLE):
        """Writes a manifest with a row for each revision; its path is `at-` and the revision."""
        rows = "".join(f"{revision}\t{number}\t{number}000\tat-{revision}\t{repository}\t{revision}\n"
                       for number, revision in enumerate(revisions))
        self.manifest.write_text(HEADER + rows)

    def command(self, *words):
        return [self.python, "-B", SOURCE / "checkpoints" / "fetch.py", self.manifest, *words]

    def environment(self):
        # A proxy of this machine must not stand between; timeouts are those of a user.
        kept = {key: value for key, value in os.environ.items()
                if not key.lower().endswith("_proxy") and not key.startswith("HF_")}
        return {**kept, "HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.folder / "home"), "HF_HUB_OFFLINE": "0"}

    def fetch(self, *words, status=0):
        """Runs fetch.py. Returns its standard output and standard error."""
        self.hub.requests.clear()
        run = subprocess.run(self.command(*words), env=self.environment(), capture_output=True, text=True, timeout=100)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        return run.stdout, run.stderr

    def cells(self, path=None):
        """Returns the rows of the manifest as dictionaries, by name."""
        header, *rows = [line.split("\t") for line in (path or self.manifest).read_text().splitlines()]
        return {row[0]: dict(zip(header, row)) for row in rows}

