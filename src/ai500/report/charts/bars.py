"""Horizontal bars: stacked shares of a whole, means with their samples, scores with their range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ai500.report.charts import svg
from ai500.report.charts.svg import Frame, Scale, Ticks
from ai500.report.formats import percent

BAR, GAP = 46, 34
ROW = 30.0
CHARACTER = 8.8
"""Width of a character of a row's name, in pixels at the largest text."""
LEAST_LABELLED = 58.0
"""Pixels that a share needs inside its segment, at the largest text."""
LEAST_DRAWN = 0.3
"""Pixels below which a bar is left out."""
COLOURS = 9
"""Segment colours in the style sheet; the last is that of the unknown."""


@dataclass(frozen=True)
class StackedBar:
    """A bar cut into segments."""

    heading: str
    shares: Sequence[float]
    """Share of each segment; together at most 1."""


@dataclass(frozen=True)
class StackedBars:
    """Bars cut into the same segments, with a legend."""

    segments: Sequence[str]
    bars: Sequence[StackedBar]
    x_title: str

    def svg(self, title: str) -> str:
        """Draw the chart."""
        top = 24 + -(-len(self.segments) // 2) * 24
        bottom = top + len(self.bars) * (BAR + GAP)
        frame = Frame(x=Scale(0, 1, 20, svg.WIDTH - 28), y=Scale(0, 1, bottom, top))
        values = (0.0, 0.25, 0.5, 0.75, 1.0)
        ticks = Ticks(values, tuple(f"{value:.0%}" for value in values))
        parts = [svg.x_axis(frame, ticks, title=self.x_title)]
        for index, name in enumerate(self.segments):
            x, y = 20 + (index % 2) * svg.WIDTH / 2, 6 + (index // 2) * 24
            parts.append(svg.rectangle((x, y), (16, 16), _segment_class(index), tip=name))
            parts.append(svg.text((x + 24, y + 13), name, "tick"))
        for index, bar in enumerate(self.bars):
            y = top + index * (BAR + GAP)
            parts.append(svg.text((frame.left, y + 16), bar.heading, "label"))
            parts += self._segments(frame, bar, y=y + 24)
        return svg.document(parts, height=bottom + 54, title=title)

    def _segments(self, frame: Frame, bar: StackedBar, *, y: float) -> list[str]:
        parts, start = [], 0.0
        for index, (name, share) in enumerate(zip(self.segments, bar.shares, strict=False)):
            left, right = frame.x(start), frame.x(start + share)
            start += share
            if right - left < LEAST_DRAWN:
                continue
            tip = f"{name}: {percent(share)}"
            css = _segment_class(index)
            parts.append(svg.rectangle((left, y), (right - left, BAR - 4), css, tip=tip))
            if right - left >= LEAST_LABELLED:
                middle = ((left + right) / 2, y + BAR / 2 + 3)
                css = f"on-category c{index % COLOURS}"
                parts.append(svg.text(middle, f"{share:.0%}", css, anchor="middle"))
        return parts


@dataclass(frozen=True)
class BarRow:
    """A mean and the values it is the mean of."""

    name: str
    values: Sequence[float]
    tip: str


@dataclass(frozen=True)
class MeanBars:
    """Named rows: a bar for the mean, a dot for each value."""

    rows: Sequence[BarRow]
    x_title: str

    def svg(self, title: str) -> str:
        """Draw the chart."""
        highest = max((value for row in self.rows for value in row.values), default=0.0)
        bottom = 16 + ROW * len(self.rows)
        ticks = svg.nice_ticks(0, highest or 1, most=5)
        frame = Frame(x=Scale(0, ticks.high, 170, svg.WIDTH - 30), y=Scale(0, 1, bottom, 16))
        parts = [svg.x_axis(frame, ticks, title=self.x_title)]
        for index, row in enumerate(self.rows):
            y = 16 + ROW * index
            middle = y + ROW / 2
            mean = sum(row.values) / max(1, len(row.values))
            parts.append(svg.text((frame.left - 10, middle + 5), row.name, "tick", anchor="end"))
            if (width := frame.x(mean) - frame.left) >= LEAST_DRAWN:
                bar = svg.rectangle((frame.left, y + 4), (width, ROW - 8), "bar", tip=row.tip)
                parts.append(bar)
            parts += [
                svg.dot((frame.x(value), middle), "mean", tip=f"{row.name}: {value:.4g}")
                for value in row.values
            ]
        return svg.document(parts, height=bottom + 54, title=title)


@dataclass(frozen=True)
class RangeRow:
    """A score, and the range of the measurements that it is the mean of."""

    name: str
    value: float
    text: str
    """The score in words, beside its bar."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RangeBars:
    """Named rows: a bar for the score, a whisker for its range, the score as text."""

    scores: Sequence[RangeRow]
    x_title: str

    def svg(self, title: str) -> str:
        """Draw the chart."""
        room = 20 + CHARACTER * max(len(row.name) for row in self.scores)
        texts = 16 + CHARACTER * max(len(row.text) for row in self.scores)
        highest = max(row.value if row.high is None else row.high for row in self.scores)
        bottom = 16 + ROW * len(self.scores)
        ticks = svg.nice_ticks(0, highest, most=4)
        frame = Frame(x=Scale(0, ticks.high, room, svg.WIDTH - texts), y=Scale(0, 1, bottom, 16))
        parts = [svg.x_axis(frame, ticks, title=self.x_title)]
        for index, row in enumerate(self.scores):
            y = 16 + ROW * index
            middle = y + ROW / 2
            end = frame.x(row.value)
            tip = f"{row.name}: {row.text}"
            parts.append(svg.text((frame.left - 10, middle + 5), row.name, "tick", anchor="end"))
            parts.append(
                svg.rectangle((frame.left, y + 5), (end - frame.left, ROW - 10), "bar", tip=tip)
            )
            if row.low is not None and row.high is not None:
                ends = (frame.x(row.low), middle), (frame.x(row.high), middle)
                parts.append(svg.line(*ends, "mean"))
                parts += [svg.line((x, middle - 5), (x, middle + 5), "mean") for x, _ in ends]
                end = max(end, ends[1][0])
            parts.append(svg.text((end + 8, middle + 5), row.text, "tick"))
        return svg.document(parts, height=bottom + 54, title=title)


def _segment_class(index: int) -> str:
    return f"category c{index % COLOURS}"
