"""A Gantt chart: where and when each member's attempts trained, with the gaps between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ai500.core.units import human_seconds
from ai500.report.charts import svg
from ai500.report.charts.svg import Frame, Scale

ROW_HEIGHT = 30.0
TALLEST = 560.0
"""Height of all rows together, in pixels; many rows become thinner."""
LEAST_LABELLED_ROW = svg.LARGEST_TEXT + 1
LEAST_OUTLINED_ROW = 6.0
"""Height below which a bar's outline would fill it."""
TOP = 16.0
LONGEST_NAME = 11


@dataclass(frozen=True)
class Bar:
    """An attempt of a member; times in seconds since the window began."""

    member: int
    start: float
    end: float
    job_started: float | None
    """None: not recorded."""
    finished: bool


@dataclass(frozen=True)
class Row:
    """A place that members trained on, with the attempts that ran there."""

    name: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Timeline:
    """Attempts by place, and the end of the timed window."""

    rows: Sequence[Row]
    seconds: float
    """Length of the timed window."""

    def svg(self, title: str) -> str:
        """Draw the chart."""
        lanes = [(row, lanes_of(row.bars)) for row in self.rows]
        count = sum(len(of_row) for _, of_row in lanes)
        height = min(ROW_HEIGHT, TALLEST / max(1, count))
        bottom = TOP + height * count
        end = max([self.seconds, *(bar.end for row in self.rows for bar in row.bars)])
        frame = Frame(x=Scale(0, end, 116, svg.WIDTH - 20), y=Scale(0, 1, bottom, TOP))
        ticks = svg.time_ticks(end).up_to(end)
        parts = [svg.x_axis(frame, ticks, title="time since the first batch")]
        top, last_label = TOP, -math.inf
        for row, of_row in lanes:
            middle = top + height * len(of_row) / 2
            if middle - last_label >= svg.LABEL_GAP:
                place = (frame.left - 8, middle + 5)
                parts.append(svg.text(place, _short(row.name), "tick", anchor="end"))
                last_label = middle
            for lane in of_row:
                y = top + height / 2
                parts.append(svg.line((frame.left, y), (frame.right, y), "grid"))
                for bar in lane:
                    parts += _bar(frame, bar, top=top, height=height)
                top += height
        x = frame.x(self.seconds)
        parts.append(svg.line((x, TOP - 6), (x, bottom), "target"))
        return svg.document(parts, height=bottom + 54, title=title)


def lanes_of(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Put attempts that overlap side by side: members may share an accelerator [D11]."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.start):
        free = next((lane for lane in lanes if lane[-1].end <= bar.start), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes or [[]]


def _bar(frame: Frame, bar: Bar, *, top: float, height: float) -> list[str]:
    left = frame.x(bar.start)
    width = max(2.0, frame.x(bar.end) - left)
    state = "" if bar.finished else ", not finished"
    tip = f"member {bar.member}: {human_seconds(bar.start)} to {human_seconds(bar.end)}{state}"
    css = "bar" if bar.finished else "bar broken"
    if height < LEAST_OUTLINED_ROW:
        css += " thin"
    parts = [svg.rectangle((left, top + height * 0.13), (width, height * 0.74), css, tip=tip)]
    middle = top + height / 2
    job_start = frame.x(max(0.0, bar.start if bar.job_started is None else bar.job_started))
    if left - job_start >= 1:
        foot = top + height * 0.93  # below the bars: a later wave's start-up is beside training
        parts.append(svg.line((job_start, foot), (left, foot), "startup"))
    label = f"{bar.member}"
    if height >= LEAST_LABELLED_ROW and width > svg.LARGEST_TEXT * 0.6 * len(label) + 4:
        parts.append(svg.text((left + width / 2, middle + 5), label, "on-bar", anchor="middle"))
    return parts


def _short(name: str) -> str:
    """Keep the end of a node's name, where its number is."""
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
