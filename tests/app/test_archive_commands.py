"""archive encode and archive decode against numpy: what is lost, what is exact, parts, ranks, and what is refused.

usage: test_archive_commands.py HEADSPAN MPIEXEC [unittest's arguments]
"""
import os
import re
import struct
import sys
import zlib
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
import headspan_archive
from forward import read_safetensors, write_safetensors
from kv_codec import EXACT, HEADS, LAYERS, Codec, D
from program import StudyTest, main

TOKENS, FIRST, DOCUMENTS = 300, 7, (0, 140)
STEP_OF_4_BITS = -48  # by the codec's curve, between 6 bits at -80 and 2 bits at -16


class Archive(StudyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(3)
        cls.codec = Codec(cls.folder / "codec.h5")
        cls.tensors = {stream: rng.normal(size=(LAYERS, HEADS, TOKENS, D)).astype("<f4") * 2 for stream in "kv"}
        cls.input = cls.folder / "kv.safetensors"
        write_safetensors(cls.input, cls.tensors)

    def run_archive(self, ranks, command, code=0, **keys):
        run = self.run_program(ranks, "archive", command, *(f"--archive.{key}={value}" for key, value in keys.items() if value is not None))
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout if code == 0 else run.stderr

    def encode(self, ranks, name, **more):
        path = self.folder / name
        keys = {"codec": self.codec.path, "input": self.input, "output": path, "first_position": FIRST,
                "documents": ",".join(map(str, DOCUMENTS)), "bits": 4, **more}
        return path, self.run_archive(ranks, "encode", **keys)

    def decode(self, ranks, archive, name, **more):
        path = self.folder / name
        self.run_archive(ranks, "decode", codec=self.codec.path, input=archive, output=path, **more)
        return path

    @staticmethod
    def read(path):
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                return {stream: file[stream][...] for stream in "kv"}
        return read_safetensors(path)

    @staticmethod
    def of_schema_2(archive):
        size, = struct.unpack("<I", archive[8:12])
        header = archive[16:16 + size].replace(b'"headspan_archive":"1.0"', b'"headspan_archive":"2.0"')
        return archive[:12] + struct.pack("<I", zlib.crc32(header)) + header + archive[16 + size:]

    def test_coefficients_are_off_by_less_than_a_step(self):
        archive, printed = self.encode(1, "a.hsa")
        self.assertIn(f" step={STEP_OF_4_BITS} ", printed)
        decoded = self.read(self.decode(1, archive, "a.safetensors"))
        positions = np.arange(FIRST, FIRST + TOKENS)
        for stream in "kv":
            exact = np.isin(np.arange(TOKENS), [document + i for document in DOCUMENTS for i in range(EXACT)])
            np.testing.assert_array_equal(decoded[stream][:, :, exact], self.tensors[stream][:, :, exact])
            pairs = zip(*(self.codec.coefficients(stream, values[stream].astype(float), positions)
                          for values in (decoded, self.tensors)))
            for found, expected in pairs:
                errors = np.abs(found - expected)[~exact] / 2 ** (STEP_OF_4_BITS / 16)
                self.assertLess(errors.max(), 0.62 + 0.1 + 0.01)
                self.assertGreater(errors.max(), 0.5, "nothing was rounded")

    def test_a_second_decoder(self):
        """The one in numpy of analysis/, which knows the format alone: at a fine step, where levels are escaped and shifted. The
        program may round coefficients to sixteenths of a step."""
        positions = FIRST + np.arange(TOKENS)
        for name, keys in (("coarse", {"bits": 2.5}), ("fine", {"bits": 10.5})):
            archive, _ = self.encode(1, f"{name}.hsa", **keys)
            opened = headspan_archive.Archive(archive)
            expected = opened.decode(headspan_archive.Codec(self.codec.path))
            found = self.read(self.decode(1, archive, f"{name}.safetensors"))
            for stream in "kv":
                pairs = zip(*(self.codec.coefficients(stream, values[stream].astype(float), positions) for values in (found, expected)))
                for ours, theirs in pairs:
                    self.assertLess(np.abs(ours - theirs).max(), 2 ** (opened.header["step"] / 16) / 28 + 2e-4)
        cut = self.folder / "cut_off.hsa"
        cut.write_bytes(archive.read_bytes()[:-1])
        with self.assertRaisesRegex(headspan_archive.ArchiveError, "is cut off or damaged"):
            headspan_archive.Archive(cut)

    def test_bytes_and_numbers_do_not_depend_on_ranks_and_threads(self):
        archive, _ = self.encode(1, "one.hsa")
        decoded = self.decode(1, archive, "one.safetensors").read_bytes()
        for ranks, threads in ((2, 1), (3, 1), (4, 1), (1, 2), (2, 3)):
            with self.subTest(ranks=ranks, threads=threads), mock.patch.dict(os.environ, OMP_NUM_THREADS=str(threads)):
                other, _ = self.encode(ranks, f"{ranks}x{threads}.hsa")
                self.assertEqual(other.read_bytes(), archive.read_bytes())
                self.assertEqual(self.decode(ranks, archive, f"{ranks}x{threads}.safetensors").read_bytes(), decoded)

    def test_parts(self):
        archive, _ = self.encode(1, "parts.hsa")
        whole = self.read(self.decode(1, archive, "whole.safetensors"))
        for number, (layers, tokens) in enumerate((((1, 3), (0, TOKENS)), ((0, LAYERS), (130, 145)), ((4, 5), (2, 299)))):
            for ending, ranks in (("safetensors", 1 + number), ("h5", 1)):
                part = self.read(self.decode(ranks, archive, f"part{number}.{ending}", layers="{}:{}".format(*layers),
                                             tokens="{}:{}".format(*tokens)))
                for stream in "kv":
                    np.testing.assert_array_equal(part[stream], whole[stream][slice(*layers), :, slice(*tokens)])

    def test_types(self):
        half = {stream: values.astype("<f2") for stream, values in self.tensors.items()}
        with h5py.File(self.folder / "half.h5", "w") as file:
            file["k"], file["v"] = half["k"], half["v"]
        write_safetensors(self.folder / "single.safetensors", half)
        decoded = []
        for name, ranks in (("half.h5", 2), ("single.safetensors", 1)):
            archive, _ = self.encode(ranks, f"{name}.hsa", input=self.folder / name)
            decoded.append(self.read(self.decode(1, archive, f"decoded_{name}")))
        self.assertEqual(decoded[0]["k"].dtype, np.float16)
        for stream in "kv":
            np.testing.assert_array_equal(decoded[0][stream], decoded[1][stream].astype("<f2"))
            np.testing.assert_array_equal(decoded[0][stream][:, :, :EXACT], half[stream][:, :, :EXACT])

    def test_rate(self):
        """The archive is as large as its summary says, and a smaller loss takes more bytes."""
        sizes = []
        for name, more in (("kl3", {"kl": 1e-3}), ("kl4", {"kl": 1e-4}), ("kl5", {"kl": 1e-5})):
            path, printed = self.encode(1, name, bits=None, **more)
            bits = float(re.search(r" bits=(\S+)", printed)[1])
            self.assertAlmostEqual(bits, 8 * path.stat().st_size / (2 * LAYERS * HEADS * TOKENS * D), 3)
            sizes.append(bits)
            step = int(re.search(r" step=(\S+)", printed)[1])
            self.assertAlmostEqual(step, {"kl3": -48, "kl4": -80, "kl5": -120}[name], delta=1)
        self.assertEqual(sizes, sorted(sizes))

    def test_refusals(self):
        archive, _ = self.encode(1, "good.hsa")
        whole = archive.read_bytes()
        other = Codec(self.folder / "other.h5", seed=1).path
        flipped = bytearray(whole)
        flipped[-100] ^= 4
        newer = self.of_schema_2(whole)
        for name, content in (("cut", whole[:-20]), ("flipped", flipped), ("newer", newer), ("none", b"nothing")):
            (self.folder / f"{name}.hsa").write_bytes(content)
        bad = {stream: values.copy() for stream, values in self.tensors.items()}
        bad["v"][2, 1, 200, 3] = np.nan
        write_safetensors(self.folder / "nan.safetensors", bad)
        write_safetensors(self.folder / "fewer.safetensors", {stream: values[:4] for stream, values in self.tensors.items()})
        out = self.folder / "never.safetensors"
        encode, decode = {"codec": self.codec.path, "input": self.input}, {"codec": self.codec.path, "input": archive}
        before = {path.name for path in self.folder.iterdir()}
        for command, keys, message in (
                ("decode", {**decode, "input": self.folder / "cut.hsa"}, r"cut.hsa: is cut off; "),
                ("decode", {**decode, "input": self.folder / "flipped.hsa"}, r"flipped.hsa: block = \d+: is damaged; "),
                ("decode", {**decode, "input": self.folder / "newer.hsa"}, r"newer.hsa: headspan_archive = 2.0: is not known; "),
                ("decode", {**decode, "input": self.folder / "none.hsa"}, r"none.hsa: is no archive; "),
                ("decode", {**decode, "codec": other}, r"good.hsa: codec_sha256 = \w+: is not that of .*other.h5; give the codec"),
                ("decode", {**decode, "tokens": "10:301"}, r"archive.tokens = 10:301: is beyond the archive; it has 300 tokens"),
                ("decode", {**decode, "layers": "5:6"}, r"archive.layers = 5:6: is beyond the archive; it has 5 layers"),
                ("decode", {**decode, "layers": "3:3"}, r"archive.layers = 3:3: is an empty range"),
                ("decode", {**decode, "bits": 2}, r"archive.bits = 2: is not for archive decode"),
                ("decode", {**decode, "output": self.folder / "x.pt"}, r"archive.output = .*x.pt: names no format"),
                ("decode", {**decode, "output": archive}, r"archive.output = .*: would replace"),
                ("decode", {"input": archive}, r"archive.codec: is missing"),
                ("encode", {**encode, "input": self.folder / "nan.safetensors"}, r"nan.safetensors: v.*nan"),
                ("encode", {**encode, "input": self.folder / "fewer.safetensors"}, r"fewer.safetensors: layers = 4: is not that of the "),
                ("encode", {**encode, "bits": 12}, r"archive.bits = 12: is beyond what the codec was measured for; give 2 to 11"),
                ("encode", {**encode, "bits": 4, "kl": 0.001}, r"archive.kl = 0.001: is given beside archive.bits"),
                ("encode", {**encode, "kl": 1}, r"archive.kl = 1: is beyond"),
                ("encode", {**encode, "documents": "0,300"}, r"archive.documents = 300: is no token of "),
                ("encode", {**encode, "tokens": "0:4"}, r"archive.tokens = 0:4: is not for archive encode"),
                ("encode", {**encode, "input": archive}, r"good.hsa: "),
                ("encode", {**encode, "codec": self.input}, r"kv.safetensors: cannot be read as HDF5")):
            for ranks in (1, 3) if command == "decode" and "flipped" in str(keys["input"]) else (1,):
                with self.subTest(command=command, ranks=ranks, **keys):
                    printed = self.run_archive(ranks, command, 2, **{"output": out, **keys})
                    self.assertRegex(printed, "headspan: .*" + message)
                    self.assertEqual(len(re.findall("^headspan: (?!notice|warning)", printed, re.M)), 1, printed)
        self.assertEqual({path.name for path in self.folder.iterdir()}, before)


if __name__ == "__main__":
    main()
