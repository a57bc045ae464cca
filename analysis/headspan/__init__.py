"""Results of headspan in Python: headspan.open(path). Everything else of this distribution builds on this package."""
from .error import InputError

__all__ = ["InputError", "open"]
__version__ = "0.3.0"


def open(path):
    """Returns the results.Result at `path`, a file that `headspan study` wrote. Raises InputError if it is unfinished,
    damaged, no result, or of a newer schema."""
    from .results import Result  # loads xarray, which takes a second
    return Result(path)
