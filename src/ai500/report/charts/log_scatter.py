"""Dots over a logarithmic x axis, with guide lines through them.

Named dots and guides have their names beside them; every dot has a tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ai500.report.charts import svg
from ai500.report.charts.line_chart import Level
from ai500.report.charts.names import (
    LINE_HEIGHT,
    Box,
    Label,
    leader,
    part_inside,
    place_name,
    text_width,
)
from ai500.report.charts.svg import Frame, LogScale, Point, Scale, Ticks

TOP, BOTTOM, HEIGHT = 40.0, 300.0, 354.0
RADIUS = 4.5
CLEAR = 7.0
"""Distance that names keep from the middle of a dot, in pixels."""
NAME_PLACES = 8
"""Places along a guide where its name may stand."""


@dataclass(frozen=True)
class Dot:
    """A value."""

    x: float
    y: float
    tip: str
    """Text of the tooltip."""
    name: str = ""
    """Text beside the dot; empty: none, only the tooltip."""


@dataclass(frozen=True)
class Guide:
    """A line that relates the axes: points of equal score, or proportional growth."""

    name: str
    points: Sequence[Point]
    """Positive values in the order of the line; its part outside of the axes is cut off."""


@dataclass(frozen=True)
class LogScatter:
    """Dots, guides through them, and a level across."""

    dots: Sequence[Dot]
    x_title: str
    y_title: str
    guides: Sequence[Guide] = ()
    level: Level | None = None
    y_scale: Literal["logarithmic", "linear"] = "logarithmic"

    def svg(self, title: str) -> str:
        """Draw the chart."""
        frame, x_ticks, y_ticks = self._frame()
        parts = svg.axes(frame, x_ticks, y_ticks, x_title=self.x_title, y_title=self.y_title)
        places = [(frame.x(dot.x), frame.y(dot.y)) for dot in self.dots]
        around = [Box(x - CLEAR, y - CLEAR, x + CLEAR, y + CLEAR) for x, y in places]
        lines: list[tuple[Point, Point]] = []
        labels: list[Label] = []
        if self.level is not None:
            start, end = ((x, frame.y(self.level.value)) for x in (frame.left, frame.right))
            lines.append((start, end))
            parts.append(svg.line(start, end, "target"))
            labels.append(_label(self.level.name, start, "target", shift=(6.0, -4.0)))
        for guide in self.guides:
            drawn = _inside(frame, guide.points)
            if len(drawn) > 1:
                parts.append(svg.polyline(drawn, "theoretical"))
                lines += pairwise(drawn)
                taken = [*around, *(label.box for label in labels)]
                labels.append(_guide_label(frame, guide.name, drawn, taken=taken))
        for dot, place in reversed(list(zip(self.dots, places, strict=True))):
            parts.append(svg.dot(place, "ensemble", radius=RADIUS, tip=dot.tip))
        for dot, place in zip(self.dots, places, strict=True):
            if dot.name:
                taken = [*around, *(label.box for label in labels)]
                labels.append(place_name(frame, dot.name, place, taken=taken, lines=lines))
                parts += leader(labels[-1])
        parts += [svg.text(each.place, each.text, f"{each.css} label halo") for each in labels]
        return svg.document(parts, height=HEIGHT, title=title)

    def _frame(self) -> tuple[Frame, Ticks, Ticks]:
        xs, ys = [dot.x for dot in self.dots], [dot.y for dot in self.dots]
        ys += [] if self.level is None else [self.level.value]
        logarithmic = self.y_scale == "logarithmic"
        y_ticks = (svg.log_ticks if logarithmic else svg.nice_ticks)(min(ys), max(ys))
        x_ticks = svg.log_ticks(min(xs), max(xs), limit=5)
        x = LogScale(x_ticks.low, x_ticks.high, svg.room_for(y_ticks), svg.WIDTH - 24)
        y = (LogScale if logarithmic else Scale)(y_ticks.low, y_ticks.high, BOTTOM, TOP)
        return Frame(x=x, y=y), x_ticks, y_ticks


def _inside(frame: Frame, points: Sequence[Point]) -> list[Point]:
    """Convert the part of a line that lies inside the frame to pixels."""
    box = Box(frame.left, frame.top, frame.right, frame.bottom)
    drawn: list[Point] = []
    for start, end in pairwise(frame.points(points)):
        if part := part_inside(start, end, box):
            drawn += part[1:] if drawn else part
    return drawn


def _guide_label(frame: Frame, name: str, drawn: Sequence[Point], *, taken: Sequence[Box]) -> Label:
    """Name a line beside its highest part that is free of dots and of other names."""
    start, end = min((drawn[0], drawn[-1]), (drawn[-1], drawn[0]), key=lambda ends: ends[0][1])
    candidates = []
    for part in range(NAME_PLACES):
        share = part / NAME_PLACES
        point = (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
        for shift in (-8 - text_width(name), 8.0):
            if frame.left <= point[0] + shift <= frame.right - text_width(name):
                candidates.append(_label(name, point, "theoretical", shift=(shift, 20.0)))
    free = (each for each in candidates if not any(each.box.meets(box) for box in taken))
    highest = _label(name, start, "theoretical", shift=(-8 - text_width(name), 20.0))
    return next(free, candidates[0] if candidates else highest)


def _label(text: str, point: Point, css: str, *, shift: Point) -> Label:
    """Put a line's name at a distance from one of its points."""
    left, bottom = point[0] + shift[0], point[1] + shift[1]
    box = Box(left, bottom - LINE_HEIGHT, left + text_width(text), bottom)
    return Label(text, box, point, css)
