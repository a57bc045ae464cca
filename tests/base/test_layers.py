"""The rules that keep the source in layers, checked by reading it: which layer and folder may include which, which
source belongs to which header, how many files a folder may hold and how many lines a file.

    base <- dist <- io <- model;  base <- dist <- stats <- device;  model and stats meet only in app

Run as a program it checks its own tree, and that each rule finds a file that breaks it.
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
# The folders of a layer from the bottom up ("" is the layer's folder itself): a file includes files of its own folder and
# of those before it.
FOLDERS = {
    "base": ["", "process"],
    "dist": ["comm", "matrix", "", "kernels"],
    "io": ["", "hdf5", "checkpoint", "inputs", "outputs", "archive"],
    "model": ["core", "types", "kernels", "weights", "cache", "device_cache", "forward"],
    "stats": ["gram", "regression", "layers", "nulls", "compression"],
    "device": [""],
    "app": ["job", "run", "plan", "capture", "sources", "study", "compress", "archive", "evaluate", "inspect", "manual", ""],
}
MOST_ROOMS = 20  # per folder; a room is a source with its header
MAY_USE_LIBTORCH = {"model", "device"}
# The programs, and sources that are one of several implementations of a header: device_comm.h, gpu.h, onednn.h.
WITHOUT_A_HEADER = {"app/main.cpp", "app/write_manual.cpp", "dist/comm/device_comm_mpi.cpp", "dist/comm/device_comm_nccl.cpp",
                    "dist/comm/device_comm_no_nccl.cpp", "dist/comm/gpu_cuda.cpp", "dist/comm/gpu_none.cpp",
                    "dist/no_onednn.cpp"}
# Folders where each source without a header defines one of the functions that this header is about.
HEADER_OF_FOLDER = {"model/types": "model/types/model_type.h"}
GENERATED = {"git_id.h", "model_types.inc"}  # by CMake, in the build folder
LONGEST_FILE = 400  # lines
COUNTED_FOLDERS = ("src", "tests", "jobs", "checkpoints", "slurm", "analysis")
COUNTED_SUFFIXES = {".h", ".cpp", ".py", ".sh", ".cmake"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
TORCH = re.compile(r"(ATen|c10|caffe2|torch)/")


def sources(root):
    """Yields the C++ files of the layers under root/src, as (path, layer)."""
    for layer in MAY_INCLUDE:
        for path in sorted((root / "src" / layer).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path, layer


def folder_of(name):
    """Returns the folder of a file within its layer: "cache" for "model/cache/kv_cache.h"."""
    return "/".join(name.split("/")[1:-1])


def broken_include(root, file, bracket, name):
    """Returns what is wrong with one include of a file ("layer/folder/name.h"), or None."""
    layer = file.split("/")[0]
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
    if name.split("/")[0] != layer:
        return None
    order = FOLDERS[layer]
    here, there = folder_of(file), folder_of(name)
    if here in order and there in order and order.index(there) > order.index(here):
        return f"the folders of {layer} have an order: {' <- '.join(folder or layer for folder in order)}"
    return None


def broken_includes(root):
    """Yields a line for each include that breaks a rule, and for each .cpp that does not include its own header first,
    which shows that the header compiles on its own."""
    for path, _ in sources(root):
        file = path.relative_to(root / "src").as_posix()
        includes = INCLUDE.findall(path.read_text())
        for bracket, name in includes:
            wrong = broken_include(root, file, bracket, name)
            if wrong:
                yield f"src/{file}: include of {name}: {wrong}"
        if path.suffix != ".cpp" or file in WITHOUT_A_HEADER:
            continue
        own = file.removesuffix(".cpp") + ".h"
        shared = HEADER_OF_FOLDER.get(file.rpartition("/")[0])
        if not (root / "src" / own).is_file() and ('"', shared) in includes:
            continue
        if not (root / "src" / own).is_file():
            yield f"src/{file}: has no header {own}; what a source defines stands in the header of its name"
        elif includes[:1] != [('"', own)]:
            yield f"src/{file}: its first include is not {own}"


def broken_folders(root):
    """Yields a line for each folder of a layer that is not in the order, and for each with too many rooms."""
    rooms = {}
    for path, layer in sources(root):
        rooms.setdefault((layer, folder_of(path.relative_to(root / "src").as_posix())), set()).add(path.stem)
    for (layer, folder), names in sorted(rooms.items()):
        if folder not in FOLDERS[layer]:
            yield f"src/{layer}/{folder}: has no place in the order of the folders of {layer}"
        if len(names) > MOST_ROOMS:
            yield f"src/{layer}/{folder}: {len(names)} rooms; at most {MOST_ROOMS}"


def circles(root):
    """Yields a line for each cycle of rooms (sources with their headers) that include each other."""
    uses = {}
    for path, _ in sources(root):
        room = path.relative_to(root / "src").with_suffix("").as_posix()
        names = (name.rpartition(".")[0] for bracket, name in INCLUDE.findall(path.read_text()) if bracket == '"')
        uses.setdefault(room, set()).update(name for name in names if name != room)
    entered, left = {}, set()

    def visit(room, way):
        entered[room] = len(way)
        for other in sorted(uses.get(room, ())):
            if other not in entered:
                yield from visit(other, [*way, other])
            elif other not in left:
                yield " -> ".join([*way[way.index(other):], other])
        left.add(room)

    for room in sorted(uses):
        if room not in entered:
            yield from visit(room, [room])


def long_files(root):
    """Yields a line for each file of more than LONGEST_FILE lines."""
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

    def test_folders(self):
        self.assertEqual(list(broken_folders(ROOT)), [])

    def test_circles(self):
        self.assertEqual(list(circles(ROOT)), [])

    def test_length_of_files(self):
        self.assertEqual(list(long_files(ROOT)), [])


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Makes a tree with a header in each folder for others to include."""
        cls.tree = tempfile.TemporaryDirectory()
        cls.root = Path(cls.tree.name)
        for layer, folders in FOLDERS.items():
            for folder in folders:
                header = cls.root / "src" / layer / folder / "thing.h"
                header.parent.mkdir(parents=True, exist_ok=True)
                header.write_text("#pragma once\n")

    @classmethod
    def tearDownClass(cls):
        cls.tree.cleanup()

    def broken(self, rule, files):
        """Returns the lines that a rule yields for the tree with these files."""
        paths = [self.root / "src" / name for name in files]
        try:
            for path, text in zip(paths, files.values()):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(rule(self.root))
        finally:
            for path in paths:
                path.unlink()

    def broken_by(self, name, text):
        """Returns what is wrong with the includes of one header."""
        return self.broken(broken_includes, {name: text})

    def test_include_of_a_later_layer(self):
        for layer, allowed in MAY_INCLUDE.items():
            for other in MAY_INCLUDE:
                if other == layer:
                    continue
                last, first = FOLDERS[layer][-1], FOLDERS[other][0]
                found = self.broken_by(f"{layer}/{last}/a.h", f'#include "{Path(other, first, "thing.h").as_posix()}"\n')
                self.assertEqual(len(found), 0 if other in allowed else 1, (layer, other, found))

    def test_include_of_a_later_folder(self):
        for layer, order in FOLDERS.items():
            for here, folder in enumerate(order):
                for there, other in enumerate(order):
                    name = Path(layer, other, "thing.h").as_posix()
                    found = self.broken_by(Path(layer, folder, "a.h").as_posix(), f'#include "{name}"\n')
                    self.assertEqual(len(found), 1 if there > here else 0, (layer, folder, other, found))

    def test_libtorch_outside_model_and_device(self):
        for layer in MAY_INCLUDE:
            found = self.broken_by(f"{layer}/a.h", "#include <ATen/ATen.h>\n")
            self.assertEqual(len(found), 0 if layer in ("model", "device") else 1, (layer, found))

    def test_torch_torch_h_anywhere(self):
        self.assertEqual(len(self.broken_by("model/core/a.h", "#include <torch/torch.h>\n")), 1)

    def test_mpi_in_base(self):
        self.assertEqual(len(self.broken_by("base/a.h", "#include <mpi.h>\n")), 1)

    def test_include_of_no_file(self):
        self.assertEqual(len(self.broken_by("io/a.h", '#include "thing.h"\n')), 1)

    def test_own_header_not_first(self):
        late = '#include <vector>\n#include "io/thing.h"\n'
        self.assertEqual(len(self.broken(broken_includes, {"io/thing.cpp": late})), 1)

    def test_source_without_a_header(self):
        self.assertEqual(len(self.broken(broken_includes, {"io/a.cpp": '#include "io/thing.h"\n'})), 1)
        self.assertEqual(len(self.broken(broken_includes, {"model/types/a.cpp": "#include <cmath>\n"})), 1)
        files = {"model/types/model_type.h": "", "model/types/a.cpp": '#include "model/types/model_type.h"\n'}
        self.assertEqual(self.broken(broken_includes, files), [])

    def test_folder_without_a_place(self):
        self.assertEqual(len(self.broken(broken_folders, {"io/hdf5/more/a.h": ""})), 1)
        self.assertEqual(len(self.broken(broken_folders, {"io/hdf5/a.h": ""})), 0)

    def test_folder_with_too_many_rooms(self):
        files = {f"base/room{i}.h": "" for i in range(MOST_ROOMS - 1)}  # and thing.h
        self.assertEqual(len(self.broken(broken_folders, files)), 0)
        self.assertEqual(len(self.broken(broken_folders, {**files, "base/one_more.h": "", "base/one_more.cpp": ""})), 1)

    def test_circle(self):
        files = {"io/a.h": "", "io/a.cpp": '#include "io/a.h"\n#include "io/b.h"\n', "io/b.h": '#include "io/c.h"\n',
                 "io/c.h": '#include "io/thing.h"\n'}
        self.assertEqual(self.broken(circles, files), [])
        files["io/c.h"] = '#include "io/a.h"\n'
        self.assertEqual(self.broken(circles, files), ["io/a -> io/b -> io/c -> io/a"])

    def test_long_file(self):
        self.assertEqual(len(self.broken(long_files, {"io/a.cpp": "\n" * 401})), 1)
        self.assertEqual(len(self.broken(long_files, {"io/a.cpp": "\n" * 400})), 0)


if __name__ == "__main__":
    unittest.main()
