"""An archive of the keys and values of one sequence: checks its bytes, and decodes them block by block."""
import json
import struct
import zlib
from pathlib import Path

import numpy as np

from .codec import PER_OCTAVE

LANES, LOW, TOKENS, PIECES = 8, 1 << 15, 128, (12, 12, 8)
TYPES = {"float16": "<f2", "float32": "<f4", "bfloat16": "<u2"}


class ArchiveError(ValueError):
    """An archive that is none, is damaged, or is of another codec."""


class Coder:
    """Eight rANS coders that take turns over one list of words."""

    def __init__(self, block, tables):
        if len(block) < 4 * LANES or len(block) % 2:
            raise ArchiveError("a block is cut off")
        self.tables, self.next = tables, 0
        self.states = np.frombuffer(block[:4 * LANES], "<u4").astype(np.int64)
        self.words = np.frombuffer(block[4 * LANES:], "<u2").astype(np.int64)

    def fill(self, lanes):
        low = lanes[self.states[lanes] < LOW]
        words = self.words[self.next:self.next + len(low)]
        if len(words) < len(low):
            raise ArchiveError("a block ends too early")
        self.states[low] = self.states[low] << 16 | words
        self.next += len(low)

    def symbols(self, models):
        """Returns a symbol of each of these tables."""
        tables, found = self.tables, np.empty(len(models), np.int64)
        for first in range(0, len(models), LANES):
            of_round = models[first:first + LANES]
            lanes = np.arange(len(of_round))
            slot = self.states[lanes] % 4096
            symbol = tables.symbol_at[of_round, slot]
            self.states[lanes] = (tables.slots[of_round, symbol] * (self.states[lanes] >> 12) + slot
                                  - tables.first[of_round, symbol])
            self.fill(lanes)
            found[first:first + LANES] = symbol
        return found

    def bits(self, count, lane):
        value = int(self.states[lane]) & ((1 << count) - 1)
        self.states[lane] >>= count
        self.fill(np.array([lane]))
        return value

    def check_end(self):
        if self.next != len(self.words) or np.any(self.states != LOW):
            raise ArchiveError("a block does not end as it should")


class Archive:
    """Opens an archive and checks every byte of it."""

    def __init__(self, path):
        raw = Path(path).read_bytes()
        if raw[:8] != b"hsarchiv":
            raise ArchiveError(f"{path}: is no archive")
        parts, offset = [], 8
        while offset < len(raw):
            size, checksum = struct.unpack_from("<II", raw.ljust(offset + 8), offset)
            part = raw[offset + 8:offset + 8 + size]
            if len(part) < size or zlib.crc32(part) != checksum:
                raise ArchiveError(f"{path}: is cut off or damaged")
            parts.append(part)
            offset += 8 + size
        self.path, self.header, self.blocks = path, json.loads(parts[0]), parts[1:]
        if not self.header["headspan_archive"].startswith("1."):
            raise ArchiveError(f"{path}: headspan_archive = {self.header['headspan_archive']}: is not known")
        if len(self.blocks) != self.header["blocks"]:
            raise ArchiveError(f"{path}: has not as many blocks as its header says")

    def decode(self, codec):
        """Returns {"k", "v"}: [layer, head, token, d] in the archive's type, bfloat16 as float32."""
        header = self.header
        if header["codec_sha256"] != codec.sha256:
            raise ArchiveError(f"{self.path}: was written with another codec")
        shape = header["layers"], header["kv_heads"], header["tokens"], header["head_size"]
        found = {stream: np.empty(shape, np.float32) for stream in "kv"}
        exact = header["exact"]
        coded = np.setdiff1d(np.arange(header["tokens"]), exact)
        for number, first in enumerate(range(0, len(coded), TOKENS)):
            tokens = coded[first:first + TOKENS]
            for g, group in enumerate(codec.groups):
                block = self.blocks[1 + number * len(codec.groups) + g]
                values = codec.values_of(group, self.coefficients(block, codec, group, len(tokens)),
                                         header["first_position"] + tokens)
                layers = slice(group.first_layer, group.first_layer + group.layers)
                found[group.stream][layers, :, tokens] = values
        self.set_exact(found, exact)
        if header["type"] == "bfloat16":
            return {stream: round_to_bfloat16(values) for stream, values in found.items()}
        return {stream: values.astype(TYPES[header["type"]]) for stream, values in found.items()}

    def set_exact(self, found, exact):
        header = self.header
        raw = np.frombuffer(self.blocks[0], TYPES[header["type"]])
        values = (raw.astype(np.uint32) << 16).view(np.float32) if header["type"] == "bfloat16" else raw
        shape = 2, header["layers"], len(exact), header["kv_heads"], header["head_size"]
        for stream, of_stream in zip("kv", values.reshape(shape)):
            found[stream][:, :, exact] = of_stream.transpose(0, 2, 1, 3)

    def coefficients(self, block, codec, group, tokens):
        """Returns the coefficients of a block: [tokens, n]."""
        tables, step = codec.tables, self.header["step"]
        coder = Coder(block, tables)
        classes = coder.symbols(np.full(tokens, tables.classes))
        models = codec.models_of(group, step)
        found = np.zeros((models.shape[1], tokens), np.float32)
        for column in np.flatnonzero((models != tables.nothing).any(0)):
            of_tokens = models[classes, column]
            symbols = coder.symbols(of_tokens)
            found[column] = tables.values[of_tokens, symbols]
            high = symbols - tables.most[of_tokens]
            escaped, shifted = high > tables.most[of_tokens], tables.shift[of_tokens] > 0
            escaped &= of_tokens != tables.nothing
            for t in np.flatnonzero(escaped | shifted):
                found[column, t] = self.level(coder, int(high[t]), bool(escaped[t]), int(tables.shift[of_tokens[t]]), int(t) % LANES)
        coder.check_end()
        return found.T * np.float32(2 ** (step / PER_OCTAVE))

    @staticmethod
    def level(coder, high, escaped, shift, lane):
        if not escaped:
            return high << shift | coder.bits(shift, lane)
        level = 0
        for bits in PIECES:
            level = level << bits | coder.bits(bits, lane)
        return level - (level >> 31 << 32)  # of 32 bits, the first of which is the sign


def round_to_bfloat16(values):
    """Returns float32 numbers rounded to those that bfloat16 has."""
    bits = values.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
