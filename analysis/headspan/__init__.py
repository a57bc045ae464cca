"""Results of headspan. Everything else of this distribution builds on this package."""

__version__ = "0.3.0"
