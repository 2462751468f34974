"""Bytes read from and written to the node's disks."""

from __future__ import annotations

from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.files import text

SECTOR_BYTES = 512
"""The kernel's unit here, whatever the disk's own is."""


class Disk:
    """/proc/diskstats of whole disks: partitions, and volumes made of disks, would count twice."""

    covers: tuple[Part, ...] = ()

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self) -> list[Reading]:
        """Both counters of every disk."""
        found = []
        for line in (text(self._root / "proc/diskstats") or "").splitlines():
            words = line.split()
            if len(words) > 9 and (self._root / "sys/block" / words[2] / "device").exists():
                for quantity, column in (("disk_read_bytes", 5), ("disk_written_bytes", 9)):
                    found.append(Reading(words[2], quantity, int(words[column]) * SECTOR_BYTES))
        return found

    def close(self) -> None:
        """Nothing is held."""


def open_meter(root: Path) -> Disk | Absent:
    """Where the kernel shows a disk."""
    meter = Disk(root)
    return meter if meter.read() else Absent("/proc/diskstats shows no disk of this node")
