"""RAPL: energy counters of processor packages and their memory, through the kernel's powercap.

Intel and AMD. Of the zones, packages and their `dram` are read: `core` and `uncore` are parts of
a package, and `psys` overlaps with all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.files import number, text


@dataclass(frozen=True)
class Zone:
    """One counter."""

    name: str
    path: Path
    wraps_at_joules: float | None


class Rapl:
    """The packages of a node."""

    def __init__(self, zones: Sequence[Zone], *, memory: bool) -> None:
        self._zones = zones
        self.covers: tuple[Part, ...] = ("processors", "memory") if memory else ("processors",)

    def read(self) -> list[Reading]:
        """Joules of every zone."""
        told = [(zone, number(zone.path)) for zone in self._zones]
        return [
            Reading(zone.name, "energy_joules", microjoules / 1e6, zone.wraps_at_joules)
            for zone, microjoules in told
            if microjoules is not None
        ]

    def close(self) -> None:
        """Nothing is held."""


def open_meter(root: Path) -> Rapl | Absent:
    """Packages that this user may read."""
    folder = root / "sys/class/powercap"
    found = [
        one
        for one in sorted(folder.glob("intel-rapl:*"))
        if (text(one / "name") or "").startswith("package")
    ]
    if not found:
        return Absent("the kernel shows no processor package in /sys/class/powercap")
    packages = [_zone(one, text(one / "name") or "") for one in found]
    if not all(packages):
        return Absent(f"{found[0].name}/energy_uj may be read by root alone (CVE-2020-8694)")
    memory = [
        _zone(one, f"{text(package / 'name')} dram")
        for package in found
        for one in sorted(folder.glob(f"{package.name}:*"))
        if text(one / "name") == "dram"
    ]
    zones = [zone for zone in packages + memory if zone is not None]
    return Rapl(zones, memory=len(zones) == 2 * len(packages))


def _zone(folder: Path, name: str) -> Zone | None:
    if number(folder / "energy_uj") is None:
        return None
    largest = number(folder / "max_energy_range_uj")
    return Zone(name, folder / "energy_uj", None if largest is None else largest / 1e6)
