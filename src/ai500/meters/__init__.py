"""Meters: power, load and traffic of a node while its members train.

A meter is a function registered under the entry-point group `ai500.meter`:

    def open_meter(root: Path) -> Meter | Absent

`root` is `/`; tests pass a folder with the same layout. Where the hardware is missing or
unreadable for this user, the function returns `Absent` with the reason, never a meter that reads
zero.
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
        "nvlink_received_bytes",
        "nvlink_sent_bytes",
        "pcie_received_bytes",
        "pcie_sent_bytes",
        "xgmi_received_bytes",
        "xgmi_sent_bytes",
        "cpu_busy_seconds",
        "cpu_total_seconds",
        "disk_busy_seconds",
        "link_errors",
        "memory_corrected_errors",
        "memory_uncorrected_errors",
        "throttled_seconds",
        "xid_errors",
    }
)
"""Monotonic quantities; only their differences are meaningful. All others are instantaneous."""

LOOPBACK = "lo"
"""Network device whose traffic stays inside the node."""

Part = Literal["node", "accelerators", "processors", "memory"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One quantity of one device."""

    device: str
    quantity: str
    value: float
    wraps_at: float | None = None
    """Value at which the counter restarts at 0; None: never."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A meter that is not available on this node, and why."""

    reason: str


class Meter(Protocol):
    """Source of readings; `read` must not block."""

    @property
    def covers(self) -> tuple[Part, ...]:
        """Parts of the node whose whole energy is measured; empty: no energy."""

    def read(self) -> Sequence[Reading]:
        """Return the current readings; omit those that are unavailable."""

    def close(self) -> None:
        """Release the hardware."""


def open_meters(root: Path = Path("/")) -> tuple[Mapping[str, Meter], Mapping[str, str]]:
    """Open every known meter. Return the available meters, and why the others are absent."""
    meters: dict[str, Meter] = {}
    reasons: dict[str, str] = {}
    for name in plugins.names("meter"):
        try:
            meter = plugins.load("meter", name)(root)
        except Exception as error:
            # A vendor's library may raise anything; training must continue.
            meter = Absent(f"{type(error).__name__}: {error}")
        if isinstance(meter, Absent):
            reasons[name] = meter.reason
        else:
            meters[name] = meter
    return meters, reasons
