"""The recipes in packaging/ agree with the source: versions, dependencies, options of CMake, files. Builds nothing."""
import ast
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SPACK = PACKAGING / "spack/spack_repo/headspan/packages/headspan/package.py"
DEBIAN = PACKAGING / "spack/debian/packages.yaml"
CONDA = PACKAGING / "conda/recipe.yaml"
EASYBUILD, = PACKAGING.glob("easybuild/*.eb")
DEFINITIONS = sorted(PACKAGING.glob("apptainer/*.def"))
INSTALL = PACKAGING / "apptainer/install.sh"
RECIPES = [SPACK, DEBIAN, CONDA, CONDA.with_name("build.sh"), EASYBUILD, *DEFINITIONS, INSTALL]


def found(pattern, path):
    return re.findall(pattern, path.read_text(), re.MULTILINE)


class Recipes(unittest.TestCase):
    def test_they_parse(self):
        for path in (SPACK, EASYBUILD):
            ast.parse(path.read_text(), str(path))
        for path in (INSTALL, CONDA.with_name("build.sh")):
            self.assertEqual(subprocess.run(["bash", "-n", path], check=False).returncode, 0, path)

    def test_versions(self):
        version, = found(r"project\(headspan VERSION (\S+)", ROOT / "CMakeLists.txt")
        self.assertEqual(found(r'^  version: "(.*)"', CONDA), [version])
        self.assertEqual(found(r"^version = '(.*)'", EASYBUILD), [version])
        self.assertTrue(EASYBUILD.name.startswith(f"headspan-{version}-"))

    def test_python_packages_are_those_of_pyproject(self):
        line, = found(r"^dependencies = \[(.*)\]", ROOT / "analysis/pyproject.toml")
        needed = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', line))
        self.assertEqual(dict(found(r'depends_on\("py-(?!torch)([\w-]+)@([\d.]+):"', SPACK)), needed)
        run = CONDA.read_text().split("  run:")[1].split("tests:")[0]
        conda = {name.replace("-base", ""): least for name, least in re.findall(r"- ([\w-]+) >=([\d.]+)", run)}
        self.assertEqual(conda, {**needed, "python": found(r'requires-python = ">=(.*)"', ROOT / "analysis/pyproject.toml")[0]})

    def test_cmake(self):
        least, = found(r"cmake_minimum_required\(VERSION ([\d.]+)", ROOT / "CMakeLists.txt")
        self.assertEqual(found(r'"cmake@([\d.]+):"', SPACK) + found(r"- cmake >=([\d.]+)", CONDA), [least] * 2)
        sources = [ROOT / "CMakeLists.txt", *ROOT.glob("src/cmake/*.cmake")]
        options = {name for path in sources for name in found(r"^(?:option|set)\((HEADSPAN_\w+)", path)}
        for path in RECIPES:
            self.assertLessEqual(set(found(r'(?:-D|")(HEADSPAN_\w+)', path)), options, path)

    def test_debian_has_what_spack_needs(self):
        virtual = {"mpi": "openmpi", "blas": "openblas", "lapack": "openblas", "scalapack": "netlib-scalapack", "zlib-api": "zlib"}
        needed = {virtual.get(name, name) for name in found(r'(?:depends_on|extends)\("([\w-]+)', SPACK)}
        there = set(found(r"^  ([\w-]+):$", DEBIAN)) - {"all"}
        self.assertEqual(needed - there, {"c", "cxx", "nccl"})  # compilers are found, and its LibTorch knows no GPUs
        self.assertEqual(there - needed, {"ninja"})

    def test_packages_of_images_are_listed_once(self):
        listed = set(found(r'^  "(\S+) ', ROOT / "jobs/packages.sh"))
        installed = {name for line in found(r"apt-get install (.*?)(?:  #|$)", INSTALL) for name in line.split()}
        self.assertEqual(listed & installed, set())

    def test_files_that_are_named(self):
        for path in [*RECIPES, PACKAGING / "README.md"]:
            for name in found(r"(?<![\w/.])((?:jobs|slurm|src|tests|analysis|packaging)/[\w./-]*[\w-])", path):
                self.assertTrue(name.endswith((".sif", ".tar.gz")) or (ROOT / name).exists(), f"{path}: {name}")

    def test_no_path_or_server_of_a_machine(self):
        for path in PACKAGING.rglob("*"):
            if path.is_file():
                self.assertNotRegex(path.read_text(), r"/work/|/root/|/home/|/tmp/|file:///", path)


if __name__ == "__main__":
    unittest.main()
