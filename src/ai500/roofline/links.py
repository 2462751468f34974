"""Link performance from message times: α–β model and bus bandwidth. Pure functions.

    seconds = α + β · bytes       (Hockney 1994: latency, and the inverse of bandwidth)

The fit minimizes relative errors, so that a microsecond counts at a kilobyte as a millisecond does
at a megabyte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ai500.roofline.records import LinkTime, RooflineRecord, Scope, links_of, units_of_node


@dataclass(frozen=True, slots=True)
class Fit:
    """α and 1/β, and the largest relative error of a point."""

    latency_seconds: float
    bytes_per_second: float
    worst_relative_error: float


def fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """Fit α–β through (bytes, seconds); None: too few points, or time does not grow with size.

    Minimizes Σ ((α + β x − y) / y)²; α is 0 where the minimum has α < 0.
    """
    if len({x for x, _ in points}) < 2:
        return None
    weights = [1 / (y * y) for _, y in points]
    w = sum(weights)
    wx = sum(k * x for k, (x, _) in zip(weights, points, strict=True))
    wy = sum(k * y for k, (_, y) in zip(weights, points, strict=True))
    wxx = sum(k * x * x for k, (x, _) in zip(weights, points, strict=True))
    wxy = sum(k * x * y for k, (x, y) in zip(weights, points, strict=True))
    beta = (w * wxy - wx * wy) / (w * wxx - wx * wx)
    alpha = (wy - beta * wx) / w
    if alpha < 0:
        alpha, beta = 0.0, wxy / wxx
    if beta <= 0:
        return None
    worst = max(abs(alpha + beta * x - y) / y for x, y in points)
    return Fit(alpha, 1 / beta, worst)


def bus_factor(ranks: int) -> float:
    """Return the bytes each rank sends per byte of the buffer: 2 (n−1)/n, as in a ring."""
    return 2 * (ranks - 1) / ranks


def sent_bytes(link: LinkTime) -> float:
    """Return the bytes one rank sends."""
    return link.bytes * (bus_factor(link.ranks) if link.kind == "all_reduce" else 1)


def bus_bandwidth(link: LinkTime) -> float:
    """Return the bytes per second one rank sends."""
    return sent_bytes(link) / link.seconds


def best_all_reduce(record: RooflineRecord, scope: Scope) -> LinkTime | None:
    """Return the all-reduce with the highest bus bandwidth; None: not measured.

    All-reduce is what training does; it keeps all ranks of a node busy at once.
    """
    times = links_of(record.links, kind="all_reduce", scope=scope)
    return max(times, key=bus_bandwidth, default=None)


def node_bandwidth(record: RooflineRecord, scope: Scope) -> float | None:
    """Return the highest rate at which all ranks of a node send together; None: not measured."""
    best = best_all_reduce(record, scope)
    if best is None:
        return None
    ranks = best.ranks if record.unit == "core" else units_of_node(record)
    return bus_bandwidth(best) * (ranks if scope == "inside_node" else best.groups)
