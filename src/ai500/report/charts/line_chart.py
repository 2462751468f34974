"""Curves and dots over two axes, each curve named at the right edge.

A value whose speed is not meaningful is a hollow dot that no line joins: a line would be a claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.report.charts import svg
from ai500.report.charts.svg import Frame, Point, Scale, Ticks

BOTTOM, HEIGHT = 282.0, 336.0
ROOM_FOR_LABELS = 158.0
"""Pixels at the right edge for the names of curves."""
SOME_DOTS = 15
"""Dots of a curve that has some, at most twice as many."""
MOST_TICKS_EACH = 8
"""Consecutive whole x values up to which each has a tick of its own."""

Style = Literal["ensemble", "mean", "member", "target", "theoretical", "trial"]
"""Class in the style sheet: blue, orange, thin grey, dashed, dashed grey, faint orange."""


@dataclass(frozen=True)
class Value:
    """A point of a series."""

    x: float
    y: float
    trusted: bool = True
    """False: the speed is not meaningful."""
    low: float | None = None
    """Lowest value of the trials or devices that `y` is the mean of."""
    high: float | None = None
    tip: str = ""
    """Text of the tooltip; empty: the coordinates by the names of the axes."""


@dataclass(frozen=True)
class Series:
    """Values that belong together."""

    name: str
    """Label at the right edge; empty: no label."""
    values: Sequence[Value]
    style: Style
    dots: Literal["all", "some", "none"] = "all"
    published: bool = False
    """True for values of a paper, measured on its own machine."""
    band: bool = False
    """True: `low` to `high` is an area; False: a vertical line at each value."""


@dataclass(frozen=True)
class Level:
    """A value that holds for the whole x axis, drawn across the chart."""

    name: str
    value: float
    style: Style


@dataclass(frozen=True)
class Mark:
    """A large dot, with an optional text above it."""

    x: float
    y: float
    style: Style
    text: str = ""


@dataclass(frozen=True)
class Legend:
    """One entry of the legend: a stroke in its style, and its text."""

    style: Style
    lines: Sequence[str]


@dataclass(frozen=True)
class LineChart:
    """Several series over one x axis."""

    series: Sequence[Series]
    x_title: str
    y_title: str
    levels: Sequence[Level] = ()
    x_ticks: Ticks | None = None
    """None: round values that enclose the data."""
    y_ticks: Ticks | None = None
    x_start: float | None = None
    """Start of the x axis; None: its first tick."""
    x_end: float | None = None
    """End of the x axis; None: its last tick."""
    from_zero: bool = True
    """True: the y axis begins at zero."""
    whole_x: bool = True
    """True: ticks of the x axis are whole numbers."""
    marks: Sequence[Mark] = ()
    verticals: Sequence[float] = ()
    """x values of dashed vertical lines."""
    legend: Sequence[Legend] = ()
    joined_labels: bool = False
    """True: a thin line joins the last point of each series with its label."""

    def svg(self, title: str) -> str:
        """Draw the chart."""
        drawn = [series for series in self.series if series.values]
        frame, x_ticks, y_ticks = self._frame(drawn)
        parts = svg.axes(frame, x_ticks, y_ticks, x_title=self.x_title, y_title=self.y_title)
        labels = []
        for level in self.levels:
            edge = (frame.right, frame.y(level.value))
            parts.append(svg.line((frame.left, edge[1]), edge, level.style))
            labels.append((edge, level.name, level.style))
        for series in drawn:
            parts += _series(frame, series, axes=(self.x_title, self.y_title))
            if series.name:
                last = series.values[-1]
                x = frame.x(last.x) if self.joined_labels else frame.right
                labels.append(((x, frame.y(last.y)), series.name, series.style))
        for x in self.verticals:
            parts.append(svg.line((frame.x(x), frame.top), (frame.x(x), frame.bottom), "target"))
        for mark in self.marks:
            parts += _mark(frame, mark, axes=(self.x_title, self.y_title))
        parts += right_labels(frame, labels)
        parts += _legend(frame, self.legend)
        return svg.document(parts, height=HEIGHT, title=title)

    def _frame(self, drawn: Sequence[Series]) -> tuple[Frame, Ticks, Ticks]:
        ys = [end for series in drawn for value in series.values for end in _ends(value)]
        ys += [level.value for level in self.levels]
        y_ticks = self.y_ticks or svg.nice_ticks(min([0.0, *ys] if self.from_zero else ys), max(ys))
        x_ticks = self.x_ticks or _x_ticks(
            [value.x for series in drawn for value in series.values], whole=self.whole_x
        )
        named = self.levels or self.legend or any(series.name for series in drawn)
        right = svg.WIDTH - (ROOM_FOR_LABELS if named else 40)
        x_start = x_ticks.low if self.x_start is None else self.x_start
        x_end = x_ticks.high if self.x_end is None else self.x_end
        top = 64 if any(mark.text for mark in self.marks) else 40
        return (
            Frame(
                x=Scale(x_start, x_end, svg.room_for(y_ticks), right),
                y=Scale(y_ticks.low, y_ticks.high, BOTTOM, top),
            ),
            x_ticks,
            y_ticks,
        )


def curve(
    points: Sequence[Point],
    style: Style,
    *,
    name: str = "",
    dots: Literal["all", "some", "none"] = "none",
) -> Series:
    """Return a series of plain (x, y) points."""
    return Series(name, [Value(x, y) for x, y in points], style, dots)


def staircase(points: Sequence[Point], *, end: float) -> list[Point]:
    """Insert points so that each value holds until the next one, and the last until `end`."""
    steps: list[Point] = []
    for x, y in points:
        steps += [(x, steps[-1][1])] if steps else []
        steps.append((x, y))
    return [*steps, (end, steps[-1][1])]


def right_labels(frame: Frame, labels: Sequence[tuple[Point, str, str]]) -> list[str]:
    """Name points at the right edge; labels move apart where they would touch."""
    heights = [point[1] for point, _, _ in labels]
    placed = svg.spread(heights, gap=svg.LABEL_GAP, low=frame.top, high=frame.bottom)
    parts = []
    for (point, name, style), y in zip(labels, placed, strict=True):
        parts.append(svg.line(point, (frame.right + 12, y), f"{style} leader"))
        parts.append(svg.text((frame.right + 16, y + 5), name, f"{style} label"))
    return parts


def _ends(value: Value) -> list[float]:
    return [end for end in (value.y, value.low, value.high) if end is not None]


def _x_ticks(xs: Sequence[float], *, whole: bool) -> Ticks:
    """Return a tick for every value if they are few and consecutive, else round values."""
    known = sorted(set(xs))
    if whole and len(known) <= MOST_TICKS_EACH and known[-1] - known[0] == len(known) - 1:
        low, high = known[0] - 0.5, known[-1] + 0.5
        return Ticks((low, *known, high), ("", *(f"{value:g}" for value in known), ""))
    return svg.nice_ticks(0.0, known[-1], whole=whole)


def value_text(x: float, y: float, *, axes: tuple[str, str], name: str = "") -> str:
    """Describe a point by its axes, for its tooltip."""
    of = f"{name}: " if name else ""
    return f"{of}{axes[1]} {y:.4g} at {axes[0]} {x:.6g}"


def _series(frame: Frame, series: Series, *, axes: tuple[str, str]) -> list[str]:
    parts = []
    if series.band:
        known = [v for v in series.values if v.low is not None and v.high is not None]
        lows = frame.points((value.x, value.low or 0.0) for value in known)
        highs = frame.points((value.x, value.high or 0.0) for value in known)
        parts.append(svg.polygon([*lows, *reversed(highs)], "band"))
    points = frame.points((value.x, value.y) for value in series.values if value.trusted)
    if len(points) > 1 or (points and series.dots == "none"):
        parts.append(svg.polyline(points, series.style))
    if series.dots == "none":
        return parts
    # Dots tell a curve from others without colour.
    step = max(1, len(series.values) // SOME_DOTS) if series.dots == "some" else 1
    style = "member" if series.published else series.style
    for value in series.values[::step]:
        x = frame.x(value.x)
        spread = value.low is not None and value.high is not None and value.high > value.low
        if spread and not series.band:
            ends = (x, frame.y(value.low or 0.0)), (x, frame.y(value.high or 0.0))
            parts.append(svg.line(*ends, f"{series.style} leader"))
        css = style if value.trusted else f"{style} hollow"
        tip = value.tip or value_text(value.x, value.y, axes=axes)
        if spread:
            tip += f" ({value.low:.4g} to {value.high:.4g})"
        if not value.trusted:
            tip += ", speed not meaningful"
        parts.append(svg.dot((x, frame.y(value.y)), css, tip=tip))
    return parts


def _mark(frame: Frame, mark: Mark, *, axes: tuple[str, str]) -> list[str]:
    x, y = frame.x(mark.x), frame.y(mark.y)
    tip = value_text(mark.x, mark.y, axes=axes, name=mark.text)
    parts = [svg.dot((x, y), mark.style, radius=5, tip=tip)]
    if mark.text:
        anchor = "start" if x < (frame.left + frame.right) / 2 else "end"
        parts.append(svg.text((x, y - 12), mark.text, f"{mark.style} label", anchor=anchor))
    return parts


def _legend(frame: Frame, legend: Sequence[Legend]) -> list[str]:
    parts = []
    x, y = frame.right + 14, frame.top + 6
    for entry in legend:
        parts.append(svg.line((x, y), (x + 30, y), entry.style))
        for text in entry.lines:
            y += svg.LABEL_GAP
            css = "tick" if entry.style == "member" else f"{entry.style} label"
            parts.append(svg.text((x, y), text, css))
        y += 2 * svg.LABEL_GAP
    return parts
