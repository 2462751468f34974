"""Energy of a trial: from the meters of every node to joules in the window, or why there are none.

A counter gives its difference between the window's ends, interpolated between the samples around
each. Power without a counter is integrated by the trapezoidal rule. The figure holds for all nodes
and the whole window, or there is none: a device that was not metered for 5 % of the window or more
makes its meter unusable; a smaller gap is filled with the device's own mean power.

Of several meters, the widest one that every node has is used: the whole node, else the sum of those
parts (accelerators, processors, memory) that do not overlap. The parts that trained are among them:
the power of an accelerator that idles beside a training on processors is no energy of it. The score
names the covered parts, and a meter that is an outside plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ai500.core.clocks import Clocks, host_of
from ai500.core.events import Event
from ai500.meters.log import Head, NodeLog, Point, series

MAX_MISSING_FRACTION = 0.05
"""Fraction of the window that a device may be unmetered."""
# Three periods of the slowest meter.
MAX_GAUGE_GAP_SECONDS = 100.0
"""Largest time between two readings of watts that is integrated over."""
# More than any processor package draws: a counter that could wrap at this power between two
# samples may have wrapped without being noticed.
MAX_COUNTER_WATTS = 2000.0
# Meters that read the hardware themselves come first.
PREFERRED = ("cray", "ipmi", "nvml", "drm", "rapl", "slurm")
"""Order of preference among meters that cover the same parts."""
NAMES = {"node": "whole nodes"}


@dataclass(frozen=True)
class Window:
    """The timed window of a trial on its clock."""

    first: float
    last: float
    time_of: Callable[[Event], float | None]
    """Function that gives a sample's time on that clock; None: it can't be compared."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.last - self.first


@dataclass(frozen=True)
class Energy:
    """Energy of the metered parts of all nodes in the window."""

    joules: float
    watts: float
    coverage: str


@dataclass(frozen=True)
class NotMeasured:
    """Absence of an energy figure, with the reason."""

    reason: str


Parts = tuple[str, ...]
"""Parts of a node that a meter covers."""
Measured = tuple[float, str]
"""Joules, and the meter that measured them."""


def trial_energy(
    logs: Iterable[NodeLog], window: Window, *, nodes_of_members: Mapping[int, int], device: str
) -> Energy | NotMeasured:
    """Compute the energy of all nodes; `nodes_of_members` is each member's number of nodes.

    `device` is the plan's: "cpu", or the accelerators' name in PyTorch.
    """
    metered: dict[int, set[str]] = {}
    nodes: list[dict[Parts, Measured]] = []
    reasons: list[str] = []
    for log in logs:
        for head in log.heads:
            metered.setdefault(head.member, set()).add(head.host[0])
        joules, unusable = _node_energy(log, window)
        nodes.append(joules)
        reasons += unusable
    for member, count in nodes_of_members.items():
        recorded = len(metered.get(member, ()))
        if recorded < count:
            return NotMeasured(
                f"member {member} trained on {count} node(s), meters were recorded on {recorded} "
                "(run.meter_seconds = 0 turns them off)"
            )
    if not nodes or window.seconds <= 0:
        return NotMeasured("no meters were recorded")
    common = set.intersection(*map(set, nodes))
    chosen = _widest(common)
    if not chosen:
        return NotMeasured("; ".join(dict.fromkeys(reasons)) or "no meter is on every node")
    trained = "processors" if device == "cpu" else "accelerators"
    covered = {part for parts in chosen for part in parts}
    if not covered & {trained, "node"}:
        return NotMeasured(
            f"the {trained} trained, and the meters cover {' and '.join(sorted(covered))} only"
        )
    measured = [node[parts] for node in nodes for parts in chosen]
    total = sum(joules for joules, _ in measured)
    coverage = " + ".join(NAMES.get(part, part) for parts in chosen for part in parts)
    outside = sorted({meter for _, meter in measured} - set(PREFERRED))
    if outside:
        coverage += f", measured by {', '.join(outside)} (not built in)"
    return Energy(total, total / window.seconds, coverage)


def per_watt(
    energy: Energy | NotMeasured, *, flops: float | None, vflops: float | None
) -> dict[str, Any]:
    """Return the fields of a score that follow from energy; none if it was not measured."""
    if isinstance(energy, NotMeasured):
        return {}
    return {
        "energy_joules": energy.joules,
        "watts": energy.watts,
        "flops_per_watt": None if flops is None else flops / energy.watts,
        "vflops_per_watt": None if vflops is None else vflops / energy.watts,
        "power_coverage": energy.coverage,
    }


