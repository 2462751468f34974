"""The charts that studies share: pure functions of numbers to SVG.

A value whose speed is doubted is a hollow dot that no line joins: a line would be a claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ai500.report import svg
from ai500.report.figures import Level, right_labels
from ai500.report.svg import Frame, Point, Scale, Ticks

ROOM_FOR_LABELS = 158
CHARACTER = 8.8
"""Width of one in a row's name."""
ROW_HEIGHT = 30.0


@dataclass(frozen=True)
class Value:
    """One place of a series; `low` and `high` are those of its trials."""

    x: float
    y: float
    trusted: bool = True
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Values that belong together, named at the right edge."""

    name: str
    values: Sequence[Value]
    css: str
    dots: bool = True
    published: bool = False
    """Of a paper, on its own machine."""


@dataclass(frozen=True)
class Labelled:
    """A place with a name, and a second value of the same thing below or above it."""

    name: str
    x: float
    y: float
    other: float | None
    trusted: bool = True


@dataclass(frozen=True)
class Strip:
    """A named row of values."""

    name: str
    values: Sequence[float]
    css: str = "ensemble"
    trusted: bool = True
    others: Sequence[float] = ()
    """A second quantity, in the colour of means."""


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_title: str,
    y_title: str,
    levels: Sequence[Level] = (),
    from_zero: bool = True,
    whole_x: bool = True,
) -> str:
    """Several series over one axis."""
    drawn = [one for one in series if one.values]
    xs = [value.x for one in drawn for value in one.values]
    ys = [end for one in drawn for value in one.values for end in _ends(value)]
    ys += [level.value for level in levels]
    ticks = svg.nice_ticks(min([0.0, *ys] if from_zero else ys), max(ys))
    x_ticks = _x_ticks(xs, whole=whole_x)
    frame = Frame(
        x=Scale(x_ticks.low, x_ticks.high, 70, svg.WIDTH - ROOM_FOR_LABELS),
        y=Scale(ticks.low, ticks.high, 282, 40),
    )
    parts = [svg.y_axis(frame, ticks, title=y_title), svg.x_axis(frame, x_ticks, title=x_title)]
    labels = [(level.value, level.name, level.css) for level in levels]
    for level in levels:
        y = frame.y(level.value)
        parts.append(svg.line((frame.left, y), (frame.right, y), level.css))
    for one in drawn:
        parts += _series(frame, one)
        labels.append((one.values[-1].y, one.name, one.css))
    parts += right_labels(frame, labels)
    return svg.document(parts, height=336, title=title)


def _ends(value: Value) -> list[float]:
    return [end for end in (value.y, value.low, value.high) if end is not None]


def _x_ticks(xs: Sequence[float], *, whole: bool) -> Ticks:
    """Every value where they are few and even, so that a dot stands over its number."""
    known = sorted(set(xs))
    if whole and len(known) <= 8 and known[-1] - known[0] == len(known) - 1:
        low, high = known[0] - 0.5, known[-1] + 0.5
        values = (low, *known, high)
        return Ticks(values, ("", *(f"{value:g}" for value in known), ""))
    return svg.nice_ticks(0.0, known[-1], whole=whole)


def _series(frame: Frame, one: Series) -> list[str]:
    trusted = [(value.x, value.y) for value in one.values if value.trusted]
    parts = []
    if len(trusted) > 1:
        parts.append(svg.polyline(frame.points(trusted), one.css))
    if not one.dots:
        return parts
    for value in one.values:
        x = frame.x(value.x)
        if value.low is not None and value.high is not None and value.high > value.low:
            ends = (x, frame.y(value.low)), (x, frame.y(value.high))
            parts.append(svg.line(*ends, f"{one.css} leader"))
        css = "member" if one.published else one.css
        parts.append(svg.dot((x, frame.y(value.y)), css if value.trusted else f"{css} hollow"))
    return parts


def places(points: Sequence[Labelled], *, title: str, x_title: str, y_title: str) -> str:
    """Each thing at its place, named; its other value joined to it by a thin line."""
    ys = [y for one in points for y in (one.y, one.other) if y is not None]
    xs = [one.x for one in points]
    ticks = svg.nice_ticks(min(ys), max(ys))
    x_ticks = svg.nice_ticks(0.0, max(xs), most=5)
    frame = Frame(
        x=Scale(0.0, x_ticks.high, 70, svg.WIDTH - 20), y=Scale(ticks.low, ticks.high, 300, 58)
    )
    parts = [svg.y_axis(frame, ticks, title=y_title), svg.x_axis(frame, x_ticks, title=x_title)]
    named: list[tuple[Point, str, str]] = []
    for one in points:
        at = (frame.x(one.x), frame.y(one.y))
        hollow = "" if one.trusted else " hollow"
        if one.other is not None and one.other != one.y:
            other = (at[0], frame.y(one.other))
            parts += [svg.line(at, other, "member"), svg.dot(other, f"mean{hollow}", radius=4)]
        parts.append(svg.dot(at, f"ensemble{hollow}", radius=5))
        named.append((at, one.name, "end" if at[0] > (frame.left + frame.right) / 2 else "start"))
    return svg.document([*parts, *_names(frame, named)], height=354, title=title)


def _names(frame: Frame, named: Sequence[tuple[Point, str, str]]) -> list[str]:
    """Beside their dots, those of each half moved apart."""
    parts = []
    for anchor, shift in (("start", 12), ("end", -12)):
        mine = [(at, name) for at, name, side in named if side == anchor]
        wanted = [at[1] for at, _ in mine]
        gap = svg.LABEL_GAP
        heights = svg.spread(wanted, gap=gap, low=frame.top, high=frame.bottom - 8)
        for (at, name), y in zip(mine, heights, strict=True):
            if abs(y - at[1]) > 2:
                parts.append(svg.line(at, (at[0] + 0.7 * shift, y), "member"))
            parts.append(svg.text((at[0] + shift, y + 5), name, "label halo", anchor=anchor))
    return parts


def strips(rows: Sequence[Strip], *, title: str, x_title: str, reference: float | None) -> str:
    """Rows of dots over one axis, and a reference across them."""
    room = 20 + CHARACTER * max(len(row.name) for row in rows)
    values = [value for row in rows for value in (*row.values, *row.others)]
    known = values if reference is None else [*values, reference]
    bottom = 16 + ROW_HEIGHT * len(rows)
    ticks = svg.nice_ticks(min(known), max(known), most=5)
    frame = Frame(x=Scale(ticks.low, ticks.high, room, svg.WIDTH - 24), y=Scale(0, 1, bottom, 16))
    parts = [svg.x_axis(frame, ticks, title=x_title)]
    if reference is not None:
        x = frame.x(reference)
        parts.append(svg.line((x, frame.top - 6), (x, bottom), "target"))
    for index, row in enumerate(rows):
        y = frame.top + ROW_HEIGHT * (index + 0.5)
        parts.append(svg.text((frame.left - 10, y + 5), row.name, "tick", anchor="end"))
        parts.append(svg.line((frame.left, y), (frame.right, y), "grid"))
        hollow = "" if row.trusted else " hollow"
        parts += [svg.dot((frame.x(value), y), f"mean{hollow}", radius=4) for value in row.others]
        parts += [
            svg.dot((frame.x(value), y), f"{row.css}{hollow}", radius=5) for value in row.values
        ]
    return svg.document(parts, height=bottom + 54, title=title)
