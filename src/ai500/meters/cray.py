"""HPE Cray EX: the node's own power counters, which every user may read."""

from __future__ import annotations

from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.files import number


class Cray:
    """/sys/cray/pm_counters."""

    covers: tuple[Part, ...] = ("node",)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> list[Reading]:
        """Energy since boot, and power."""
        told = {
            "energy_joules": number(self._folder / "energy"),
            "watts": number(self._folder / "power"),
        }
        return [Reading("node", name, value) for name, value in told.items() if value is not None]

    def close(self) -> None:
        """Nothing is held."""


def open_meter(root: Path) -> Cray | Absent:
    """Where the kernel of a Cray shows them."""
    folder = root / "sys/cray/pm_counters"
    if number(folder / "energy") is None:
        return Absent("no /sys/cray/pm_counters/energy: not a Cray EX node")
    return Cray(folder)
