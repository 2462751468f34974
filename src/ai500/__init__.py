"""HPC AI500: measure, tune and rank AI computing systems.

The names of `ai500.api`, loaded on first use, are the public API; everything else is private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ai500.api import *  # noqa: F403 - the same names, for type checkers


def __getattr__(name: str) -> Any:
    """Load a name of the public API on first use (PEP 562)."""
    api = import_module("ai500.api")
    if name not in api.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(api, name)


def __dir__() -> list[str]:
    """List the names of the public API."""
    names: list[str] = import_module("ai500.api").__all__
    return names
