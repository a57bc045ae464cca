"""What headspan-report opens: only regular files, and of HDF5 only what the file itself holds. For results and tables;
test_compression.py checks the same for plans and summaries."""
import os
import tempfile
import unittest
from pathlib import Path

import h5py
from samples import layers, lead_away, random_stream, replace_by_fifo, run, within, write_done, write_result

from headspan.error import InputError
from headspan_report.aggregate import aggregate, read_netcdf

LAYER = layers(2, 2)


class Opening(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headspan_opening_")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.results = self.folder / "results"
        self.good, self.bad = (write_result(self.results, f"step{step}", {"k": random_stream(LAYER, step)}, step=step)
                               for step in (0, 30))

    def check(self, told):
        """Checks that the bad result is refused, and the good one used."""
        found = aggregate([self.results])
        self.assertEqual([row.path for row in found.rows], [self.good])
        self.assertEqual(len(found.refused), 1, found.refused)
        self.assertIn(f"{self.bad}: {told}", str(found.refused[0]))

    def edit(self, change):
        with h5py.File(self.bad, "r+") as file:
            change(file)
        write_done(self.bad)

    def test_done_that_is_a_fifo(self):
        replace_by_fifo(Path(f"{self.bad}.done"))
        with within(60):
            self.check(f"cannot be read ({self.bad}.done is no regular file)")

    def test_result_that_is_a_fifo(self):
        self.bad.write_bytes(b"")
        write_done(self.bad)
        replace_by_fifo(self.bad)
        with within(60):
            self.check(f"cannot be read ({self.bad} is no regular file)")

    def test_what_is_not_held_in_the_file(self):
        """With any kind of file in place of the other one."""
        pipe = self.folder / "pipe"
        pipe.write_bytes(b"")
        replace_by_fifo(pipe)
        other = write_result(self.folder / "other", "x", {"k": random_stream(LAYER, 7)})
        for outside in (other, pipe, self.folder / "none.h5"):
            with h5py.File(self.bad, "r+") as file:
                for told in lead_away(file, "k/effective_rank", outside):
                    file.flush()
                    write_done(self.bad)
                    with within(60):
                        self.check(f"{told}; ")

    def test_link_within_the_file(self):
        def change(file):
            file["kept/rank"] = file["k/effective_rank"][...]
            del file["k/effective_rank"]
            file["k/effective_rank"] = h5py.SoftLink("/kept/rank")
        self.edit(change)
        self.assertEqual(len(aggregate([self.results]).rows), 2)

    def test_group_through_another_file(self):
        """A link within the file is followed only after it is known that nothing leads out of the file."""
        def change(file):
            file.move("k", "away")
            file["k"], file["more/z"] = h5py.SoftLink("/more/z/k"), h5py.ExternalLink("pipe", "/")
        self.edit(change)
        os.mkfifo(self.bad.with_name("pipe"))
        with within(60):
            self.check("more/z: is a link to another file")

    def test_names_that_break_the_line(self):
        self.edit(lambda file: file.update({"a\nstatus=done\x1b[1m": h5py.SoftLink("/b")}))
        self.check("a\\nstatus=done\\x1b[1m: is a link to nothing")

    def test_what_is_not_held_in_the_table(self):
        path = self.folder / "emergence.nc"
        run("aggregate", self.results, "--output", path)
        for told in self.edits(path):
            with within(60), self.assertRaises(InputError) as caught:
                read_netcdf(path)
            self.assertIn(f"{path}: {told}; ", str(caught.exception))
        replace_by_fifo(path)
        with within(60):
            done = run("plot", path, "--output", self.folder / "figures")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{path}: cannot be read ({path} is no regular file)", done.stderr)

    def edits(self, path):
        with h5py.File(path, "r+") as file:
            for told in lead_away(file, "stray", self.folder / "none.h5"):
                file.flush()
                yield told


if __name__ == "__main__":
    unittest.main()
