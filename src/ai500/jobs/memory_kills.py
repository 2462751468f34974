"""The kernel's count of processes that it killed for lack of memory, by control group.

A worker that runs out of memory gets SIGKILL and writes nothing: the counter of its control group
is the only evidence. Slurm with cgroups, containers and systemd give each job a group of its own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SYSTEM = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def memory_kills(*, groups: Path = OWN_GROUPS, root: Path = SYSTEM) -> int | None:
    """Return the number of kills in this process's control group; None: not known."""
    for file in _counter_files(groups, root):
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return None


def _counter_files(groups: Path, root: Path) -> list[Path]:
    """Return the files that may hold the counter: version 2 of control groups, then version 1.

    In a container the group's path is often the host's, while its own group is mounted at the root.
    """
    try:
        lines = groups.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        own = path.lstrip("/")
        if not colon:
            continue
        if not controllers:
            files += [root / own / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            folder = root / "memory"
            files += [folder / own / "memory.oom_control", folder / "memory.oom_control"]
    return files
