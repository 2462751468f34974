"""The report's figures: pure functions of numbers to SVG (see `svg.py` for the parts).

Line styles and labels carry the meaning; colour only helps, so that the figures survive grey
print and colour-blind eyes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ai500.core.units import human_seconds, si_prefix
from ai500.report import svg
from ai500.report.svg import Frame, Point, Scale

MOST_MEMBER_LINES = 32
"""Beyond it, members are shown as a band from their lowest to their highest."""
TALLEST_TIMELINE = 560
LEAST_LABELLED_ROW = svg.LARGEST_TEXT + 1

Curves = Mapping[int, Sequence[tuple[int, float]]]
"""Member → (epoch, value) in order."""


@dataclass(frozen=True)
class Level:
    """A value that stands for the whole training, drawn across the figure."""

    name: str
    value: float
    css: str


@dataclass(frozen=True)
class Bar:
    """One attempt of a member on the timeline; seconds since the window began."""

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
    bars: tuple[Bar, ...]


def epochs_figure(
    curves: Curves, *, title: str, y_title: str, epochs: int, levels: Sequence[Level] = ()
) -> str:
    """A value of each member over its epochs, their mean, and levels to compare with."""
    mean = mean_curve(curves)
    values = [value for curve in curves.values() for _, value in curve]
    values += [level.value for level in levels]
    ticks = svg.nice_ticks(min(values), max(values))
    epoch_ticks = svg.nice_ticks(0, epochs, whole=True).up_to(epochs)
    frame = Frame(x=Scale(0, epochs, 66, svg.WIDTH - 152), y=Scale(ticks.low, ticks.high, 282, 40))
    parts = [
        svg.y_axis(frame, ticks, title=y_title),
        svg.x_axis(frame, epoch_ticks, title="epoch"),
        *_members(frame, curves),
        *(
            svg.line((frame.left, y), (frame.right, y), level.css)
            for level in levels
            for y in [frame.y(level.value)]
        ),
    ]
    labels = [(level.value, f"{level.name} {level.value:.3g}", level.css) for level in levels]
    if mean:
        points = frame.points(mean)
        parts.append(svg.polyline(points, "mean"))
        parts += [svg.dot(point, "mean") for point in points[:: max(1, len(points) // 30)]]
        labels.append((mean[-1][1], f"mean {mean[-1][1]:.3g}", "mean"))
    parts += right_labels(frame, labels)
    return svg.document(parts, height=336, title=title)


def mean_curve(curves: Curves) -> list[Point]:
    """The mean of the members that came as far as any, at the epochs they have in common."""
    last = max((curve[-1][0] for curve in curves.values() if curve), default=None)
    arrived = [dict(curve) for curve in curves.values() if curve and curve[-1][0] == last]
    if not arrived:
        return []
    common = set(arrived[0]).intersection(*arrived[1:])
    return [(epoch, fmean(one[epoch] for one in arrived)) for epoch in sorted(common)]


def _members(frame: Frame, curves: Curves) -> list[str]:
    drawn = [curve for curve in curves.values() if curve]
    if len(drawn) <= MOST_MEMBER_LINES:
        return [svg.polyline(frame.points(curve), "member") for curve in drawn]
    at: dict[int, list[float]] = {}
    for curve in drawn:
        for epoch, value in curve:
            at.setdefault(epoch, []).append(value)
    lowest = frame.points((epoch, min(at[epoch])) for epoch in sorted(at))
    highest = frame.points((epoch, max(at[epoch])) for epoch in sorted(at))
    return [
        svg.polygon([*lowest, *reversed(highest)], "band"),
        svg.polyline(lowest, "member"),
        svg.polyline(highest, "member"),
    ]


def right_labels(frame: Frame, labels: Sequence[tuple[float, str, str]]) -> list[str]:
    """Names at the right edge, moved apart where they would touch."""
    wanted = [frame.y(value) for value, _, _ in labels]
    placed = svg.spread(wanted, gap=svg.LABEL_GAP, low=frame.top, high=frame.bottom)
    parts = []
    for (_, name, css), y, label_y in zip(labels, wanted, placed, strict=True):
        parts.append(svg.line((frame.right, y), (frame.right + 12, label_y), f"{css} leader"))
        parts.append(svg.text((frame.right + 16, label_y + 5), name, f"{css} label"))
    return parts


def timeline(rows: Sequence[Row], *, seconds: float, title: str) -> str:
    """A Gantt chart: where and when each member's attempts trained, with the gaps between."""
    row_height = min(30.0, TALLEST_TIMELINE / max(1, sum(len(_lanes(row)) for row in rows)))
    bottom = 16 + row_height * sum(len(_lanes(row)) for row in rows)
    end = max([seconds, *(bar.end for row in rows for bar in row.bars)])
    frame = Frame(x=Scale(0, end, 116, svg.WIDTH - 20), y=Scale(0, 1, bottom, 16))
    ticks = svg.time_ticks(end).up_to(end)
    parts = [svg.x_axis(frame, ticks, title="time since the first batch")]
    top, last_label = frame.top, -math.inf
    for row in rows:
        lanes = _lanes(row)
        middle = top + row_height * len(lanes) / 2
        if middle - last_label >= svg.LABEL_GAP:
            parts.append(
                svg.text((frame.left - 8, middle + 5), _short(row.name), "tick", anchor="end")
            )
            last_label = middle
        for lane in lanes:
            parts.append(
                svg.line(
                    (frame.left, top + row_height / 2), (frame.right, top + row_height / 2), "grid"
                )
            )
            for bar in lane:
                parts += _bar(frame, bar, top=top, row_height=row_height)
            top += row_height
    parts.append(svg.line((frame.x(seconds), frame.top - 6), (frame.x(seconds), bottom), "target"))
    return svg.document(parts, height=bottom + 54, title=title)


