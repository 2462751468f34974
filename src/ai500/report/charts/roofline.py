"""Log–log rooflines (V2 Fig. 9): ceilings, slopes and points, each with a label of its own.

Ceilings are named at the right edge, slopes above the plot, a row each, points beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ai500.core.units import human_bytes, human_si
from ai500.report.charts import svg
from ai500.report.charts.names import LINE_HEIGHT, Box, Label, leader, place_name, text_width
from ai500.report.charts.svg import Frame, LogScale, Point, Scale, Ticks

LEFT, TOP = 60.0, 44.0
ROW = 20.0
"""Height of the row of a slope's name above the plot, in pixels."""
TO_LABEL = 16.0
"""Distance from the plot's right edge to the names of its ceilings, in pixels."""
FEWEST_DECADES = 3
"""Powers of ten that an axis needs, to have no other ticks."""
NO_TICKS = Ticks((), ())


@dataclass(frozen=True)
class Roof:
    """A computation ceiling."""

    name: str
    flops: float
    theoretical: bool = False


@dataclass(frozen=True)
class Slope:
    """A communication ceiling."""

    name: str
    bytes_per_second: float


@dataclass(frozen=True)
class Mark:
    """A workload; with `coi` None it sends nothing, and is at the right edge."""

    name: str
    coi: float | None
    flops: float


@dataclass(frozen=True)
class Layout:
    """A roofline, ready to draw."""

    frame: Frame
    flats: Sequence[tuple[Roof, Point, Point]]
    slants: Sequence[tuple[Slope, Point, Point]]
    dots: Sequence[Point]
    labels: Sequence[Label]
    bottom: float


@dataclass(frozen=True)
class RooflineChart:
    """Ceilings of computation and communication, and the workloads under them."""

    roofs: Sequence[Roof]
    slopes: Sequence[Slope]
    marks: Sequence[Mark]
    x_title: str = "COI: FLOP per byte sent"

    def svg(self, title: str) -> str:
        """Draw the chart."""
        plot = layout(self.roofs, self.slopes, self.marks)
        x_ticks, y_ticks = _ticks(plot.frame.x), _ticks(plot.frame.y)
        if not self.slopes and all(mark.coi is None for mark in self.marks):
            x_ticks = NO_TICKS  # nothing is sent: the axis has no scale
        parts = svg.axes(plot.frame, x_ticks, y_ticks, x_title=self.x_title, y_title="FLOPS")
        for roof, start, end in plot.flats:
            parts.append(svg.line(start, end, "roof theoretical" if roof.theoretical else "roof"))
        parts += [svg.line(start, end, "slope") for _, start, end in plot.slants]
        for mark, place in zip(self.marks, plot.dots, strict=True):
            at = "" if mark.coi is None else f", {self.x_title.rpartition(': ')[2]}: {mark.coi:.4g}"
            tip = f"{mark.name}: {human_si(mark.flops)}FLOPS{at}"
            parts.append(svg.dot(place, "point", radius=5.5, tip=tip))
        for label in plot.labels:
            parts += leader(label)
            parts.append(svg.text(label.place, label.text, f"{label.css} label halo"))
        return svg.document(parts, height=plot.bottom + 54, title=title)


def layout(roofs: Sequence[Roof], slopes: Sequence[Slope], marks: Sequence[Mark]) -> Layout:
    """Compute lines, dots and labels in pixels."""
    top = TOP + ROW * len(slopes)
    bottom = top + max(300.0, svg.LABEL_GAP * (len(roofs) + 1))
    frame = _frame(roofs, slopes, marks, top=top, bottom=bottom)
    fastest = max((slope.bytes_per_second for slope in slopes), default=None)
    flats = [(roof, *_flat(frame, roof, fastest)) for roof in roofs]
    highest = max(roof.flops for roof in roofs)
    slants = [(slope, *_slant(frame, slope, highest)) for slope in slopes]
    dots = [(frame.right if mark.coi is None else frame.x(mark.coi), frame.y(mark.flops))
            for mark in marks]  # fmt: skip
    labels = [*_roof_labels(frame, roofs), *_slope_labels(slants)]
    lines = [(start, end) for _, start, end in (*flats, *slants)]
    around = [Box(x - 7, y - 7, x + 7, y + 7) for x, y in dots]
    for mark, dot in zip(marks, dots, strict=True):
        taken = [*around, *(label.box for label in labels)]
        labels.append(place_name(frame, mark.name, dot, taken=taken, lines=lines))
    return Layout(frame, flats, slants, dots, labels, bottom)


