"""The rules that keep the source in layers, read off its text: who may include whom, how long a file may be.

    base <- dist <- io <- model;  base <- dist <- stats <- device;  model and stats meet only in app

Run as a program it checks the tree it lies in, and that each rule catches a file that breaks it.
"""
import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MAY_INCLUDE = {
    "base": {"base"},
    "dist": {"base", "dist"},
    "io": {"base", "dist", "io"},
    "model": {"base", "dist", "io", "model"},
    "stats": {"base", "dist", "stats"},
    "device": {"base", "dist", "stats", "device"},
    "app": {"base", "dist", "io", "model", "stats", "device", "app"},
}
MAY_USE_LIBTORCH = {"model", "device"}
GENERATED = {"git_id.h"}  # by CMake, in the build folder
LONGEST_FILE = 400  # lines
COUNTED_FOLDERS = ("src", "tests", "jobs", "checkpoints", "slurm", "analysis")
COUNTED_SUFFIXES = {".h", ".cpp", ".py", ".sh", ".cmake"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
TORCH = re.compile(r"(ATen|c10|caffe2|torch)/")


def sources(root):
    """The C++ files of the layers under root/src, as (path, layer)."""
    for layer in MAY_INCLUDE:
        for path in sorted((root / "src" / layer).glob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path, layer


def broken_include(root, layer, bracket, name):
    """What is wrong with one include of a file of a layer; None if nothing is."""
    if bracket == "<":
        if name == "torch/torch.h":
            return "takes 13 s to compile; include <ATen/ATen.h>"
        if TORCH.match(name) and layer not in MAY_USE_LIBTORCH:
            return "LibTorch is for model and device only"
        if name == "mpi.h" and layer == "base":
            return "base knows no MPI"
        return None
    if name in GENERATED:
        return None
    if not (root / "src" / name).is_file() or ".." in name:
        return "is no file of src; a system header goes in < >"
    if name.split("/")[0] not in MAY_INCLUDE[layer]:
        return f"{layer} may include only {', '.join(sorted(MAY_INCLUDE[layer]))}"
    return None


def broken_includes(root):
    """One line for each include that breaks a rule, and for each .cpp that does not include its own header
    first: that is what shows that the header compiles on its own."""
    for path, layer in sources(root):
        includes = INCLUDE.findall(path.read_text())
        for bracket, name in includes:
            wrong = broken_include(root, layer, bracket, name)
            if wrong:
                yield f"{path.relative_to(root)}: include of {name}: {wrong}"
        own = path.with_suffix(".h")
        if path.suffix == ".cpp" and own.exists() and includes[:1] != [('"', f"{layer}/{own.name}")]:
            yield f"{path.relative_to(root)}: its first include is not {layer}/{own.name}"


def long_files(root):
    """One line for each file of more than LONGEST_FILE lines."""
    for folder in COUNTED_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in COUNTED_SUFFIXES or path.name == "CMakeLists.txt":
                lines = path.read_text().count("\n")
                if lines > LONGEST_FILE:
                    yield f"{path.relative_to(root)}: {lines} lines; at most {LONGEST_FILE}"


class ThisTree(unittest.TestCase):
    def test_has_every_layer(self):
        self.assertEqual({layer for _, layer in sources(ROOT)}, set(MAY_INCLUDE))

    def test_includes(self):
        self.assertEqual(list(broken_includes(ROOT)), [])

    def test_length_of_files(self):
        self.assertEqual(list(long_files(ROOT)), [])


class Rules(unittest.TestCase):
    def broken(self, rule, name, text):
        """The lines that a rule has for a tree of one file (and a header in each layer for it to include)."""
        with tempfile.TemporaryDirectory() as folder:
            for layer in MAY_INCLUDE:
                header = Path(folder, "src", layer, "thing.h")
                header.parent.mkdir(parents=True)
                header.write_text("#pragma once\n")
            path = Path(folder, "src", name)
            path.write_text(text)
            return list(rule(Path(folder)))

    def test_include_of_a_later_layer(self):
        for layer, allowed in MAY_INCLUDE.items():
            for other in MAY_INCLUDE:
                found = self.broken(broken_includes, f"{layer}/a.cpp", f'#include "{other}/thing.h"\n')
                self.assertEqual(len(found), 0 if other in allowed else 1, (layer, other, found))

    def test_libtorch_outside_model_and_device(self):
        for layer in MAY_INCLUDE:
            found = self.broken(broken_includes, f"{layer}/a.h", "#include <ATen/ATen.h>\n")
            self.assertEqual(len(found), 0 if layer in ("model", "device") else 1, (layer, found))

    def test_torch_torch_h_anywhere(self):
        self.assertEqual(len(self.broken(broken_includes, "model/a.cpp", "#include <torch/torch.h>\n")), 1)

    def test_mpi_in_base(self):
        self.assertEqual(len(self.broken(broken_includes, "base/a.h", "#include <mpi.h>\n")), 1)

    def test_include_of_no_file(self):
        self.assertEqual(len(self.broken(broken_includes, "io/a.cpp", '#include "thing.h"\n')), 1)

    def test_own_header_not_first(self):
        late = '#include <vector>\n#include "io/thing.h"\n'
        self.assertEqual(len(self.broken(broken_includes, "io/thing.cpp", late)), 1)

    def test_long_file(self):
        self.assertEqual(len(self.broken(long_files, "io/a.cpp", "\n" * 401)), 1)
        self.assertEqual(len(self.broken(long_files, "io/a.cpp", "\n" * 400)), 0)


if __name__ == "__main__":
    unittest.main()
