"""AMD's and Intel's accelerators, through what their kernel drivers show in /sys/class/drm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ai500.meters import Absent, Part, Reading
from ai500.meters.files import number, text

VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
SENSORS = {
    "energy_joules": (("energy1_input",), 1e-6),
    "watts": (("power1_average", "power1_input"), 1e-6),
    "temperature_celsius": (("temp1_input",), 1e-3),
    "clock_hertz": (("freq1_input",), 1.0),
}
"""Quantity → its files in hwmon, the first that is there, and the unit they count in."""


class Drm:
    """The cards of a node that tell their power."""

    covers: tuple[Part, ...] = ("accelerators",)

    def __init__(self, cards: dict[str, tuple[Path, Path]]) -> None:
        self._cards = cards

    def read(self) -> list[Reading]:
        """What each card tells."""
        return [
            Reading(name, quantity, value)
            for name, (device, sensors) in self._cards.items()
            for quantity, value in _values(device, sensors)
        ]

    def close(self) -> None:
        """Nothing is held."""


def open_meter(root: Path) -> Drm | Absent:
    """Cards of AMD and Intel with a power or energy sensor."""
    cards: dict[str, tuple[Path, Path]] = {}
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        if "-" in card.name or text(device / "vendor") not in VENDORS:
            continue  # card0-DP-1 is a connector
        for sensors in sorted(device.glob("hwmon/hwmon*")):
            if {"energy_joules", "watts"} & {name for name, _ in _values(device, sensors)}:
                cards[device.resolve().name] = (device, sensors)
    if not cards:
        return Absent("no card of AMD or Intel in /sys/class/drm tells its power")
    return Drm(cards)


def _values(device: Path, sensors: Path) -> Iterator[tuple[str, float]]:
    for quantity, (names, unit) in SENSORS.items():
        told = (number(sensors / name) for name in names)
        value = next((one for one in told if one is not None), None)
        if value is not None:
            yield quantity, value * unit
    if (busy := number(device / "gpu_busy_percent")) is not None:
        yield "utilization", busy / 100
    if (used := number(device / "mem_info_vram_used")) is not None:
        yield "memory_bytes", used
        if total := number(device / "mem_info_vram_total"):
            yield "memory_utilization", used / total
