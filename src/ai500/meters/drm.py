"""Accelerators of AMD and Intel, by what their kernel drivers expose in /sys/class/drm.

Traffic over AMD's xGMI links is in `gpu_metrics`, a table of amdgpu whose layout has a revision
(kgd_pp_interface.h of Linux); other revisions than those below have no such counters, or are not
known here.
"""

from __future__ import annotations

import struct
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

XGMI_OFFSETS = {4: (104, 168), 5: (144, 208), 6: (128, 192), 7: (136, 200), 8: (136, 200)}
"""Content revision of format 1 → offsets of the bytes read and written over each link, in KB."""
XGMI_LINKS = 8
NOT_COUNTED = 0xFFFF_FFFF_FFFF_FFFF

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
    yield from _xgmi(device / "gpu_metrics")
    if (busy := number(device / "gpu_busy_percent")) is not None:
        yield "utilization", busy / 100
    if (used := number(device / "mem_info_vram_used")) is not None:
        yield "memory_bytes", used
        if total := number(device / "mem_info_vram_total"):
            yield "memory_utilization", used / total


def _xgmi(path: Path) -> Iterator[tuple[str, float]]:
    """Sum the bytes over all links of a card; nothing without counters of a known revision."""
    try:
        table = path.read_bytes()
    except OSError:
        return
    if len(table) < 4 or table[2] != 1 or table[3] not in XGMI_OFFSETS:
        return
    offsets = zip(("xgmi_received_bytes", "xgmi_sent_bytes"), XGMI_OFFSETS[table[3]], strict=True)
    for quantity, offset in offsets:
        part = table[offset : offset + 8 * XGMI_LINKS]
        if len(part) == 8 * XGMI_LINKS:
            links = [kb for kb in struct.unpack(f"<{XGMI_LINKS}Q", part) if kb != NOT_COUNTED]
            if links:
                yield quantity, 1000.0 * sum(links)
