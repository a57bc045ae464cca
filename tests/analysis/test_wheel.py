"""The wheel of analysis/ builds without the network, by the command of the page, and holds every file of the packages in the
tree, the version and the commands."""
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from samples import ANALYSIS

import headspan

COMMANDS = ("headspan-report", "headspan-harness", "headspan-capture")


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_wheel_")
        cls.addClassCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        shutil.copytree(ANALYSIS, folder / "analysis", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        offline = ["--no-build-isolation", "--no-deps", "--no-index"]
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", *offline, "--wheel-dir", "wheels", "./analysis"], cwd=folder,
                       check=True, timeout=120)
        cls.path, = (folder / "wheels").iterdir()
        cls.wheel = cls.enterClassContext(zipfile.ZipFile(cls.path))

    def test_is_for_all_pythons_and_machines(self):
        self.assertEqual(self.path.name, f"headspan-{headspan.__version__}-py3-none-any.whl")

    def test_holds_every_file(self):
        here = {path.relative_to(ANALYSIS).as_posix() for path in ANALYSIS.glob("headspan*/**/*")
                if path.is_file() and "__pycache__" not in path.parts}
        there = {name for name in self.wheel.namelist() if ".dist-info/" not in name}
        self.assertEqual(there ^ here, set())
        self.assertIn("headspan_report/templates/uPlot/LICENSE", there)

    def test_names_the_commands(self):
        told = next(self.wheel.read(name).decode() for name in self.wheel.namelist() if name.endswith("/entry_points.txt"))
        for command in COMMANDS:
            self.assertIn(f"{command} = {command.replace('-', '_')}.__main__:main", told)


if __name__ == "__main__":
    unittest.main()