def _lanes(row: Row) -> list[list[Bar]]:
    """Attempts that overlap go side by side: members may share an accelerator [D11]."""
    lanes: list[list[Bar]] = []
    for bar in sorted(row.bars, key=lambda bar: bar.start):
        free = next((lane for lane in lanes if lane[-1].end <= bar.start), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes or [[]]


def _bar(frame: Frame, bar: Bar, *, top: float, row_height: float) -> list[str]:
    left = frame.x(bar.start)
    width = max(2.0, frame.x(bar.end) - left)
    state = "" if bar.finished else ", not finished"
    tip = f"member {bar.member}: {human_seconds(bar.start)} to {human_seconds(bar.end)}{state}"
    box = (width, row_height * 0.74)
    css = "bar" if bar.finished else "bar broken"
    if row_height < 6:
        css += " thin"  # an outline would fill it
    parts = [svg.rectangle((left, top + row_height * 0.13), box, css, tip=tip)]
    middle = top + row_height / 2
    began = frame.x(max(0.0, bar.start if bar.job_started is None else bar.job_started))
    if left - began >= 1:
        parts.append(svg.line((began, middle), (left, middle), "startup"))
    label = f"{bar.member}"
    if row_height >= LEAST_LABELLED_ROW and width > svg.LARGEST_TEXT * 0.6 * len(label) + 4:
        parts.append(svg.text((left + width / 2, middle + 5), label, "on-bar", anchor="middle"))
    return parts


def _short(name: str) -> str:
    """A node's number is at the end of its name: that end is kept."""
    return name if len(name) <= 11 else "…" + name[-10:]


def learning_rate_figure(
    rate: Callable[[int], float], *, total_steps: int, corners: Sequence[int], title: str
) -> str:
    """The learning rate of every step, with its peak; `corners` are steps where it turns."""
    steps = {round(i * (total_steps - 1) / 240) for i in range(241)}
    steps |= {s for corner in corners for s in (corner - 1, corner) if 0 <= s < total_steps}
    curve = [(step, rate(step)) for step in sorted(steps)]
    peak_step, peak = max(curve, key=lambda point: point[1])
    ticks = svg.nice_ticks(0, peak)
    step_ticks = svg.nice_ticks(0, total_steps, most=5, whole=True).up_to(total_steps)
    frame = Frame(x=Scale(0, total_steps, 76, svg.WIDTH - 30), y=Scale(0, ticks.high, 282, 64))
    x, y = frame.x(peak_step), frame.y(peak)
    middle = (frame.left + frame.right) / 2
    return svg.document(
        [
            svg.y_axis(frame, ticks, title="learning rate"),
            svg.x_axis(frame, step_ticks, title="optimizer step"),
            svg.polyline(frame.points(curve), "ensemble"),
            svg.dot((x, y), "ensemble"),
            svg.text(
                (x, y - 12),
                f"peak {peak:.4g}",
                "ensemble label",
                anchor="start" if x < middle else "end",
            ),
        ],
        height=336,
        title=title,
    )


def trials_figure(
    vflops: Mapping[int, float], *, mean: float, title: str, dropped: Collection[int] = ()
) -> str:
    """Each trial's VFLOPS as a dot, and the mean of those that are not dropped."""
    factor, prefix = si_prefix(max(vflops.values()))
    row_height = min(26.0, TALLEST_TIMELINE / len(vflops))
    bottom = 50 + row_height * len(vflops)
    ticks = svg.nice_ticks(min(vflops.values()) / factor, max(vflops.values()) / factor, most=5)
    frame = Frame(x=Scale(ticks.low, ticks.high, 124, svg.WIDTH - 40), y=Scale(0, 1, bottom, 44))
    x = frame.x(mean / factor)
    parts = [
        svg.x_axis(frame, ticks, title=f"VFLOPS, in {prefix}FLOPS"),
        svg.line((x, frame.top - 8), (x, bottom), "target"),
        svg.text((x, frame.top - 16), f"mean {mean / factor:.4g}", "label", anchor="middle"),
    ]
    last_label = -math.inf
    for index, (trial, value) in enumerate(vflops.items()):
        y = frame.top + row_height * (index + 0.5)
        if y - last_label >= svg.LABEL_GAP:
            name = f"{trial}, dropped" if trial in dropped else f"trial {trial}"
            parts.append(svg.text((frame.left - 10, y + 5), name, "tick", anchor="end"))
            last_label = y
        parts.append(svg.line((frame.left, y), (frame.right, y), "grid"))
        css = "mean" if trial in dropped else "ensemble"
        parts.append(svg.dot((frame.x(value / factor), y), css, radius=5))
    return svg.document(parts, height=bottom + 54, title=title)
