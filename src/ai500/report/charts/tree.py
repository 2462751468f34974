"""A tree of points on a linear and a logarithmic axis, with the path to the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ai500.report.charts import svg
from ai500.report.charts.names import Box, leader, place_name
from ai500.report.charts.svg import Frame, LogScale, Scale, Ticks

HEIGHT = 400.0
MANY_NODES = 60
"""Nodes above which the dots are smaller."""
CLEAR = 7.0
"""Distance that names keep from the middle of a dot, in pixels."""


@dataclass(frozen=True)
class Node:
    """A point of the tree."""

    name: str
    parent: str | None
    x: float
    y: float
    """Positive: the axis is logarithmic."""
    tip: str


@dataclass(frozen=True)
class Tree:
    """Nodes joined to their parents."""

    nodes: Sequence[Node]
    best: str
    """Name of the node whose path from the root is drawn thick."""
    x_title: str
    y_title: str

    def svg(self, title: str) -> str:
        """Draw the chart."""
        nodes = {node.name: node for node in self.nodes}
        x_ticks = svg.nice_ticks(min(n.x for n in self.nodes), max(n.x for n in self.nodes))
        y_ticks = log_ticks(min(n.y for n in self.nodes), max(n.y for n in self.nodes))
        frame = Frame(
            x=Scale(x_ticks.low, x_ticks.high, svg.room_for(y_ticks), svg.WIDTH - 30),
            y=LogScale(y_ticks.low, y_ticks.high, HEIGHT - 54, 40),
        )
        places = {node.name: (frame.x(node.x), frame.y(node.y)) for node in self.nodes}
        parts = svg.axes(frame, x_ticks, y_ticks, x_title=self.x_title, y_title=self.y_title)
        for node in self.nodes:
            if node.parent in places:
                parts.append(svg.line(places[node.parent], places[node.name], "branch"))
        radius = 4.0 if len(nodes) <= MANY_NODES else 3.0
        for node in self.nodes:
            css = "member" if node.parent is not None else "point"
            parts.append(svg.dot(places[node.name], css, radius=radius, tip=node.tip))
        path = lineage(nodes, self.best)
        parts.append(svg.polyline([places[node.name] for node in path], "ensemble"))
        for node in path[1:]:
            parts.append(svg.dot(places[node.name], "ensemble", radius=5, tip=node.tip))
        names = [(path[0], "start")] if len(path) > 1 else []
        names.append((path[-1], f"best {path[-1].y:.3g}"))
        taken = [Box(x - CLEAR, y - CLEAR, x + CLEAR, y + CLEAR) for x, y in places.values()]
        lines = list(pairwise(places[node.name] for node in path))
        for node, name in names:
            label = place_name(frame, name, places[node.name], taken=taken, lines=lines)
            taken.append(label.box)
            parts += [*leader(label), svg.text(label.place, name, f"{label.css} label halo")]
        return svg.document(parts, height=HEIGHT, title=title)


def lineage(nodes: Mapping[str, Node], best: str) -> list[Node]:
    """Return the nodes from the root to the best one; parents in a circle end the path."""
    path: list[Node] = []
    node = nodes.get(best)
    while node is not None and node not in path:
        path.append(node)
        node = nodes.get(node.parent or "")
    return path[::-1]


def log_ticks(low: float, high: float) -> Ticks:
    """Return 1, 2, 3, 5, 7 of each power of ten, enclosing [low, high]."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 3, 5, 7)]
    first = max(index for index, value in enumerate(every) if value <= low * (1 + 1e-9))
    last = min(index for index, value in enumerate(every) if value >= high * (1 - 1e-9))
    values = tuple(every[first : max(last, first + 1) + 1])
    return Ticks(values, tuple(f"{value:g}" for value in values))
