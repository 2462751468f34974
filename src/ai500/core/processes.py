"""Parents and children of processes, as Linux lists them in /proc, and the cores they may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

AGENT_VARIABLE = "AI500_AGENT_PID"
"""Variable of the environment in which the ranks of a member find its node agent's process."""
_PROCESSES = Path("/proc")


def usable_cores() -> tuple[int, ...]:
    """Return the CPU cores this process may run on, which a job may limit; on macOS all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def is_running(process: str) -> bool:
    """Return True if a process of this host has this id."""
    number = int(process) if process.isdigit() else 0
    try:
        os.kill(number, 0)  # no signal: only the check
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # another user's
    return number > 0  # 0 is the caller's group


def parent_of(process: int) -> int | None:
    """Return the id of a process's parent; None if the process has ended, or is not listed."""
    return _parent(_PROCESSES / str(process) / "stat")


def children_of(process: int) -> list[int]:
    """List the ids of a process's children."""
    return [
        int(stat.parent.name) for stat in _PROCESSES.glob("[0-9]*/stat") if _parent(stat) == process
    ]


def resident_bytes(process: int) -> int | None:
    """Return the memory of a process and its descendants; None: not known.

    Pages that they share (libraries) count for each.
    """
    children: dict[int, list[int]] = {}
    for stat in _PROCESSES.glob("[0-9]*/stat"):
        if (parent := _parent(stat)) is not None:
            children.setdefault(parent, []).append(int(stat.parent.name))
    pages, waiting = 0, [process]
    while waiting:
        waiting += children.get(current := waiting.pop(), [])
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may end meanwhile
            pages += int((_PROCESSES / str(current) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") or None


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
