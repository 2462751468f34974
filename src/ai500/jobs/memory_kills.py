"""The kernel's count of processes that it killed for lack of memory, by control group.

A worker that runs out of memory gets SIGKILL and writes nothing: the counter of its control group
is the only evidence. Slurm with cgroups, containers and systemd give each job a group of its own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SYSTEM = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
COUNTERS = {2: "memory.events", 1: "memory.oom_control"}
"""Version of control groups → file with the counter."""


def memory_kills(*, groups: Path = OWN_GROUPS, root: Path = SYSTEM) -> int | None:
    """Return the number of kills in this process's control group; None: not known."""
    for folder, version in memory_groups(groups, root):
        file = folder / COUNTERS[version]
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return None


def memory_groups(groups: Path, root: Path) -> list[tuple[Path, int]]:
    """Return the folders that may be this process's memory group, each with its version.

    In a container the group's path is often the host's, while its own group is mounted at the root.
    """
    try:
        lines = groups.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        own = path.lstrip("/")
        if not colon:
            continue
        if not controllers:
            folders += [(root / own, 2), (root, 2)]
        elif "memory" in controllers.split(","):
            folders += [(root / "memory" / own, 1), (root / "memory", 1)]
    return folders
