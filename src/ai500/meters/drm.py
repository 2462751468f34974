"""Accelerators of AMD and Intel, by what their kernel drivers expose in /sys/class/drm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ai500.meters import Absent, Reading
from ai500.meters.sources import FunctionMeter, number, text

VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
SENSORS = {
    "energy_joules": (("energy1_input",), 1e-6),
    "watts": (("power1_average", "power1_input"), 1e-6),
    "temperature_celsius": (("temp1_input",), 1e-3),
    "clock_hertz": (("freq1_input",), 1.0),
}
"""Quantity → its hwmon files, of which the first that exists is read, and their unit."""

Card = tuple[Path, Path]
"""(device folder, sensor folder)."""


def open_meter(root: Path) -> FunctionMeter | Absent:
    """Meter the cards of AMD and Intel with a power or energy sensor."""
    cards: dict[str, Card] = {}
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        if "-" in card.name or text(device / "vendor") not in VENDORS:
            continue  # card0-DP-1 is a connector
        for sensors in sorted(device.glob("hwmon/hwmon*")):
            if {"energy_joules", "watts"} & {name for name, _ in _values(device, sensors)}:
                cards[device.resolve().name] = (device, sensors)
    if not cards:
        return Absent("no card of AMD or Intel in /sys/class/drm has a power sensor")
    return FunctionMeter(("accelerators",), partial(_read_cards, cards))


def _read_cards(cards: dict[str, Card]) -> list[Reading]:
    return [
        Reading(name, quantity, value)
        for name, (device, sensors) in cards.items()
        for quantity, value in _values(device, sensors)
    ]


def _values(device: Path, sensors: Path) -> Iterator[tuple[str, float]]:
    for quantity, (names, unit) in SENSORS.items():
        values = (number(sensors / name) for name in names)
        value = next((value for value in values if value is not None), None)
        if value is not None:
            yield quantity, value * unit
    if (busy := number(device / "gpu_busy_percent")) is not None:
        yield "utilization", busy / 100
    if (used := number(device / "mem_info_vram_used")) is not None:
        yield "memory_bytes", used
        if total := number(device / "mem_info_vram_total"):
            yield "memory_utilization", used / total