def _frame(
    roofs: Sequence[Roof],
    slopes: Sequence[Slope],
    marks: Sequence[Mark],
    *,
    top: float,
    bottom: float,
) -> Frame:
    flops = [*(roof.flops for roof in roofs), *(mark.flops for mark in marks)]
    intensities = [mark.coi for mark in marks if mark.coi is not None]
    for slope in slopes:
        rate = slope.bytes_per_second
        intensities += [roof.flops / rate for roof in roofs]
    intensities = intensities or [1.0]
    x_low, x_high = min(intensities) / 4, max(intensities) * 4
    y_low, y_high = min(flops) / 4, max(flops) * 1.6
    names = max(text_width(_roof_text(roof)) for roof in roofs)
    return Frame(
        x=LogScale(x_low, x_high, LEFT, svg.WIDTH - names - TO_LABEL),
        y=LogScale(y_low, y_high, bottom, top),
    )


def _ticks(scale: Scale) -> Ticks:
    """Return the powers of ten on an axis; on a short one the round values between them, too."""
    decades = svg.decade_ticks(scale.low, scale.high).inside(scale)
    if len(decades.values) >= FEWEST_DECADES:
        return decades
    return svg.log_ticks(scale.low, scale.high).inside(scale)


def _flat(frame: Frame, roof: Roof, fastest: float | None) -> tuple[Point, Point]:
    """Return a ceiling's line, from where the fastest links reach it."""
    y = frame.y(roof.flops)
    start = frame.left
    if fastest is not None:
        start = frame.x(roof.flops / fastest)
    return (start, y), (frame.right, y)


def _slant(frame: Frame, slope: Slope, highest: float) -> tuple[Point, Point]:
    """Return a slope's line, from the edge of the plot up to the highest ceiling."""
    rate = slope.bytes_per_second
    low = max(frame.x.low, frame.y.low / rate)
    high = min(frame.x.high, highest / rate)
    return (frame.x(low), frame.y(low * rate)), (frame.x(high), frame.y(high * rate))


def _slope_labels(slants: Sequence[tuple[Slope, Point, Point]]) -> list[Label]:
    """Name slopes from left to right, each in a row below the last: no leader crosses a name."""
    labels = []
    for row, (slope, _, end) in enumerate(sorted(slants, key=lambda slant: slant[2][0])):
        text = f"{slope.name} {human_bytes(slope.bytes_per_second)}/s"
        left = min(end[0] + 6, svg.WIDTH - text_width(text))
        top = TOP - 20 + ROW * row
        labels.append(
            Label(text, Box(left, top, left + text_width(text), top + LINE_HEIGHT), end, "slope")
        )
    return labels


def _roof_labels(frame: Frame, roofs: Sequence[Roof]) -> list[Label]:
    heights = [frame.y(roof.flops) for roof in roofs]
    placed = _balanced(heights, low=frame.top, high=frame.bottom)
    labels = []
    for roof, y, middle in zip(roofs, heights, placed, strict=True):
        text = _roof_text(roof)
        left, top = frame.right + TO_LABEL, middle - LINE_HEIGHT / 2
        box = Box(left, top, left + text_width(text), top + LINE_HEIGHT)
        css = "roof theoretical" if roof.theoretical else "roof"
        labels.append(Label(text, box, (frame.right, y), css))
    return labels


def _roof_text(roof: Roof) -> str:
    return f"{roof.name} {human_si(roof.flops).strip()}"


def _balanced(heights: Sequence[float], *, low: float, high: float) -> list[float]:
    """Move labels apart, up as far as down: the mean of both keeps every distance."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    down = svg.spread([heights[i] for i in order], gap=svg.LABEL_GAP, low=low, high=high)
    turned = [-heights[i] for i in reversed(order)]
    up = svg.spread(turned, gap=svg.LABEL_GAP, low=-high, high=-low)
    placed = [0.0] * len(heights)
    for index, lower, upper in zip(order, down, reversed(up), strict=True):
        placed[index] = (lower - upper) / 2
    return placed
