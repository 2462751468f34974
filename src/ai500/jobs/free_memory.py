"""Memory that is free for another process: of the machine, and in this control group's limit."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ai500.jobs.memory_kills import OWN_GROUPS, SYSTEM, memory_groups

MACHINE = Path("/proc/meminfo")
GROUP_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Version of control groups → files of limit and usage, key of the cache that can be dropped."""


def free_bytes(
    *, machine: Path = MACHINE, groups: Path = OWN_GROUPS, root: Path = SYSTEM
) -> int | None:
    """Return the memory that a new process can take without swapping; None: not known."""
    kilobytes = _fields(machine).get("MemAvailable:")
    if kilobytes is None:
        return None
    left = [1024 * kilobytes]
    for folder, version in memory_groups(groups, root):
        limit, used, cache = GROUP_FILES[version]
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            room = int((folder / limit).read_text()) - int((folder / used).read_text())
            left.append(room + _fields(folder / "memory.stat").get(cache, 0))
    return max(0, min(left))


def _fields(file: Path) -> dict[str, int]:
    """Read a file of lines `name value …`."""
    with contextlib.suppress(OSError, ValueError):
        rows = [line.split() for line in file.read_text(encoding="ascii").splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) > 1}
    return {}
