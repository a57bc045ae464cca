"""Pages stay valid: each relative link and anchor leads somewhere, each file that is named exists, each block of code
is run by a test or says why not (pages.py), and README is short. test_blocks.py checks that the blocks work.

Run as a program it checks its own tree, and that each rule finds a page that breaks it.
"""
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from pages import ROOT, is_there, names_of_files, read_page, read_pages

MOST_LINES = 200  # of README.md
MOST_BYTES = 200_000  # of its picture
LANGUAGES = {"bash", "python", "ini", "text"}
PROGRAMS = r"bash|build/\S+|cmake|cp|ctest|headspan\S*|mpirun|pip|python3?|slurm/\S+"
COMMAND = re.compile(rf"^(?: {{4,}}|\t)(?:\w+=\S+ )*({PROGRAMS}) ")


def dead_links(root, page):
    """Yields a line for each relative link of a page to a file or an anchor that does not exist."""
    for number, target in page.links():
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (root / page.path.parent / name).resolve() if name else root / page.path
        there = path.exists() and path.is_relative_to(root.resolve())
        if not there:
            yield f"{page.path}:{number}: {target}: leads nowhere"
        elif anchor and anchor not in read_page(root, path.relative_to(root)).anchors():
            yield f"{page.path}:{number}: {target}: has no such heading"


def missing_files(root, page):
    """Yields a line for each file that a page names and that does not exist."""
    for number, text in page.words_of_code():
        for name in names_of_files(text):
            if not is_there(root, name):
                yield f"{page.path}:{number}: `{text}`: {name} is not there"


def bad_blocks(root, page):
    """Yields a line for each block that is not run and does not say why, and for commands outside of blocks."""
    for block in page.blocks:
        where = f"{page.path}:{block.line}"
        if block.language not in LANGUAGES:
            yield f"{where}: a block of '{block.language}'; known: {', '.join(sorted(LANGUAGES))}"
        if block.mark("not run") == "":
            yield f"{where}: not run, without a reason"
        by = block.mark("run by")
        if by is not None and not (by and (root / by).is_file()):
            yield f"{where}: run by {by}, which is not there"
    for number, line in page.prose:
        if COMMAND.match(line):
            yield f"{page.path}:{number}: a command outside of a block"


def too_much(root, page):
    """Yields a line for what is too long or too large about the first page."""
    if page.path != Path("README.md"):
        return
    if len(page.lines) > MOST_LINES:
        yield f"README.md: {len(page.lines)} lines; at most {MOST_LINES}"
    pictures = [target for _, target in page.links() if re.search(r"\.(png|svg)$", target)]
    if len(pictures) != 1:
        yield f"README.md: {len(pictures)} pictures; one"
    for picture in pictures:
        size = (root / picture).stat().st_size if (root / picture).is_file() else 0
        if size > MOST_BYTES:
            yield f"README.md: {picture} has {size} bytes; at most {MOST_BYTES}"


RULES = (dead_links, missing_files, bad_blocks, too_much)


class ThisTree(unittest.TestCase):
    def check(self, rule):
        self.assertEqual([line for page in read_pages() for line in rule(ROOT, page)], [])

    def test_links(self):
        self.check(dead_links)

    def test_files_that_are_named(self):
        self.check(missing_files)

    def test_blocks(self):
        self.check(bad_blocks)

    def test_readme(self):
        self.check(too_much)

    def test_one_version(self):
        places = {"CMakeLists.txt": r"project\(headspan VERSION (\S+)", "CITATION.cff": r"^version: (\S+)",
                  "analysis/pyproject.toml": r'^version = "(\S+)"',
                  "analysis/headspan/__init__.py": r'^__version__ = "(\S+)"', "CHANGELOG.md": r"^## (\S+)"}
        told = {name: re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)[1]
                for name, pattern in places.items()}
        self.assertEqual(len(set(told.values())), 1, told)

    def test_no_path_of_a_machine(self):
        for page in read_pages():
            for number, line in enumerate(page.lines, 1):
                self.assertNotRegex(line, r"/work/|/root/|/home/|\.\./shared", f"{page.path}:{number}")


class Rules(unittest.TestCase):
    def setUp(self):
        tree = tempfile.TemporaryDirectory()
        self.addCleanup(tree.cleanup)
        self.root = Path(tree.name)
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        (self.root / "src").mkdir()
        (self.root / "src" / "there.h").write_text("")
        (self.root / "picture.png").write_bytes(b"")

    def broken(self, rule, text, name="src/README.md"):
        """Returns the lines that a rule yields for a page."""
        path = self.root / name
        path.write_text(text)
        try:
            return [line for page in read_pages(self.root) for line in rule(self.root, page)]
        finally:
            path.unlink()

    def test_links(self):
        good = "[a](there.h) [b](../src) [c](#one-two-three) [d](#one-1) [e](https://x.org)\n"
        self.assertEqual(self.broken(dead_links, "# One `two`, three\n## One\n## One\n" + good), [])
        self.assertEqual(self.broken(dead_links, "[a](gone.h)\n"), ["src/README.md:1: gone.h: leads nowhere"])
        self.assertEqual(self.broken(dead_links, "# One\n[a](#two)\n"), ["src/README.md:2: #two: has no such heading"])
        self.assertEqual(self.broken(dead_links, "[a](../../x)\n"), ["src/README.md:1: ../../x: leads nowhere"])
        self.assertEqual(self.broken(dead_links, '<img src="x.png">\n'), ["src/README.md:1: x.png: leads nowhere"])

    def test_links_in_blocks_are_none(self):
        self.assertEqual(self.broken(dead_links, "```text\n[a](gone.h)\n```\nand `[a](gone.h)`\n"), [])

    def test_files_that_are_named(self):
        self.assertEqual(self.broken(missing_files, "`src/there.h`, `src/*.h`, `src/{there}.h`, `src/README.md`\n"), [])
        self.assertEqual(self.broken(missing_files, "`src/{there,gone}.h`\n"),
                         ["src/README.md:1: `src/{there,gone}.h`: src/gone.h is not there"])

    def test_blocks(self):
        self.assertEqual(self.broken(bad_blocks, "```bash\ntrue\n```\n"), [])
        self.assertEqual(self.broken(bad_blocks, "<!-- not run: needs a GPU -->\n```bash\nfalse\n```\n"), [])
        self.assertEqual(self.broken(bad_blocks, "<!-- run by: src/there.h -->\n```bash\nfalse\n```\n"), [])
        for text in ("```\ntrue\n```\n", "<!-- not run: -->\n```bash\nfalse\n```\n",
                     "<!-- run by: src/gone.py -->\n```bash\nfalse\n```\n", "    bash x.sh\n",
                     "    UNITS=measured build/release/headspan study\n"):
            self.assertEqual(len(self.broken(bad_blocks, text)), 1, text)

    def test_readme(self):
        picture = "![a](picture.png)\n"
        self.assertEqual(self.broken(too_much, picture + "\n" * 199, "README.md"), [])
        self.assertEqual(self.broken(too_much, picture + "\n" * 200, "README.md"),
                         ["README.md: 201 lines; at most 200"])
        self.assertEqual(self.broken(too_much, "# a\n", "README.md"), ["README.md: 0 pictures; one"])
        (self.root / "picture.png").write_bytes(bytes(MOST_BYTES + 1))
        self.assertEqual(len(self.broken(too_much, picture, "README.md")), 1)


if __name__ == "__main__":
    unittest.main()
