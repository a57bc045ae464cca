"""`cmake --install`: what is there, that it works after it was moved, the manual page, and the completions.

usage: test_install.py CMAKE BUILD [unittest's arguments]
"""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]


def run(*command, **more):
    """Returns what a command prints. It must end with exit code 0."""
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False, **more)
    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
    return ended.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_install_")
        cls.addClassCleanup(temporary.cleanup)
        first, cls.prefix = Path(temporary.name) / "first", Path(temporary.name) / "moved"
        run(CMAKE, "--install", BUILD, "--prefix", first)
        first.rename(cls.prefix)
        cls.program = cls.prefix / "bin" / "headspan"
        cls.data = cls.prefix / "share" / "headspan"

    def test_the_program_runs_a_job_that_is_installed(self):
        out = self.prefix / "results"
        run(self.program, "study", "jobs/quickstart.ini", "--model.select", "step30", "--tokens.limit", 2000,
            "--output.directory", out, cwd=self.data)
        self.assertEqual([path.name for path in out.rglob("*.h5")], ["step30.h5"])
        shown = run(sys.executable, "-B", self.prefix / "bin" / "headspan-report", "aggregate", out, "--output", self.prefix / "table")
        self.assertIn("status=done", shown)

    def test_who_builds_the_program_alone_can_install_it(self):
        self.assertRegex(run("ninja", "-C", BUILD, "-t", "query", "headspan"), r"\|\| .*\bmanual\b")

    def test_nothing_names_the_place_of_the_build(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and path != self.program:
                self.assertNotIn(str(BUILD).encode(), path.read_bytes(), path)
        named = run("readelf", "-d", self.program)
        torch = re.search(r"^HEADSPAN_TORCH_DIR:PATH=(.+)$", (BUILD / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE)
        if torch:  # it stays where it is; where jobs/pytorch.sh has put it that is in the source's folder
            named = named.replace(str(Path(torch[1]).parent), "")
        self.assertNotIn(str(SOURCE), named)

    def test_the_program_finds_the_libraries_that_it_was_built_with(self):
        def libraries(program):
            return sorted(re.findall(r"=> (\S+)", run("ldd", program)))
        self.assertEqual(libraries(self.program), libraries(BUILD / "headspan"))

    def test_what_is_installed(self):
        tracked = set(run("git", "-C", SOURCE, "ls-files").split()) if (SOURCE / ".git").exists() else None
        for name in ("LICENSE", "README.md"):
            self.assertEqual(len(list(self.prefix.rglob(name))[:1]), 1, name)
        self.assertTrue(os.access(self.data / "slurm" / "submit.sh", os.X_OK))
        self.assertEqual({path.name for path in (self.data / "jobs").glob("*.ini")},
                         {path.name for path in (SOURCE / "jobs").glob("*.ini")})
        for folder in ("jobs", "slurm", "checkpoints"):
            for path in (self.data / folder).rglob("*"):
                if path.is_file() and tracked is not None:
                    self.assertIn(str(path.relative_to(self.data)), tracked)

    def test_version_names_the_libraries(self):
        lines = run(self.program, "--version").splitlines()
        self.assertRegex(lines[0], r"^headspan \d+\.\d+\.\d+ \(git \S+\)$")
        told = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        self.assertRegex(told["HDF5"], r"^\d+\.\d+\.\d+$")
        for library in ("compiler", "MPI", "LibTorch", "ScaLAPACK", "OpenSSL", "zlib", "Boost", "nlohmann-json", "instructions"):
            self.assertTrue(told[library], library)
        flags = re.search(r"^flags.*$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if flags:
            self.assertEqual("VNNI" in told["instructions"], {"avx512_vnni", "avx512bw", "avx512vl"} <= set(flags.group().split()))

    def test_manual_page(self):
        page = self.prefix / "share" / "man" / "man1" / "headspan.1"
        if shutil.which("groff"):
            warned = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z", page], capture_output=True, text=True, check=False)
            self.assertEqual((warned.returncode, warned.stderr), (0, ""))
        text = page.read_text()
        keys = set(re.findall(r"^\.B ([a-z_]+\.[a-z0-9_]+)$", text.replace("\\-", "-"), re.MULTILINE))
        told = set()
        for command in ("study", "calibrate", "evaluate", "plan", "theory", "archive calibrate", "archive encode", "archive decode"):
            section = ""
            for line in run(self.program, *command.split(), "--help").splitlines():
                section = line[1:-1] if line.startswith("[") else section
                if section and re.match(r"^  [a-z]", line):
                    told.add(f"{section}.{line.split()[0]}")
        self.assertEqual(keys, told)

    def complete(self, *words):
        """Returns what bash offers for the last of the words of a command line."""
        script = self.prefix / "share" / "bash-completion" / "completions" / "headspan"
        body = 'source "$1"; COMP_WORDS=(headspan "${@:2}") COMP_CWORD=$(($# - 1)); _headspan; printf "%s\\n" "${COMPREPLY[@]}"'
        return run("bash", "-c", body, "bash", script, *words, cwd=self.data).split()

    def test_bash_completion(self):
        self.assertEqual(self.complete("st"), ["study"])
        self.assertEqual(self.complete("archive", ""), ["calibrate", "encode", "decode"])
        self.assertEqual(self.complete("study", "--run.h"), ["--run.heartbeat_seconds"])
        self.assertEqual(self.complete("archive", "decode", "--archive.l"), ["--archive.layers"])
        self.assertEqual(self.complete("study", "--run.device", "c"), ["cpu", "cuda"])
        self.assertEqual(self.complete("study", "--predict.precision", "=", "f"), ["float64", "float32"])
        self.assertEqual(self.complete("study", "jobs/quick"), ["jobs/quickstart.ini"])
        self.assertEqual(self.complete("study", "--tokens.path", "=", "jobs/quick"), ["jobs/quickstart.ini"])
        self.assertEqual(self.complete("inspect", "--u"), [])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_zsh_completion(self):
        """Presses Tab in a zsh of its own."""
        pid, shell = pty.fork()
        if pid == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "vt100"})
        self.addCleanup(os.close, shell)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)

        def wait_for(text):
            shown, until = b"", time.monotonic() + 20
            while text not in re.sub(rb"\x1b\[[0-9;]*[A-Za-z]|\0", b"", shown):
                self.assertLess(time.monotonic(), until, (text, shown.replace(b"\0", b"")))
                if select.select([shell], [], [], 0.1)[0]:
                    shown += os.read(shell, 65536)
        functions = self.prefix / "share" / "zsh" / "site-functions"
        os.write(shell, f"PS1=; fpath=({functions} $fpath); autoload -U compinit; compinit -u -D; print RE''ADY\n".encode())
        wait_for(b"READY")
        for typed, completed in (("stu", b"headspan study "), ("study --run.hea", b"--run.heartbeat_seconds="),
                                 ("archive enc", b"ode "), ("study --run.device c", b"cpu   cuda"),
                                 ("archive encode --archive.fir", b"--archive.first_position=")):
            os.write(shell, f"headspan {typed}\t".encode())
            wait_for(completed)
            os.write(shell, b"\x15print DO''NE\n")  # ^U: clears the line
            wait_for(b"DONE")


if __name__ == "__main__":
    CMAKE, BUILD = sys.argv[1], Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
