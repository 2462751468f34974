"""The figures of a search: AIPerf Fig. 4, the best error, the tree of architectures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ai500.automl.search_score import Search
from ai500.core.units import si_prefix
from ai500.report import svg
from ai500.report.figures import right_labels
from ai500.report.svg import Frame, LogScale, Point, Scale

POINTS = 240
TREE_HEIGHT = 400.0
X_TITLE = "time since the first batch"
RIGHT = svg.WIDTH - 152
"""Leaves room for names at the right edge."""


@dataclass(frozen=True)
class Node:
    """A model in the tree."""

    model: str
    parent: str | None
    operations: float
    """Per image, forward and backward."""
    error: float
    tip: str


def score_figure(search: Search, *, least: float, final: Point, window: float, title: str) -> str:
    """FLOPS(t), the regulated score, and the rate of the moment."""
    seconds = search.seconds
    times = [seconds * (n + 1) / POINTS for n in range(POINTS)]
    score = [(t, search.curve.flops(t)) for t in times]
    regulated = [(t, value) for t in times if (value := search.regulated(t)) is not None]
    moment = [(t, search.curve.rate(t, window=window)) for t in times if t >= window]
    highest = max(value for _, value in (*score, *regulated, *moment))
    factor, prefix = si_prefix(highest)
    ticks = svg.nice_ticks(0, highest / factor)
    frame = Frame(x=Scale(0, seconds, 66, RIGHT), y=Scale(0, ticks.high * factor, 282, 40))
    scaled = Frame(frame.x, Scale(0, ticks.high, 282, 40))
    dots = frame.points(regulated)[:: max(1, len(regulated) // 15)]
    parts = [
        svg.y_axis(scaled, ticks, title=f"{prefix}FLOPS"),
        svg.x_axis(frame, svg.time_ticks(seconds).up_to(seconds), title=X_TITLE),
        svg.polyline(frame.points(moment), "member"),
        svg.polyline(frame.points(regulated), "mean"),
        *(svg.dot(one, "mean") for one in dots),
        svg.polyline(frame.points(score), "ensemble"),
    ]
    if least < seconds:
        parts.append(svg.line((frame.x(least), frame.top), (frame.x(least), 282), "target"))
    parts.append(svg.dot((frame.x(final[0]), frame.y(final[1])), "ensemble", radius=5))
    labels = [(score[-1][1], f"score {final[1] / factor:.3g}", "ensemble")]
    if regulated:
        last = regulated[-1][1]
        labels.append((last, f"regulated {last / factor:.3g}", "mean"))
    parts += right_labels(frame, labels)
    return svg.document(parts, height=336, title=title)


def staircase(points: Sequence[Point], *, end: float) -> list[Point]:
    """A value that holds until the next one."""
    steps: list[Point] = []
    for x, y in points:
        steps += [(x, steps[-1][1])] if steps else []
        steps.append((x, y))
    return [*steps, (end, steps[-1][1])]


def error_figure(search: Search, *, target: float, title: str) -> str:
    """The best error so far over time: it falls in steps."""
    seconds = search.seconds
    steps = staircase([(one.seconds, one.error) for one in search.improvements], end=seconds)
    ticks = svg.nice_ticks(0, max(target, steps[0][1]))
    frame = Frame(x=Scale(0, seconds, 66, RIGHT), y=Scale(0, ticks.high, 282, 40))
    y = frame.y(target)
    labels = [
        (target, f"largest {target:g}", "target"),
        (steps[-1][1], f"best {steps[-1][1]:.3g}", "ensemble"),
    ]
    parts = [
        svg.y_axis(frame, ticks, title="best top-1 error so far"),
        svg.x_axis(frame, svg.time_ticks(seconds).up_to(seconds), title=X_TITLE),
        svg.line((frame.left, y), (frame.right, y), "target"),
        svg.polyline(frame.points(steps), "ensemble"),
        *right_labels(frame, labels),
    ]
    return svg.document(parts, height=336, title=title)


def operations_figure(
    trials: Mapping[int, Sequence[Point]], *, shown: int, total: float, target: float, title: str
) -> str:
    """Trial → (operations, best error) in order: how much computation an error takes."""
    factor, prefix = si_prefix(total)
    ticks = svg.nice_ticks(0, max(target, *(curve[0][1] for curve in trials.values())))
    x_ticks = svg.nice_ticks(0, total / factor).up_to(total / factor)
    frame = Frame(x=Scale(0, total / factor, 66, RIGHT), y=Scale(0, ticks.high, 282, 40))
    y = frame.y(target)
    parts = [
        svg.y_axis(frame, ticks, title="best top-1 error so far"),
        svg.x_axis(frame, x_ticks, title=f"operations of all workers, in {prefix}FLOP"),
        svg.line((frame.left, y), (frame.right, y), "target"),
    ]
    labels = [(target, f"largest {target:g}", "target")]
    for trial, curve in sorted(trials.items(), key=lambda one: one[0] == shown):
        steps = staircase([(x / factor, e) for x, e in curve], end=total / factor)
        css = "ensemble" if trial == shown else "member"
        parts.append(svg.polyline(frame.points(steps), css))
        if trial == shown:
            labels.append((steps[-1][1], f"trial {trial}", css))
    return svg.document([*parts, *right_labels(frame, labels)], height=336, title=title)


def lineage(nodes: Mapping[str, Node], best: str) -> list[Node]:
    """From the start to the best model."""
    found: list[Node] = []
    node = nodes.get(best)
    while node is not None and node not in found:
        found.append(node)
        node = nodes.get(node.parent or "")
    return found[::-1]


def error_ticks(low: float, high: float) -> svg.Ticks:
    """For a logarithmic axis: 1, 2, 3, 5, 7 of each power of ten, from below to above."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 3, 5, 7)]
    first = max(at for at, value in enumerate(every) if value <= low * (1 + 1e-9))
    last = min(at for at, value in enumerate(every) if value >= high * (1 - 1e-9))
    values = tuple(every[first : max(last, first + 1) + 1])
    return svg.Ticks(values, tuple(f"{value:g}" for value in values))


