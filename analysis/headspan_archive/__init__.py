"""Reads archives of keys and values, as `headspan archive encode` writes them: the format of src/io/README.md in numpy. It is
slow, a second or so for each block of 128 tokens, and needs no program."""
from .archive import Archive, ArchiveError
from .codec import Codec

__all__ = ["Archive", "ArchiveError", "Codec"]
