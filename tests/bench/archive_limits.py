"""How far archives are from what could be, on the keys and values of one text: bits of a number beside the Gaussian bound at
the same error, by stream and group of layers; and what general compressors make of the same bytes.

The bound is reverse water-filling (Cover and Thomas, 10.3.3) with the variances that the codec has of its coefficients: no
code of independent normal numbers with these variances takes fewer bits for as small a squared error of coefficients.
"by class": of numbers that are normal within the class of their token, whose class is known.

usage: archive_limits.py HEADSPAN CODEC KV.safetensors [KVTC.codec]
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))
from forward import read_safetensors
from headspan_archive import Archive, Codec
from headspan_archive.codec import rotate

BITS = (0.25, 0.5, 1, 2, 4, 8)
SHARES = np.diff([0, 0.1, 0.25, 0.45, 0.65, 0.85, 0.95, 0.99, 1])  # of tokens in the classes of a codec
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(program, command, **keys):
    subprocess.run([program, "archive", command, *(f"--archive.{key}={value}" for key, value in keys.items())], check=True,
                   stdout=subprocess.DEVNULL, env=ENVIRONMENT)


def water_filling(variances, weights, error):
    """Returns the bits of all numbers whose errors sum to `error`: min(variance, level) of each, by weight."""
    low, high = 0.0, variances.max()
    for _ in range(100):
        level = (low + high) / 2
        low, high = (level, high) if (weights * np.minimum(variances, level)).sum() < error else (low, level)
    return (weights * np.maximum(0, np.log2(np.maximum(variances, 1e-300) / level)) / 2).sum()


class Limits:
    def __init__(self, program, codec, tensors, folder):
        self.program, self.path, self.folder = program, codec, folder
        self.codec, self.input = Codec(codec), tensors
        self.exact = read_safetensors(tensors)
        self.inverses = [np.linalg.pinv(group.basis.astype(float)) for group in self.codec.groups]  # of coefficients
        with h5py.File(codec) as file:
            self.measured = file["curve/bits"][...]
            self.whitening = {stream: np.concatenate([file[stream][str(group)]["whitening"][...].astype(float)
                                                      for group in range(len(file[stream]))]) for stream in "kv"}

    def errors(self, decoded, coded):
        """Returns the squared errors of a token's coefficients, of each group."""
        whitened = {}
        for stream in "kv":
            difference = decoded[stream].astype(float) - self.exact[stream].astype(float)
            if stream == "k":
                for layer, rule in enumerate(self.codec.rotary_of_layer):
                    if rule >= 0:
                        rotate(difference[layer], -np.arange(difference.shape[2]), *self.codec.rotary[rule])
            whitened[stream] = np.einsum("lhti,lhij->tlhj", difference[:, :, coded], self.whitening[stream])
        for group, inverse in zip(self.codec.groups, self.inverses):
            rows = whitened[group.stream][:, group.first_layer:group.first_layer + group.layers].reshape(len(coded), -1)
            yield np.square(rows @ inverse).sum() / len(coded)

    def rows(self, bits):
        """Yields stream, layers, bits of a number, those of the two bounds."""
        archive_path, decoded_path = self.folder / "a.hsa", self.folder / "a.safetensors"
        run(self.program, "encode", codec=self.path, input=self.input, output=archive_path, bits=bits)
        run(self.program, "decode", codec=self.path, input=archive_path, output=decoded_path)
        archive = Archive(archive_path)
        coded = np.setdiff1d(np.arange(archive.header["tokens"]), archive.header["exact"])
        groups = self.codec.groups
        for g, (group, error) in enumerate(zip(groups, self.errors(read_safetensors(decoded_path), coded))):
            columns = group.basis.shape[1]
            size = sum(len(block) for block in archive.blocks[1 + g::len(groups)])
            of_classes = 4.0 ** (group.deviations / 16)  # [classes, n]
            variances = SHARES @ of_classes
            yield (group.stream, group.first_layer, group.first_layer + group.layers - 1, 8 * size / len(coded) / columns,
                   water_filling(variances, np.ones(len(variances)), error) / columns,
                   water_filling(of_classes, SHARES[:, None] * np.ones(of_classes.shape), error) / columns)


def print_limits(limits):
    for bits in np.unique(np.clip(BITS, limits.measured.min() * 1.001, limits.measured.max() * 0.999)):
        print(f"\n{bits:.2f} bits asked\nstream layers  bits   bound  more   bound by class  more")
        rows = list(limits.rows(bits))
        for stream, first, last, *values in [*rows, ("both", 0, rows[-1][2], *np.mean([row[3:] for row in rows], 0))]:
            found, bound, by_class = values
            print(f"{stream:6} {first:2}..{last:2} {found:6.3f} {bound:6.3f} {found - bound:6.3f} {by_class:9.3f} {found - by_class:11.3f}")


def print_general(tensors, folder):
    exact = read_safetensors(tensors)
    numbers = np.concatenate([exact[stream].astype("<f2").ravel() for stream in "kv"])
    raw = numbers.tobytes()
    print(f"\n{len(raw) / 1e6:.1f} MB of keys and values in float16")
    copy = numbers.copy()
    started = time.perf_counter()
    np.copyto(copy, numbers)
    print(f"memcpy            {len(raw) / 1e6 / (time.perf_counter() - started):8.0f} MB/s")
    for name, data in (("as they are", raw), ("upper bytes first", numbers.view("u1").reshape(-1, 2).T.tobytes())):
        path = folder / "raw"
        path.write_bytes(data)
        for command in (["zstd", "-3", "-q", "-f", path, "-o", folder / "z"], ["zstd", "-d", "-q", "-f", folder / "z", "-o", path]):
            started = time.perf_counter()
            subprocess.run(command, check=True)
            seconds = time.perf_counter() - started
            print(f"zstd {command[1]} {name:18} {len(raw) / 1e6 / seconds:8.0f} MB/s, {16 * (folder / 'z').stat().st_size / len(raw):.2f} "
                  "bits a number")


def print_kvtc(program, codec, tensors, folder):
    import zstandard
    print("\nKVTC's bytes in DEFLATE, and in zstd 3 and 19, block by block, in bits of a number")
    for bits in (0.5, 1, 2, 4):
        run(program, "encode", codec=codec, input=tensors, output=folder / "b.hsa", bits=bits)
        archive = Archive(folder / "b.hsa")
        header, blocks = archive.header, [zlib.decompress(block) for block in archive.blocks[1:]]
        numbers = 2 * header["layers"] * header["kv_heads"] * header["head_size"] * (header["tokens"] - len(header["exact"]))
        sizes = [sum(map(len, archive.blocks[1:])), *(sum(len(zstandard.compress(block, level)) for block in blocks) for level in (3, 19))]
        print(f"{bits:4} asked:", *(f"{8 * size / numbers:7.3f}" for size in sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("program", "codec", "tensors"):
        parser.add_argument(name)
    parser.add_argument("kvtc", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_limits(Limits(given.program, given.codec, given.tensors, Path(folder)))
        print_general(given.tensors, Path(folder))
        if given.kvtc:
            print_kvtc(given.program, given.kvtc, given.tensors, Path(folder))


if __name__ == "__main__":
    main()