def sample_times(events: Sequence[Event], clock: str) -> Callable[[Event], float | None]:
    """Return the function that gives a sample's time on the clock of a trial's events."""
    if clock == "wall":
        clocks = Clocks(events)
        return lambda sample: float(clocks.corrected(sample)["wall"])
    hosts = {host_of(event) for event in events if event["event"] == "first_batch"}
    return lambda sample: float(sample["monotonic"]) if host_of(sample) in hosts else None


def _widest(known: set[Parts]) -> list[Parts]:
    """Choose the whole node, or parts that do not overlap, the wider meters first."""
    if ("node",) in known:
        return [("node",)]
    chosen: list[Parts] = []
    for parts in sorted(known, key=lambda parts: (-len(parts), parts)):
        if not any(set(parts) & set(other) for other in chosen):
            chosen.append(parts)
    return sorted(chosen)


def _node_energy(log: NodeLog, window: Window) -> tuple[dict[Parts, Measured], list[str]]:
    """Return joules by covered parts, and the reasons why other power meters are unusable."""
    energies: dict[Parts, Measured] = {}
    reasons: list[str] = []
    columns = series(log, window.time_of)
    meters = _covering(log.heads)
    if not meters:
        absent = {name: reason for head in log.heads for name, reason in head.absent.items()}
        listed = [f"{name}: {absent[name]}" for name in PREFERRED if name in absent]
        reasons.append(f"{log.name} has no power meter ({'; '.join(listed)})")
    for meter in sorted(meters, key=_preference):
        devices: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        for column, points in columns.items():
            if column.meter == meter and column.quantity in ("energy_joules", "watts"):
                measured = (
                    counter_increase(points, window.first, window.last, wraps_at=column.wraps_at)
                    if column.quantity == "energy_joules"
                    else integral(points, window.first, window.last)
                )
                devices.setdefault((column.node, column.device), {})[column.quantity] = measured
        joules = [_device_joules(device, window) for device in devices.values()]
        if not devices:
            reasons.append(f"{meter} on {log.name} recorded nothing")
        elif None in joules:
            worst = min(max(c for _, c in device.values()) for device in devices.values())
            fraction = worst / window.seconds
            reasons.append(f"{meter} on {log.name} covers only {fraction:.0%} of the time")
        else:
            total = sum(value for value in joules if value is not None)
            energies.setdefault(meters[meter], (total, meter))
    return energies, reasons


def _device_joules(measured: Mapping[str, tuple[float, float]], window: Window) -> float | None:
    """Return a device's joules in the whole window: by its counter, else by its watts."""
    for quantity in ("energy_joules", "watts"):
        joules, covered = measured.get(quantity, (0.0, 0.0))
        # A counter that stands still does not work: every running device draws power.
        if joules > 0 and covered > (1 - MAX_MISSING_FRACTION) * window.seconds:
            return joules * window.seconds / covered
    return None


def counter_increase(
    points: Sequence[Point], first: float, last: float, *, wraps_at: float | None
) -> tuple[float, float]:
    """Return a counter's increase in [first, last], and the seconds of it that were metered."""
    total, covered = 0.0, 0.0
    for (start, before), (end, after) in pairwise(points):
        overlap = min(end, last) - max(start, first)
        growth = after - before
        if wraps_at is not None:
            growth = growth if growth >= 0 else growth + wraps_at
            limit = MAX_COUNTER_WATTS * (end - start)
            if growth > limit or limit >= wraps_at:
                continue
        if overlap > 0 and growth >= 0:  # else the counter was reset
            total += growth * overlap / (end - start)
            covered += overlap
    return total, covered


def integral(points: Sequence[Point], first: float, last: float) -> tuple[float, float]:
    """Integrate a gauge over [first, last]; return also the seconds that were metered."""
    total, covered = 0.0, 0.0
    for (start, before), (end, after) in pairwise(points):
        left, right = max(start, first), min(end, last)
        if right > left and end - start <= MAX_GAUGE_GAP_SECONDS:
            slope = (after - before) / (end - start)
            middle = before + slope * ((left + right) / 2 - start)
            total += middle * (right - left)
            covered += right - left
    return total, covered


def _covering(heads: Sequence[Head]) -> dict[str, Parts]:
    """Return the meters of energy, and the parts they cover."""
    return {name: parts for head in heads for name, parts in head.covers.items() if parts}


def _preference(meter: str) -> tuple[int, str]:
    rank = PREFERRED.index(meter) if meter in PREFERRED else len(PREFERRED)
    return rank, meter
