"""Meters over the time of a trial: mean, lowest and highest over devices, in few points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ai500.meters import COUNTERS, LOOPBACK
from ai500.meters.log import Column, NodeLog, Point, series
from ai500.metrics.energy import PREFERRED, Window

MAX_POINTS = 300
"""Points of a curve: more can't be seen in a figure."""
Values = list[float | None]
"""Value in each bin of the window; None: not measured."""

NODE_SUMS = {
    "disk_read_bytes": "disk read",
    "disk_written_bytes": "disk written",
    "network_sent_bytes": "network sent",
    "network_received_bytes": "network received",
}
"""Counter → curve; the devices of a node are summed."""
LINK_SUMS = {
    f"{link}_{direction}_bytes": f"{name} {direction}"
    for link, name in (("nvlink", "NVLink"), ("pcie", "PCIe"), ("xgmi", "xGMI"))
    for direction in ("sent", "received")
}
"""Counter of an accelerator's links → curve; each accelerator has its own."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Values in one bin; `at` is its middle, in seconds since the window began."""

    at: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One quantity over time."""

    points: Sequence[CurvePoint]
    sources: int
    """Number of devices or nodes that it is the mean of."""

    @property
    def mean(self) -> float:
        """Mean over the whole time."""
        return math.fsum(point.mean for point in self.points) / len(self.points)


def meter_curves(logs: Iterable[NodeLog], window: Window) -> dict[str, Curve]:
    """Return the curves by name, reading one node's log after the other."""
    gathered: dict[str, _Gathered] = {}
    bins = 0
    for log in logs:
        if window.seconds <= 0:
            break
        period = max(0.01, min(head.period_seconds for head in log.heads))
        bins = bins or max(1, min(MAX_POINTS, int(window.seconds / period)))
        for name, values in _node_curves(log, window, bins):
            gathered.setdefault(name, _Gathered(bins)).add(values)
    curves = {name: sums.curve(window.seconds / bins) for name, sums in gathered.items()}
    return {name: curve for name, curve in curves.items() if curve.points}


def _node_curves(log: NodeLog, window: Window, bins: int) -> list[tuple[str, Values]]:
    """Return the curves of one node; each of its accelerators has its own."""
    covers = {name: parts for head in log.heads for name, parts in head.covers.items()}
    columns = {
        column: _binned(column, points, window, bins)
        for column, points in series(log, window.time_of).items()
    }
    redundant = _redundant(covers, {column.meter for column in columns})
    curves: list[tuple[str, Values]] = []
    sums: dict[str, list[Values]] = {}
    for column, values in columns.items():
        if column.meter in redundant:
            continue
        parts = covers.get(column.meter, ())
        if column.quantity in NODE_SUMS:
            inside = column.device == LOOPBACK
            name = "network inside" if inside else NODE_SUMS[column.quantity]
            if not inside or column.quantity == "network_sent_bytes":
                sums.setdefault(name, []).append(values)
        elif column.quantity in LINK_SUMS:
            curves.append((LINK_SUMS[column.quantity], values))
        elif parts and _is_power(column, columns):
            # Accelerators are shown one by one; packages and their memory as one node's.
            name = f"power of {' + '.join(parts)}"
            if parts == ("accelerators",):
                curves.append((name, values))
            else:
                sums.setdefault(name, []).append(values)
        elif column.quantity in ("utilization", "memory_utilization"):
            owner = "accelerator" if "accelerators" in parts else "host"
            kind = "memory" if column.quantity == "memory_utilization" else "utilization"
            curves.append((f"{owner} {kind}", values))
        elif column.quantity == "cpu_busy_seconds":
            total = replace(column, quantity="cpu_total_seconds")
            if total in columns:
                curves.append(("host processors", _divide(values, columns[total])))
    curves += [(name, _sum(devices)) for name, devices in sums.items()]
    return curves


def _redundant(covers: Mapping[str, tuple[str, ...]], meters: set[str]) -> set[str]:
    """Return meters of parts that a preferred meter covers too, as in the energy score.

    Examples: Slurm's figure beside the sensor that it comes from, a board's own graphics beside the
    cards that train.
    """
    rank = {meter: number for number, meter in enumerate(PREFERRED)}
    best: dict[tuple[str, ...], str] = {}
    for meter in sorted(meters, key=lambda meter: (rank.get(meter, len(rank)), meter)):
        if covers.get(meter):
            best.setdefault(covers[meter], meter)
    return {meter for meter in meters if covers.get(meter)} - set(best.values())


def _is_power(column: Column, columns: Mapping[Column, Values]) -> bool:
    """Return True for a device's watts, or for its energy if it has no watts."""
    if column.quantity != "energy_joules":
        return column.quantity == "watts"
    return replace(column, quantity="watts", wraps_at=None) not in columns


def _binned(column: Column, points: Sequence[Point], window: Window, bins: int) -> Values:
    """Compute a counter's rate, or a gauge's mean, in each bin."""
    width = window.seconds / bins
    amounts, weights = [0.0] * bins, [0.0] * bins
    if column.quantity in COUNTERS:
        for (start, before), (end, after) in pairwise(points):
            growth = after - before
            if growth < 0:  # a reset, or a wrap: at most one bin is missing
                continue
            first = max(0, int((start - window.first) / width))
            last = min(bins - 1, int((end - window.first) / width))
            for at in range(first, last + 1):
                left = max(start, window.first + at * width)
                right = min(end, window.first + (at + 1) * width)
                if right > left:
                    amounts[at] += growth * (right - left) / (end - start)
                    weights[at] += right - left
    else:
        for time, value in points:
            if window.first <= time <= window.last:
                at = min(bins - 1, int((time - window.first) / width))
                amounts[at] += value
                weights[at] += 1
    return [a / w if w else None for a, w in zip(amounts, weights, strict=True)]


def _sum(devices: Sequence[Values]) -> Values:
    rows = ([value for value in row if value is not None] for row in zip(*devices, strict=True))
    return [math.fsum(row) if row else None for row in rows]


def _divide(part: Values, whole: Values) -> Values:
    return [
        None if a is None or not b else min(1.0, a / b) for a, b in zip(part, whole, strict=True)
    ]


@dataclass
class _Gathered:
    """Running sums over devices: memory does not grow with their number."""

    bins: int
    sources: int = 0
    total: list[float] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total, self.count = [0.0] * self.bins, [0] * self.bins
        self.low, self.high = [math.inf] * self.bins, [-math.inf] * self.bins

    def add(self, values: Values) -> None:
        self.sources += 1
        for at, value in enumerate(values):
            if value is not None:
                self.total[at] += value
                self.count[at] += 1
                self.low[at] = min(self.low[at], value)
                self.high[at] = max(self.high[at], value)

    def curve(self, width: float) -> Curve:
        points = [
            CurvePoint((at + 0.5) * width, self.total[at] / n, self.low[at], self.high[at])
            for at, n in enumerate(self.count)
            if n
        ]
        return Curve(points, self.sources)


def power_names(curves: Mapping[str, Curve]) -> list[str]:
    """Return the names of the power curves, the widest first."""
    return sorted(
        (name for name in curves if name.startswith("power of ")),
        key=lambda name: ("node" not in name, name),
    )
