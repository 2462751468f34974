"""Values that the kernel shows as small files."""

from __future__ import annotations

from pathlib import Path


def text(path: Path) -> str | None:
    """What a file says; None: it is not there, or may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> float | None:
    """The number in a file (a unit may follow it); None: there is none."""
    words = (text(path) or "").split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None
