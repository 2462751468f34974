"""Locks of a machine's slots, held by the member that trains on them.

A member of a later wave may start while the one before it still trains on its slots: it prepares
(imports, data, warm-up), and waits here before its timed window begins. The kernel releases the
locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TextIO

VARIABLE = "AI500_SLOT_LOCKS"
"""Variable of the environment with the folder of the locks; unset: members do not overlap."""
POLL_SECONDS = 0.05  # counts as idle time between two waves; a network file system is asked


class SlotLocks:
    """Locks of a member's slots."""

    def __init__(self, folder: Path, slots: Collection[int]) -> None:
        # In one order for all members: two that wait for each other's slot would wait for ever.
        self._paths = [folder / f"{slot}.lock" for slot in sorted(slots)]
        self._held: list[TextIO] = []

    @classmethod
    def from_environment(cls, slots: Collection[int]) -> SlotLocks:
        """Return the locks of these slots; none where the scheduler lets no members overlap."""
        folder = os.environ.get(VARIABLE)
        return cls(Path(folder), slots) if folder else cls(Path(), ())

    def acquire(self, *, stopped: Callable[[], bool]) -> bool:
        """Wait until all slots are free, then hold them; False: `stopped` before that."""
        for path in self._paths:
            file = path.open("a", encoding="ascii")
            self._held.append(file)
            while not _is_locked_by(file):
                if stopped():
                    self.release()
                    return False
                time.sleep(POLL_SECONDS)
        return True

    def release(self) -> None:
        """Let the next member train."""
        for file in self._held:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing leaves it to a forked child's copy
            file.close()
        self._held.clear()


def _is_locked_by(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
