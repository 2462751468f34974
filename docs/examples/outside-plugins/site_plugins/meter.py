"""A meter: what a laptop draws from its battery."""

from __future__ import annotations

from pathlib import Path

from ai500.api import Absent, Part, Reading


class Battery:
    """Linux tells microwatts; a battery feeds the whole machine."""

    covers: tuple[Part, ...] = ("node",)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> list[Reading]:
        if (self._folder / "status").read_text().strip() != "Discharging":
            return []  # on the mains it tells nothing of what the machine draws
        watts = int((self._folder / "power_now").read_text()) / 1e6
        return [Reading(self._folder.name, "watts", watts)]

    def close(self) -> None: ...


def open_meter(root: Path) -> Battery | Absent:
    """Open the first battery of the machine."""
    found = sorted(root.glob("sys/class/power_supply/BAT*/power_now"))
    return Battery(found[0].parent) if found else Absent("no battery tells its power")
