"""HPC AI500: measures, tunes and ranks AI computing systems. The public API is small."""

from __future__ import annotations

from ai500.operations import count

__version__ = "0.1.0"
__all__ = ["__version__", "count"]