def tree_figure(nodes: Sequence[Node], *, best: str, title: str) -> str:
    """Each model by its operations and error, joined to its parent: it grows to the right."""
    known = {node.model: node for node in nodes}
    operations = [node.operations for node in nodes]
    factor, prefix = si_prefix(max(operations))
    x_ticks = svg.nice_ticks(min(operations) / factor, max(operations) / factor)
    y_ticks = error_ticks(min(n.error for n in nodes), max(n.error for n in nodes))
    frame = Frame(
        x=Scale(x_ticks.low, x_ticks.high, 66, svg.WIDTH - 30),
        y=LogScale(y_ticks.low, y_ticks.high, TREE_HEIGHT - 54, 40),
    )

    def place(node: Node) -> Point:
        return frame.x(node.operations / factor), frame.y(node.error)

    parts = [
        svg.y_axis(frame, y_ticks, title="top-1 error"),
        svg.x_axis(frame, x_ticks, title=f"operations per image, in {prefix}FLOP"),
    ]
    for node in nodes:
        if node.parent in known:
            parts.append(svg.line(place(known[node.parent]), place(node), "branch"))
    radius = 4.0 if len(nodes) <= 60 else 3.0
    for node in nodes:
        css = "member" if node.parent is not None else "point"
        parts.append(svg.dot(place(node), css, radius=radius, tip=node.tip))
    way = lineage(known, best)
    parts.append(svg.polyline([place(node) for node in way], "ensemble"))
    parts += [svg.dot(place(node), "ensemble", radius=5, tip=node.tip) for node in way[1:]]
    named = [(way[0], "start")] if len(way) > 1 else []
    for node, words in (*named, (way[-1], f"best {way[-1].error:.3g}")):
        x, y = place(node)
        right = x > (frame.left + frame.right) / 2
        at = (x - 9 if right else x + 9, min(y + 20, frame.bottom - 6))
        parts.append(svg.text(at, words, "label halo", anchor="end" if right else "start"))
    return svg.document(parts, height=TREE_HEIGHT, title=title)
