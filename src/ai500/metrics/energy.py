"""Energy of a trial: from the meters of every node to joules in the window, or why there are none.

A counter gives its difference between the window's ends, interpolated between the samples around
each. Power without a counter is integrated by the trapezoidal rule. The figure holds for all nodes
and the whole window, or not at all: a device that was not metered for 5 % of the window or more
makes its meter unusable; what is missing below that is filled with the device's own mean power.

Of several meters the widest one counts that every node has: the whole node, else the sum of those
parts (accelerators, processors, memory) that do not overlap. What was covered is always named,
and so is a meter that is somebody else's plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ai500.core.clocks import Clocks, host_of
from ai500.core.events import Event
from ai500.meters.log import Head, NodeLog, Point, series

LARGEST_MISSING_SHARE = 0.05
LONGEST_GAUGE_GAP_SECONDS = 100.0
"""Between two readings of watts; three of the slowest meter's periods."""
MOST_WATTS_OF_A_WRAPPING_COUNTER = 2000.0
"""More than any processor package draws: where more than that fits into the time between two
samples than the counter holds, it may have wrapped unseen."""
PREFERRED = ("cray", "ipmi", "nvml", "drm", "rapl", "slurm")
"""Of meters that cover the same: those that read the hardware themselves first."""
NAMES = {"node": "whole nodes"}


@dataclass(frozen=True)
class Window:
    """The timed window of a trial on its clock."""

    first: float
    last: float
    time_of: Callable[[Event], float | None]
    """The time of a sample on that clock; None: it can't be compared."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.last - self.first


@dataclass(frozen=True)
class Energy:
    """What the metered parts of all nodes drew in the window."""

    joules: float
    watts: float
    coverage: str


@dataclass(frozen=True)
class NotMeasured:
    """There is no figure, and why."""

    reason: str


Parts = tuple[str, ...]
Told = tuple[float, str]
"""Joules, and the meter that told them."""


def trial_energy(
    logs: Iterable[NodeLog], window: Window, *, nodes_of_members: Mapping[int, int]
) -> Energy | NotMeasured:
    """The energy of all nodes; `nodes_of_members`: on how many nodes each member trained."""
    metered: dict[int, set[str]] = {}
    nodes: list[dict[Parts, Told]] = []
    reasons: list[str] = []
    for log in logs:
        for head in log.heads:
            metered.setdefault(head.member, set()).add(head.host[0])
        joules, why = _node_energy(log, window)
        nodes.append(joules)
        reasons += why
    for member, count in nodes_of_members.items():
        found = len(metered.get(member, ()))
        if found < count:
            return NotMeasured(
                f"member {member} trained on {count} node(s), meters were recorded on {found} "
                "(run.meter_seconds = 0 turns them off)"
            )
    if not nodes or window.seconds <= 0:
        return NotMeasured("no meters were recorded")
    common = set.intersection(*map(set, nodes))
    chosen = _widest(common)
    if not chosen:
        return NotMeasured("; ".join(dict.fromkeys(reasons)) or "no meter is on every node")
    told = [one[parts] for one in nodes for parts in chosen]
    total = sum(joules for joules, _ in told)
    coverage = " + ".join(NAMES.get(part, part) for parts in chosen for part in parts)
    outside = sorted({meter for _, meter in told} - set(PREFERRED))
    if outside:
        coverage += f", told by {', '.join(outside)} (not one of ours)"
    return Energy(total, total / window.seconds, coverage)


def per_watt(energy: Energy | NotMeasured, *, flops: float, vflops: float) -> dict[str, Any]:
    """The fields of a score that energy gives; none where it was not measured."""
    if isinstance(energy, NotMeasured):
        return {}
    return {
        "energy_joules": energy.joules,
        "watts": energy.watts,
        "flops_per_watt": flops / energy.watts,
        "vflops_per_watt": vflops / energy.watts,
        "power_coverage": energy.coverage,
    }


def sample_times(events: Sequence[Event], clock: str) -> Callable[[Event], float | None]:
    """How samples tell the time of a trial with these events, on its clock."""
    if clock == "wall":
        clocks = Clocks(events)
        return lambda sample: float(clocks.corrected(sample)["wall"])
    hosts = {host_of(event) for event in events if event["event"] == "first_batch"}
    return lambda sample: float(sample["monotonic"]) if host_of(sample) in hosts else None


def _widest(known: set[Parts]) -> list[Parts]:
    """The whole node, or parts that do not overlap, the wider meters first."""
    if ("node",) in known:
        return [("node",)]
    chosen: list[Parts] = []
    for parts in sorted(known, key=lambda parts: (-len(parts), parts)):
        if not any(set(parts) & set(other) for other in chosen):
            chosen.append(parts)
    return sorted(chosen)


def _node_energy(log: NodeLog, window: Window) -> tuple[dict[Parts, Told], list[str]]:
    """Joules by what a meter covers, and why meters that could tell them did not."""
    found: dict[Parts, Told] = {}
    reasons: list[str] = []
    columns = series(log, window.time_of)
    meters = _covering(log.heads)
    if not meters:
        told = {name: why for head in log.heads for name, why in head.absent.items()}
        known = [f"{name}: {told[name]}" for name in PREFERRED if name in told]
        reasons.append(f"{log.name} has no power meter ({'; '.join(known)})")
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
        joules = [_whole(one, window) for one in devices.values()]
        if not devices:
            reasons.append(f"{meter} on {log.name} told nothing")
        elif None in joules:
            worst = min(max(c for _, c in one.values()) for one in devices.values())
            share = worst / window.seconds
            reasons.append(f"{meter} on {log.name} covers only {share:.0%} of the time")
        else:
            total = sum(one for one in joules if one is not None)
            found.setdefault(meters[meter], (total, meter))
    return found, reasons


def _whole(told: Mapping[str, tuple[float, float]], window: Window) -> float | None:
    """A device's joules in the whole window: by its counter, else by its watts."""
    for quantity in ("energy_joules", "watts"):
        joules, covered = told.get(quantity, (0.0, 0.0))
        # A counter that stands still is none: nothing that runs draws nothing.
        if joules > 0 and covered > (1 - LARGEST_MISSING_SHARE) * window.seconds:
            return joules * window.seconds / covered
    return None


