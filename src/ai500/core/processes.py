"""Parents and children of processes, as Linux lists them in /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path

AGENT_VARIABLE = "AI500_AGENT_PID"
"""Variable of the environment in which the ranks of a member find its node agent's process."""
_PROCESSES = Path("/proc")


def parent_of(process: int) -> int | None:
    """Return the id of a process's parent; None if the process has ended, or is not listed."""
    return _parent(_PROCESSES / str(process) / "stat")


def children_of(process: int) -> list[int]:
    """List the ids of a process's children."""
    return [
        int(stat.parent.name) for stat in _PROCESSES.glob("[0-9]*/stat") if _parent(stat) == process
    ]


def is_descendant(process: int, *, of: int) -> bool:
    """Return True if a process, or a living ancestor of it, is a child of process `of`."""
    ancestor = parent_of(process)
    while ancestor is not None and ancestor > 0:
        if ancestor == of:
            return True
        ancestor = parent_of(ancestor)
    return False


def _parent(stat: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The command's name, in parentheses, may contain any character.
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    return None
