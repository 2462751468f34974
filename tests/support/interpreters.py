"""The interpreters of frameworks other than PyTorch, which the Makefile makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.commands import REPOSITORY


def interpreter(framework: str) -> Path:
    """Return the framework's interpreter; the test fails where it is missing."""
    stated = os.environ.get(f"AI500_{framework.upper()}_PYTHON")
    python = Path(stated) if stated else REPOSITORY / f".venv-{framework}" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"no {python}: run `make .venv-{framework}`")
    return python