def counter_increase(
    points: Sequence[Point], first: float, last: float, *, wraps_at: float | None
) -> tuple[float, float]:
    """By how much a counter grew in [first, last], and how many of those seconds are known."""
    total, covered = 0.0, 0.0
    for (start, before), (end, after) in pairwise(points):
        overlap = min(end, last) - max(start, first)
        growth = after - before
        if wraps_at is not None:
            growth = growth if growth >= 0 else growth + wraps_at
            most = MOST_WATTS_OF_A_WRAPPING_COUNTER * (end - start)
            if growth > most or most >= wraps_at:
                continue
        if overlap > 0 and growth >= 0:  # else it was reset: what it counted before is lost
            total += growth * overlap / (end - start)
            covered += overlap
    return total, covered


def integral(points: Sequence[Point], first: float, last: float) -> tuple[float, float]:
    """The integral of a gauge over [first, last], and how many of those seconds are known."""
    total, covered = 0.0, 0.0
    for (start, before), (end, after) in pairwise(points):
        left, right = max(start, first), min(end, last)
        if right > left and end - start <= LONGEST_GAUGE_GAP_SECONDS:
            slope = (after - before) / (end - start)
            middle = before + slope * ((left + right) / 2 - start)
            total += middle * (right - left)
            covered += right - left
    return total, covered


def _covering(heads: Sequence[Head]) -> dict[str, Parts]:
    """Meters of energy, and what they cover."""
    return {name: parts for head in heads for name, parts in head.covers.items() if parts}


def _preference(meter: str) -> tuple[int, str]:
    known = PREFERRED.index(meter) if meter in PREFERRED else len(PREFERRED)
    return known, meter
