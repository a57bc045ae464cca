"""Grams of any causal language model for headspan: GramAccumulator for values that you capture yourself, and the command
headspan-capture for models that transformers loads."""
from .gram import GramAccumulator

__all__ = ["GramAccumulator"]
