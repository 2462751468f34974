"""Paths in the command lines of messages, as a user can paste them into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path


def quoted(path: str | Path) -> str:
    """Return a path as one word of a shell, whatever characters its name has.

    Unquoted, `rm` on a path with a space or an asterisk would remove other files.
    """
    return shlex.quote(str(path))
