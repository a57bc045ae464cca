"""Archives of keys and values, as `headspan archive encode` writes them: a reader in numpy, after src/io/README.md, which is
slow, a second or so for each block of 128 tokens, and needs no program; and caches of transformers to and from files
(headspan_archive.cache)."""
from .archive import Archive, ArchiveError
from .codec import Codec

__all__ = ["Archive", "ArchiveError", "Codec"]
