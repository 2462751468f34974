"""The parts of an SVG chart: scales, ticks, axes, labels that keep their distance.

Colours and type come from the page's style sheet by class, so that a figure follows light, dark
and print. Layouts leave room for text of `LARGEST_TEXT`, its size on narrow screens.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ai500.core.units import human_si

WIDTH = 560
"""Width of every chart, in pixels of its own coordinates."""
LARGEST_TEXT = 16
LABEL_GAP = LARGEST_TEXT + 3
"""Distance of two labels' base lines, at least."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """A linear map of values to pixels."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


@dataclass(frozen=True)
class LogScale(Scale):
    """A logarithmic map; all values are positive."""

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.first + share * (self.last - self.first)


@dataclass(frozen=True)
class Ticks:
    """Places on an axis, each with its text."""

    values: tuple[float, ...]
    labels: tuple[str, ...]

    @property
    def low(self) -> float:
        """Start of the axis."""
        return self.values[0]

    @property
    def high(self) -> float:
        """End of the axis."""
        return self.values[-1]

    def up_to(self, end: float) -> Ticks:
        """Drop the ticks after `end`, for an axis that ends with the data."""
        count = sum(value <= end for value in self.values)
        return Ticks(self.values[:count], self.labels[:count])

    def inside(self, scale: Scale) -> Ticks:
        """Drop the ticks outside of an axis."""
        shown = [i for i, value in enumerate(self.values) if scale.low <= value <= scale.high]
        return Ticks(tuple(self.values[i] for i in shown), tuple(self.labels[i] for i in shown))


@dataclass(frozen=True)
class Frame:
    """The plotting area: its scales and its edges in pixels."""

    x: Scale
    y: Scale

    @property
    def left(self) -> float:
        """Left edge in pixels."""
        return self.x.first

    @property
    def right(self) -> float:
        """Right edge in pixels."""
        return self.x.last

    @property
    def bottom(self) -> float:
        """Lower edge in pixels; y grows downwards."""
        return self.y.first

    @property
    def top(self) -> float:
        """Upper edge in pixels."""
        return self.y.last

    def points(self, values: Iterable[Point]) -> list[Point]:
        """Convert values to pixels."""
        return [(self.x(x), self.y(y)) for x, y in values]


def nice_ticks(low: float, high: float, *, most: int = 6, whole: bool = False) -> Ticks:
    """Return at most `most` round values that enclose both ends; `whole`: no fractions."""
    low, high = min(low, high), max(low, high)
    if (high - low) / most <= sys.float_info.min:
        margin = abs(low) * 0.1 or 1.0
        low, high = low - margin, high + margin
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 2.5, 5, 10, 20, 50):
        step = power * factor
        if whole and step % 1:
            continue
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most:
            break
    values = tuple(index * step for index in range(first, last + 1))
    return Ticks(values, tuple(_tick_label(value, step) for value in values))


def _tick_label(value: float, step: float) -> str:
    if max(abs(value), step) >= 10_000:
        return human_si(value).strip()
    decimals = next((d for d in range(10) if abs(step * 10**d - round(step * 10**d)) < 1e-6), 10)
    return f"{value:.{decimals}f}"


