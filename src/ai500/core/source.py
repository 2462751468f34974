"""Location and digest of the source code that is running."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""Folder of the `ai500` package; its parent is on the import path."""
DIE_WITH_PARENT = str(PACKAGE / "core" / "die_with_parent.py")
"""Program that runs a command until its parent dies."""


@cache
def source_sha256() -> str:
    """Hash the names and contents of the package's Python files, in the order of their names.

    The digest depends on the files alone, whether or not they are in a git checkout.
    """
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda path: path.relative_to(PACKAGE).parts):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(PACKAGE).as_posix()} {content}\n".encode())
    return digest.hexdigest()
