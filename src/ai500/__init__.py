"""HPC AI500: measures, tunes and ranks AI computing systems. The public API is small."""

from __future__ import annotations

from ai500.core import __version__
from ai500.operations import count

__all__ = ["__version__", "count"]
