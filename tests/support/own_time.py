"""The time that a machine with other work gave to some processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path


def processes_of(folder: Path) -> list[int]:
    """List the processes that have a folder on their command line."""
    name = str(folder).encode()
    return [process for process, _, command in _processes() if name in command]


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """Yield id, parent's id and command line of every process that has not ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()  # empty of a zombie
            if command:
                parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                yield int(folder.name), int(parent), command
        except OSError:
            continue


class OwnTime:
    """Time of a command in which none of its processes waited for a core.

    A process that hangs sleeps or computes. On a machine with other work a sound one may wait for a
    core ten times as long as it runs.
    """

    def __init__(self, first: int, folder: Path) -> None:
        """Watch a process, its children, and those that have a folder on their command line."""
        self._first, self._name = first, str(folder).encode()
        self._last = time.monotonic()
        self._waits = self._measured()
        self.seconds = 0.0

    def update(self) -> float:
        """Add the time since the last call, less the longest wait of a thread; return the sum."""
        waits, now = self._measured(), time.monotonic()
        longest = max(
            (wait - self._waits.get(thread, 0.0) for thread, wait in waits.items()), default=0.0
        )
        self.seconds += max(0.0, now - self._last - longest)
        self._waits, self._last = waits, now
        return self.seconds

    def _measured(self) -> dict[Path, float]:
        """Return how long each thread was ready to run, but had no core."""
        waits = {}
        for process, parent, command in _processes():
            if self._first in (process, parent) or self._name in command:
                for file in Path("/proc", str(process), "task").glob("*/schedstat"):
                    try:
                        waits[file] = int(file.read_text().split()[1]) / 1e9
                    except OSError:
                        continue  # the thread has ended
        return waits
