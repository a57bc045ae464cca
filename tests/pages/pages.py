"""The pages of the project (every *.md that git does not ignore): their links, headings, names of files and blocks of
code. A block is between fences; HTML comments in the lines right above it say how it is tested:

    <!-- not run: REASON -->          it needs something that is not here
    <!-- run by: FILE -->             another test runs it
    <!-- run with: NAME=VALUE ... --> with these variables, which the reader sets
    <!-- slow -->                     only in the slow tests

test_blocks.py runs blocks of bash and Python without the first two.
"""
import glob
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNNABLE = ("bash", "python")

FENCE = re.compile(r"^ {0,3}```(\S*)\s*$")
MARK = re.compile(r"^<!-- (.*) -->$")
HEADING = re.compile(r"^#+ +(.*?) *$")
LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
CODE = re.compile(r"`([^`]+)`")


@dataclass
class Block:
    """Code between fences; `line` is that of the first fence, counted from 1."""
    line: int
    language: str
    text: str
    marks: list = field(default_factory=list)

    def mark(self, name):
        """Returns what follows the colon of a mark ("" if it has none), or None if there is no such mark."""
        for mark in self.marks:
            word, _, rest = mark.partition(":")
            if word.strip() == name:
                return rest.strip()
        return None

    def is_run(self):
        return self.language in RUNNABLE and self.mark("not run") is None and self.mark("run by") is None

    def is_slow(self):
        return self.mark("slow") is not None

    def variables(self):
        return dict(word.split("=", 1) for word in shlex.split(self.mark("run with") or ""))


@dataclass
class Page:
    path: Path  # relative to the root
    lines: list
    blocks: list
    prose: list  # (number, line) of what is not in a block

    def links(self):
        """Yields (number of the line, target)."""
        for number, line in self.prose:
            for match in LINK.finditer(CODE.sub("", line)):
                yield number, match[1] or match[2]

    def anchors(self):
        """Yields the anchors of the headings, as GitHub names them."""
        seen = {}
        for _, line in self.prose:
            match = HEADING.match(line)
            if not match:
                continue
            name = re.sub(r"[^\w\- ]", "", match[1].replace("`", "").lower()).replace(" ", "-")
            seen[name] = seen.get(name, -1) + 1
            yield name if seen[name] == 0 else f"{name}-{seen[name]}"

    def words_of_code(self):
        """Yields (number of the line, text) of code in prose."""
        for number, line in self.prose:
            for match in CODE.finditer(line):
                yield number, match[1]


def files_of(root):
    """Returns the files of the tree that git does not ignore, relative to its root."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                            capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in sorted(set(listed.split("\0"))) if name and (root / name).is_file()]


def read_page(root, path):
    page = Page(path, (root / path).read_text(encoding="utf-8").splitlines(), [], [])
    block, marks = None, []
    for number, line in enumerate(page.lines, 1):
        fence = FENCE.match(line)
        if block is None and fence:
            block = Block(number, fence[1], "", marks)
        elif block is not None and fence:
            page.blocks.append(block)
            block, marks = None, []
        elif block is not None:
            block.text += line + "\n"
        else:
            mark = MARK.match(line)
            marks = [*marks, mark[1]] if mark else []
            page.prose.append((number, line))
    if block is not None:
        raise ValueError(f"{path}:{block.line}: a block without an end")
    return page


def read_pages(root=ROOT):
    return [read_page(root, path) for path in files_of(root) if path.suffix == ".md"]


def names_of_files(text):
    """Returns the files that code in prose names, as paths from the root: "src/{a,b}/c.h" names two, and NAME and LAYER
    stand for any name. Returns none if the code is something else."""
    if not re.fullmatch(r"(\.ci|src|tests|jobs|analysis|slurm|checkpoints)/[\w./*{},+-]*", text):
        return []
    text = re.sub(r"NAME|LAYER", "*", text)
    names = [""]
    for part in re.split(r"(\{[^}]*\})", text):
        choices = part[1:-1].split(",") if part.startswith("{") else [part]
        names = [name + choice for name in names for choice in choices]
    return names


def is_there(root, name):
    """Returns whether files of this name (* stands for any) are in the tree, or git is told to ignore them."""
    if glob.glob(str(root / name)):
        return True
    ignored = subprocess.run(["git", "check-ignore", "-q", name], cwd=root, check=False)
    return ignored.returncode == 0
