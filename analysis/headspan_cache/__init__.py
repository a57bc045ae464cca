"""A KV cache for transformers that holds what a plan of `headspan calibrate` stores: packed codes instead of keys and values.
It saves memory, not time: every step decodes the whole cache with PyTorch."""
from .cache import HeadspanCache

__all__ = ["HeadspanCache"]
