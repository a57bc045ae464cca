"""The blocks of code of every page work: those of one page are run in order in a copy of the tree, as a reader would
run them in the root of a clone, on few tokens (small.py) and ranks. pages.py says which blocks are run, and with which
variables. In the copy the program is built and all packages are installed, so build.sh and packages.sh do nothing.

usage: test_blocks.py HEADSPAN MPIEXEC quick|all [unittest's arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from pages import ROOT, files_of, read_page, read_pages

PROGRAM = Path(sys.argv.pop(1)).resolve() if __name__ == "__main__" else None
MPIEXEC = sys.argv.pop(1) if __name__ == "__main__" else None
ALL = __name__ == "__main__" and sys.argv.pop(1) == "all"
HERE = Path(__file__).resolve().parent
LONGEST = 300  # seconds of a block
MOST_RANKS = 2
SECTIONS = "model|tokens|activations|grams|predict|ceiling|overlap|run|output|compress|evaluate|theory"
KEY = re.compile(rf"^({SECTIONS})\.(?!(h|cpp|py|sh|ini|bin|json|h5|nc|tsv|safetensors)$)[a-z]\w*$")


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def copy_of_the_tree(folder):
    for name in files_of(ROOT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for script in ("build.sh", "packages.sh"):
        write_script(folder / "jobs" / script, f"echo 'nothing to do for {script}' >&2")
    few_ranks = (f'[[ $1 == -n ]] && (($2 > {MOST_RANKS})) && set -- -n {MOST_RANKS} "${{@:3}}"\n'
                 f'exec {MPIEXEC}')
    small = f"exec {sys.executable} -B {HERE / 'small.py'}"
    write_script(folder / "build" / "release" / "headspan", f'{small} {PROGRAM} "$@"')
    write_script(folder / "build" / "release" / "headspan-bench", f'exec {PROGRAM.with_name("headspan-bench")} "$@"')
    (folder / "build" / "release" / "CMakeCache.txt").write_text("HEADSPAN_TORCH_DIR:PATH=\n")
    write_script(folder / "bin" / "mpirun", f'{few_ranks} "$@"')
    write_script(folder / "bin" / "headspan-report", f'exec {sys.executable} -B -m headspan_report "$@"')


def run_blocks(page, folder, slow):
    """Runs the blocks of a page that can be run, with or without the slow ones, in order. Returns the output of the
    first that fails, None if none does."""
    environment = dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}", PYTHONPATH=str(folder / "analysis"))
    for block in page.blocks:
        if not block.is_run() or (block.is_slow() and not slow):
            continue
        words = [sys.executable, "-B", "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        try:
            run = subprocess.run([*words, block.text], cwd=folder, env=environment | block.variables(), text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired as error:
            return f"{page.path}:{block.line}: not done after {LONGEST} s\n{error.output}"
        if run.returncode != 0:
            return f"{page.path}:{block.line}: exit code {run.returncode}\n{block.text}\n{run.stdout[-4000:]}"
    return None


class Blocks(unittest.TestCase):
    """One test for each page that has blocks to run."""

    def run_page(self, path):
        with tempfile.TemporaryDirectory(prefix="headspan_page_") as name:
            copy_of_the_tree(Path(name))
            self.assertIsNone(run_blocks(read_page(ROOT, path), Path(name), ALL))


for _page in read_pages():
    if any(block.is_run() for block in _page.blocks):
        setattr(Blocks, "test_" + re.sub(r"\W", "_", str(_page.path)),
                lambda self, path=_page.path: self.run_page(path))


class Keys(unittest.TestCase):
    """Keys of job files that pages name exist."""

    def test_keys(self):
        known = set()
        for command in ("study", "calibrate", "evaluate", "theory"):
            section = ""
            told = subprocess.run([str(PROGRAM), command, "--help"], capture_output=True, text=True, check=True).stdout
            for line in told.splitlines():
                if re.match(r"\[\w+\]$", line):
                    section = line[1:-1]
                elif match := re.match(r"  (\w+)( = .*)?$", line):
                    known.add(f"{section}.{match[1]}")
        self.assertGreater(len(known), 50)
        for page in read_pages():
            for number, text in page.words_of_code():
                key = text.removeprefix("--").split(" ")[0].split("=")[0]
                if KEY.match(key):
                    self.assertIn(key, known, f"{page.path}:{number}")


class Runner(unittest.TestCase):
    """A block that fails is found, and one that must not be run is not run."""

    def outcome(self, text, slow=False):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "page.md").write_text(text)
            return run_blocks(read_page(folder, Path("page.md")), folder, slow)

    def test_blocks_run_in_order_in_one_folder(self):
        self.assertIsNone(self.outcome("```bash\necho 1 > a\n```\n```python\nassert open('a').read() == '1\\n'\n```\n"))

    def test_a_command_that_fails(self):
        self.assertIn("page.md:1: exit code 1", self.outcome("```bash\nfalse\ntrue\n```\n"))
        self.assertIn("page.md:2: exit code 1", self.outcome("text\n```python\nassert False\n```\n"))

    def test_marks(self):
        self.assertIsNone(self.outcome("<!-- not run: needs a GPU -->\n```bash\nfalse\n```\n"))
        self.assertIsNone(self.outcome("<!-- slow -->\n```bash\nfalse\n```\n"))
        self.assertIsNotNone(self.outcome("<!-- slow -->\n```bash\nfalse\n```\n", slow=True))
        variables = "<!-- run with: A=1 B='2 3' -->\n<!-- slow -->\n```bash\n[[ $A$B == '12 3' ]]\n```\n"
        self.assertIsNone(self.outcome(variables, slow=True))
        self.assertIsNotNone(self.outcome("<!-- not run: of the block before -->\n\n```bash\nfalse\n```\n"))


if __name__ == "__main__":
    unittest.main()
