"""Meters: what a node tells of its power, its load and its traffic while a member trains.

A meter is one file with one function, registered under the entry-point group `ai500.meter`:

    def open_meter(root: Path) -> Meter | Absent

`root` is `/`; a test hands over a folder that looks like one. Hardware that is not there, or that
this user may not read, gives `Absent` with the reason: never a meter that reads zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ai500.core import plugins

COUNTERS = frozenset(
    {
        "energy_joules",
        "disk_read_bytes",
        "disk_written_bytes",
        "network_received_bytes",
        "network_sent_bytes",
        "cpu_busy_seconds",
        "cpu_total_seconds",
    }
)
"""Quantities that only grow: what counts is their difference."""
GAUGES = frozenset(
    {
        "watts",
        "utilization",
        "memory_bytes",
        "memory_utilization",
        "temperature_celsius",
        "clock_hertz",
    }
)
"""Quantities of a moment; utilizations are shares from 0 to 1."""

Part = Literal["node", "accelerators", "processors", "memory"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one device."""

    device: str
    quantity: str
    value: float
    wraps_at: float | None = None
    """A counter that begins again at 0 when it gets there; None: it never does."""


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such meter here, and why."""

    reason: str


class Meter(Protocol):
    """Something to read now and then; `read` must be quick and must not wait."""

    @property
    def covers(self) -> tuple[Part, ...]:
        """Parts of the node whose whole energy it measures; none: it measures no energy."""

    def read(self) -> Sequence[Reading]:
        """The values of now; those that can't be had now are left out."""

    def close(self) -> None:
        """Let go of the hardware."""


def open_meters(root: Path = Path("/")) -> tuple[Mapping[str, Meter], Mapping[str, str]]:
    """Every known meter that is here by its name, and for the others why they are not."""
    found: dict[str, Meter] = {}
    absent: dict[str, str] = {}
    for name in plugins.names("meter"):
        try:
            opened = plugins.load("meter", name)(root)
        except Exception as error:
            # A vendor's library may fail in any way; training must not.
            opened = Absent(f"{type(error).__name__}: {error}")
        if isinstance(opened, Absent):
            absent[name] = opened.reason
        else:
            found[name] = opened
    return found, absent
