"""Which source code is running: one digest of the package's files, whatever git knows of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent


@cache
def source_sha256() -> str:
    """Over the names and contents of the package's Python files, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda path: path.relative_to(PACKAGE).parts):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(PACKAGE).as_posix()} {content}\n".encode())
    return digest.hexdigest()