def decade_ticks(low: float, high: float, *, most: int = 7) -> Ticks:
    """Return powers of ten that enclose [low, high]; every n-th of them if they are many."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    values = tuple(10.0**power for power in range(first, last + 1, step))
    return Ticks(values, tuple(human_si(value).strip() for value in values))


def log_ticks(low: float, high: float, *, limit: int = 7) -> Ticks:
    """Return round values that enclose [low, high]: the finest series with at most `limit`."""
    # 10³⁰⁸ is the largest double.
    first, last = math.floor(math.log10(low)), min(math.ceil(math.log10(high)) + 1, 300)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        start = max(i for i, value in enumerate(values) if value <= low * (1 + 1e-9))
        last_values = range(start + 1, len(values))
        above = (i for i in last_values if values[i] >= high * (1 - 1e-9))
        end = min(above, default=len(values) - 1)
        if end - start < limit:
            break
    step = max(1, math.ceil((end - start) / limit))  # above 1 only for very many decades
    kept = [values[i] for i in range(start, end + 1) if (end - i) % step == 0 or i == start]
    return Ticks(tuple(kept), tuple(human_si(value).strip() for value in kept))


_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_TIME_UNITS = ((86400 * 2, 86400, "d"), (5400, 3600, "h"), (100, 60, "min"), (0, 1, "s"))


def time_ticks(seconds: float, *, most: int = 6) -> Ticks:
    """Return round times from 0 to `seconds`; the axis ends with the last event."""
    if seconds < most:
        ticks = nice_ticks(0, seconds, most=most)
        return Ticks(ticks.values, tuple(f"{label} s" for label in ticks.labels))
    days = [86400 * n for n in (2, 5, 10, 20, 50, 100, 200, 500, 1000)]
    step = next((s for s in (*_TIME_STEPS, *days) if seconds / s < most), 86400 * 2000)
    size, unit = next(
        (size, unit) for least, size, unit in _TIME_UNITS if seconds >= least and step >= size
    )
    values = tuple(float(step * index) for index in range(int(seconds // step) + 1))
    return Ticks(values, tuple(f"{value / size:g} {unit}" for value in values))


def spread(heights: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move positions at least `gap` apart and, if they fit, into [low, high]."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = [0.0] * len(heights)
    reached = -math.inf
    for index in order:
        placed[index] = reached = max(heights[index], low, reached + gap)
    limit = high
    for index in reversed(order):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


def room_for(ticks: Ticks) -> float:
    """Return the pixels that the labels of a y axis need at the largest text."""
    return max(50.0, 14 + 0.6 * LARGEST_TEXT * max(map(len, ticks.labels)))


def text(place: Point, content: str, css: str = "", *, anchor: str = "start") -> str:
    """Draw a line of text, escaped."""
    return (
        f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" class="{css}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def line(start: Point, end: Point, css: str) -> str:
    """Draw a straight line."""
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'class="{css}"/>'
    )


def polyline(points: Sequence[Point], css: str) -> str:
    """Draw a line through points; a single point becomes a dot, to be visible."""
    if len(points) == 1:
        return dot(points[0], css, radius=3)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" class="{css}"/>'


def polygon(points: Sequence[Point], css: str) -> str:
    """Draw a filled area."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" class="{css}"/>'


def dot(place: Point, css: str, *, radius: float = 3.5, tip: str | None = None) -> str:
    """Draw a filled circle, with an optional tooltip."""
    circle = f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius:g}" class="{css} dot"'
    return f"{circle}/>" if tip is None else f"{circle}><title>{escape(tip)}</title></circle>"


def rectangle(corner: Point, size: Point, css: str, *, tip: str) -> str:
    """Draw a box with a tooltip."""
    return (
        f'<rect x="{corner[0]:.1f}" y="{corner[1]:.2f}" width="{size[0]:.1f}" '
        f'height="{size[1]:.2f}" class="{css}"><title>{escape(tip)}</title></rect>'
    )


def x_axis(frame: Frame, ticks: Ticks, *, title: str) -> str:
    """Draw the lower axis with its title below."""
    parts = [line((frame.left, frame.bottom), (frame.right, frame.bottom), "axis")]
    for value, label in zip(ticks.values, ticks.labels, strict=True):
        x = frame.x(value)
        parts.append(line((x, frame.bottom), (x, frame.bottom + 5), "axis"))
        parts.append(text((x, frame.bottom + 21), label, "tick", anchor="middle"))
    middle = (frame.left + frame.right) / 2
    parts.append(text((middle, frame.bottom + 43), title, "axis-title", anchor="middle"))
    return "".join(parts)


def y_axis(frame: Frame, ticks: Ticks, *, title: str) -> str:
    """Draw grid lines with their values, and the title above them."""
    parts = [text((4, 18), title, "axis-title")]
    for value, label in zip(ticks.values, ticks.labels, strict=True):
        y = frame.y(value)
        parts.append(line((frame.left, y), (frame.right, y), "grid"))
        parts.append(text((frame.left - 8, y + 5), label, "tick", anchor="end"))
    return "".join(parts)


def axes(frame: Frame, x_ticks: Ticks, y_ticks: Ticks, *, x_title: str, y_title: str) -> list[str]:
    """Draw both axes."""
    return [y_axis(frame, y_ticks, title=y_title), x_axis(frame, x_ticks, title=x_title)]


def document(parts: Iterable[str], *, height: float, title: str) -> str:
    """Build an SVG document from its parts, with a title for screen readers."""
    name = escape(title, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{name}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
