"""Names beside the points of a chart: each at the nearest place that is free.

A name keeps clear of other names and points, and of lines where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ai500.report.charts import svg
from ai500.report.charts.svg import Frame, Point

LETTER = 0.6
"""Width of a letter over the size of the text: wider than most letters are."""
BOLD = 1.15
"""Width of bold letters over that of plain ones."""
LINE_HEIGHT = 18.0


@dataclass(frozen=True)
class Box:
    """Pixels that a text may occupy."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return True if the two overlap."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


@dataclass(frozen=True)
class Label:
    """A text with its box and the point that it names."""

    text: str
    box: Box
    anchor: Point
    css: str

    @property
    def place(self) -> Point:
        """Start of the text's base line."""
        return self.box.left, self.box.bottom - 5


def text_width(text: str) -> float:
    """Return the width that a text may have, in pixels at the largest text."""
    return LETTER * svg.LARGEST_TEXT * len(text)


def place_name(
    frame: Frame,
    text: str,
    dot: Point,
    *,
    taken: Sequence[Box],
    lines: Sequence[tuple[Point, Point]],
    css: str = "point",
) -> Label:
    """Place a name at the nearest place free of names, and of lines if there is one."""
    width = BOLD * text_width(text)
    nearest = free = None
    for box in _places(frame, width, dot):
        nearest = nearest or box
        if any(box.meets(other) for other in taken):
            continue
        free = free or box
        if not any(part_inside(start, end, box) for start, end in lines):
            return Label(text, box, dot, css)
    if nearest is None:  # a name wider than the plot
        nearest = Box(dot[0], dot[1] - LINE_HEIGHT, dot[0] + text_width(text), dot[1])
    # With more names than room the nearest place is the best there is.
    return Label(text, free or nearest, dot, css)


def _places(frame: Frame, width: float, dot: Point) -> Iterator[Box]:
    """Yield places in the plot: beside, above and below a dot, then all, the nearest first."""
    x, y = dot
    beside = [(x + 9, y - 9), (x - 9 - width, y - 9), (x + 9, y + 3), (x - 9 - width, y - 21),
              (x - width / 2, y - 27), (x - width / 2, y + 9)]  # fmt: skip
    yield from _by_distance(frame, width, beside, dot)
    # A thousand places for every name: with arrays, because a list has many charts.
    lefts = np.arange(int(frame.left) + 4, int(frame.right - width), 12)
    tops = np.arange(int(frame.top), int(frame.bottom - LINE_HEIGHT), 8)
    across = np.maximum(np.maximum(lefts - x, x - (lefts + width)), 0.0)
    down = np.maximum(np.maximum(tops - y, y - (tops + LINE_HEIGHT)), 0.0)
    distances = np.hypot(across[:, None], down)
    for place in np.argsort(distances, axis=None, kind="stable").tolist():
        column, row = divmod(place, len(tops))
        left, top = float(lefts[column]), float(tops[row])
        yield Box(left, top, left + width, top + LINE_HEIGHT)


def _by_distance(frame: Frame, width: float, corners: Sequence[Point], dot: Point) -> list[Box]:
    """Return the boxes with these corners that lie in the plot, the nearest to a dot first."""
    boxes = [
        Box(left, top, left + width, top + LINE_HEIGHT)
        for left, top in corners
        if frame.left <= left and left + width <= frame.right
        and frame.top <= top and top + LINE_HEIGHT <= frame.bottom
    ]  # fmt: skip
    return sorted(boxes, key=lambda box: math.dist(_nearest(box, dot), dot))


def _nearest(box: Box, point: Point) -> Point:
    """Return the point of a box that is nearest to a point."""
    return min(max(point[0], box.left), box.right), min(max(point[1], box.top), box.bottom)


def part_inside(start: Point, end: Point, box: Box) -> tuple[Point, Point] | None:
    """Return the part of a segment inside a box; None: it is outside (Liang and Barsky 1984)."""
    first, last = 0.0, 1.0
    for low, high, at, step in (
        (box.left, box.right, start[0], end[0] - start[0]),
        (box.top, box.bottom, start[1], end[1] - start[1]),
    ):
        if step == 0:
            if not low <= at <= high:
                return None
            continue
        near, far = sorted(((low - at) / step, (high - at) / step))
        first, last = max(first, near), min(last, far)
    if first > last:
        return None
    (x, y), (width, height) = start, (end[0] - start[0], end[1] - start[1])
    return (x + first * width, y + first * height), (x + last * width, y + last * height)


def leader(label: Label) -> list[str]:
    """Draw a thin line to a name that is far from its point."""
    near = _nearest(label.box, label.anchor)
    if label.css == "slope":
        near = (min(label.anchor[0], label.box.left + 4), (label.box.top + label.box.bottom) / 2)
    elif not label.box.left <= label.anchor[0] <= label.box.right:
        near = (near[0], (label.box.top + label.box.bottom) / 2)
    far = math.dist(near, label.anchor) > 14
    return [svg.line(label.anchor, near, f"{label.css} leader")] if far else []
