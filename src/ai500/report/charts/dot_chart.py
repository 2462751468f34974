"""Dots in named rows over one axis, and named dots over two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ai500.report.charts import svg
from ai500.report.charts.bars import CHARACTER
from ai500.report.charts.line_chart import Style, value_text
from ai500.report.charts.svg import Frame, Point, Scale

ROW_HEIGHT = 30.0
TALLEST = 560.0
"""Height of all rows together, in pixels; many rows become thinner."""


@dataclass(frozen=True)
class DotRow:
    """A named row of values."""

    name: str
    values: Sequence[float]
    style: Style = "ensemble"
    trusted: bool = True
    """False: the values are speeds that are not meaningful, drawn hollow."""
    secondary: Sequence[float] = ()
    """Values of a second quantity, in the colour of means."""


@dataclass(frozen=True)
class DotRows:
    """Rows of dots over one axis, and a reference across them."""

    rows: Sequence[DotRow]
    x_title: str
    reference: float | None = None
    reference_name: str = ""

    def svg(self, title: str) -> str:
        """Draw the chart."""
        room = 20 + CHARACTER * max(len(row.name) for row in self.rows)
        values = [value for row in self.rows for value in (*row.values, *row.secondary)]
        values += [] if self.reference is None else [self.reference]
        top = 44.0 if self.reference_name else 16.0
        height = min(ROW_HEIGHT, TALLEST / len(self.rows))
        bottom = top + height * len(self.rows)
        ticks = svg.nice_ticks(min(values), max(values), most=5)
        scale = Scale(ticks.low, ticks.high, room, svg.WIDTH - 40)
        frame = Frame(x=scale, y=Scale(0, 1, bottom, top))
        parts = [svg.x_axis(frame, ticks, title=self.x_title)]
        if self.reference is not None:
            x = frame.x(self.reference)
            parts.append(svg.line((x, top - 6), (x, bottom), "target"))
            parts.append(svg.text((x, top - 16), self.reference_name, "label", anchor="middle"))
        last_label = -math.inf
        for index, row in enumerate(self.rows):
            y = top + height * (index + 0.5)
            if y - last_label >= svg.LABEL_GAP:
                parts.append(svg.text((room - 10, y + 5), row.name, "tick", anchor="end"))
                last_label = y
            parts.append(svg.line((frame.left, y), (frame.right, y), "grid"))
            hollow = "" if row.trusted else " hollow"
            for x in row.secondary:
                tip = f"{row.name}: {x:.4g}"
                parts.append(svg.dot((frame.x(x), y), f"mean{hollow}", radius=4, tip=tip))
            for x in row.values:
                tip = f"{row.name}: {x:.4g}"
                parts.append(svg.dot((frame.x(x), y), f"{row.style}{hollow}", radius=5, tip=tip))
        return svg.document(parts, height=bottom + 54, title=title)


@dataclass(frozen=True)
class NamedDot:
    """A dot with its name, and a second y value of the same thing."""

    name: str
    x: float
    y: float
    other_y: float | None
    trusted: bool = True


@dataclass(frozen=True)
class Scatter:
    """Named dots; the second value of each is joined to it by a thin line."""

    dots: Sequence[NamedDot]
    x_title: str
    y_title: str

    def svg(self, title: str) -> str:
        """Draw the chart."""
        ys = [y for dot in self.dots for y in (dot.y, dot.other_y) if y is not None]
        ticks = svg.nice_ticks(min(ys), max(ys))
        x_ticks = svg.nice_ticks(0.0, max(dot.x for dot in self.dots), most=5)
        frame = Frame(
            x=Scale(0.0, x_ticks.high, svg.room_for(ticks), svg.WIDTH - 20),
            y=Scale(ticks.low, ticks.high, 300, 58),
        )
        parts = svg.axes(frame, x_ticks, ticks, x_title=self.x_title, y_title=self.y_title)
        axes = (self.x_title, self.y_title)
        for dot in self.dots:
            point = (frame.x(dot.x), frame.y(dot.y))
            hollow = "" if dot.trusted else " hollow"
            if dot.other_y is not None and dot.other_y != dot.y:
                other = (point[0], frame.y(dot.other_y))
                parts.append(svg.line(point, other, "member"))
                tip = value_text(dot.x, dot.other_y, axes=axes, name=dot.name)
                parts.append(svg.dot(other, f"mean{hollow}", radius=4, tip=tip))
            tip = value_text(dot.x, dot.y, axes=axes, name=dot.name)
            parts.append(svg.dot(point, f"ensemble{hollow}", radius=5, tip=tip))
        return svg.document([*parts, *_names(frame, self.dots)], height=354, title=title)


def _names(frame: Frame, dots: Sequence[NamedDot]) -> list[str]:
    """Name the dots beside them, towards the middle; names of each half are moved apart."""
    middle = (frame.left + frame.right) / 2
    points = [((frame.x(dot.x), frame.y(dot.y)), dot.name) for dot in dots]
    left = [named for named in points if named[0][0] <= middle]
    right = [named for named in points if named[0][0] > middle]
    return [*_beside(frame, left, "start", 12), *_beside(frame, right, "end", -12)]


def _beside(
    frame: Frame, named: Sequence[tuple[Point, str]], anchor: str, shift: float
) -> list[str]:
    parts = []
    heights = svg.spread(
        [y for (_, y), _ in named], gap=svg.LABEL_GAP, low=frame.top, high=frame.bottom - 8
    )
    for ((x, y), name), label_y in zip(named, heights, strict=True):
        if abs(label_y - y) > 2:
            parts.append(svg.line((x, y), (x + 0.7 * shift, label_y), "member"))
        parts.append(svg.text((x + shift, label_y + 5), name, "label halo", anchor=anchor))
    return parts
