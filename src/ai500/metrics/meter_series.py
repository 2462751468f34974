"""Meters over the time of a trial: mean, lowest and highest over devices, in few points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ai500.meters import COUNTERS, LOOPBACK
from ai500.meters.log import Column, NodeLog, Point, series
from ai500.metrics.energy import PREFERRED, Window

MOST_POINTS = 300
Values = list[float | None]
"""One for each bin of the window; None: nothing is known of it."""

NODE_SUMS = {
    "disk_read_bytes": "disk read",
    "disk_written_bytes": "disk written",
    "network_sent_bytes": "network sent",
    "network_received_bytes": "network received",
}
"""Counter → curve, of all devices of a node together."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One bin; `at` is its middle, in seconds since the window began."""

    at: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One quantity over time."""

    points: Sequence[CurvePoint]
    sources: int
    """Devices or nodes it is the mean of."""

    @property
    def mean(self) -> float:
        """Over the whole time."""
        return math.fsum(point.mean for point in self.points) / len(self.points)


def meter_curves(logs: Iterable[NodeLog], window: Window) -> dict[str, Curve]:
    """Curve by name, one node's log after the other."""
    gathered: dict[str, _Gathered] = {}
    bins = 0
    for log in logs:
        if window.seconds <= 0:
            break
        period = max(0.01, min(head.period_seconds for head in log.heads))
        bins = bins or max(1, min(MOST_POINTS, int(window.seconds / period)))
        for name, values in _node_curves(log, window, bins):
            gathered.setdefault(name, _Gathered(bins)).add(values)
    curves = {name: one.curve(window.seconds / bins) for name, one in gathered.items()}
    return {name: curve for name, curve in curves.items() if curve.points}


def _node_curves(log: NodeLog, window: Window, bins: int) -> list[tuple[str, Values]]:
    """The curves of one node; those of its accelerators one by one."""
    covers = {name: parts for head in log.heads for name, parts in head.covers.items()}
    told = {
        column: _binned(column, points, window, bins)
        for column, points in series(log, window.time_of).items()
    }
    beside = _beside(covers, {column.meter for column in told})
    found: list[tuple[str, Values]] = []
    sums: dict[str, list[Values]] = {}
    for column, values in told.items():
        if column.meter in beside:
            continue
        parts = covers.get(column.meter, ())
        if column.quantity in NODE_SUMS:
            inside = column.device == LOOPBACK
            name = "network inside" if inside else NODE_SUMS[column.quantity]
            if not inside or column.quantity == "network_sent_bytes":
                sums.setdefault(name, []).append(values)
        elif parts and _tells_power(column, told):
            # Accelerators are shown one by one; packages and their memory as one node's.
            name = f"power of {' + '.join(parts)}"
            if parts == ("accelerators",):
                found.append((name, values))
            else:
                sums.setdefault(name, []).append(values)
        elif column.quantity in ("utilization", "memory_utilization"):
            whose = "accelerator" if "accelerators" in parts else "host"
            kind = "memory" if column.quantity == "memory_utilization" else "utilization"
            found.append((f"{whose} {kind}", values))
        elif column.quantity == "cpu_busy_seconds":
            total = replace(column, quantity="cpu_total_seconds")
            if total in told:
                found.append(("host processors", _divide(values, told[total])))
    found += [(name, _sum(many)) for name, many in sums.items()]
    return found


def _beside(covers: Mapping[str, tuple[str, ...]], meters: set[str]) -> set[str]:
    """Meters of what a better one covers too, as in the energy score: a board's own graphics
    beside the cards that train, Slurm's word beside the sensor it comes from."""
    place = {meter: number for number, meter in enumerate(PREFERRED)}
    best: dict[tuple[str, ...], str] = {}
    for meter in sorted(meters, key=lambda one: (place.get(one, len(place)), one)):
        if covers.get(meter):
            best.setdefault(covers[meter], meter)
    return {meter for meter in meters if covers.get(meter)} - set(best.values())


def _tells_power(column: Column, told: Mapping[Column, Values]) -> bool:
    """A device's watts; of one that has none, the growth of its energy."""
    if column.quantity != "energy_joules":
        return column.quantity == "watts"
    return replace(column, quantity="watts", wraps_at=None) not in told


def _binned(column: Column, points: Sequence[Point], window: Window, bins: int) -> Values:
    """A counter's rate, or a gauge's mean, in each bin."""
    width = window.seconds / bins
    amounts, weights = [0.0] * bins, [0.0] * bins
    if column.quantity in COUNTERS:
        for (start, before), (end, after) in pairwise(points):
            growth = after - before
            if growth < 0:  # a reset, or a wrap: at most one bin of the picture
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


def _sum(many: Sequence[Values]) -> Values:
    rows = ([one for one in row if one is not None] for row in zip(*many, strict=True))
    return [math.fsum(row) if row else None for row in rows]


def _divide(part: Values, whole: Values) -> Values:
    return [
        None if a is None or not b else min(1.0, a / b) for a, b in zip(part, whole, strict=True)
    ]


@dataclass
class _Gathered:
    """Sums over devices, so that thousands of them need no more room than one."""

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
    """Curves of power, the widest first."""
    return sorted(
        (name for name in curves if name.startswith("power of ")),
        key=lambda name: ("node" not in name, name),
    )
