"""Figures of a profile: stacked bars of the categories (V2 Fig. 10), bars of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai500.profile.categories import CATEGORIES
from ai500.profile.labels import STAGES, milliseconds, percent
from ai500.profile.record import PrecisionProfile, Stages
from ai500.report import svg
from ai500.report.svg import Frame, Scale

BAR, GAP = 46, 34
SEGMENTS = (*CATEGORIES, "unknown")
LEAST_LABELLED = 58.0
"""Pixels that a share needs inside its segment, at the largest text."""
TIMES = ("negotiation", "waiting_for_data", "waiting_for_others", "queueing", "copy_in",
         "all_reduce", "copy_out")  # fmt: skip


def shares_figure(precisions: Sequence[PrecisionProfile], *, title: str) -> str:
    """One bar a precision, cut into the categories; the legend says which is which."""
    legend_rows = -(-len(SEGMENTS) // 2)
    top = 24 + legend_rows * 24
    bottom = top + len(precisions) * (BAR + GAP)
    frame = Frame(x=Scale(0, 1, 20, svg.WIDTH - 28), y=Scale(0, 1, bottom, top))
    values = (0.0, 0.25, 0.5, 0.75, 1.0)
    ticks = svg.Ticks(values, tuple(f"{value:.0%}" for value in values))
    parts = [svg.x_axis(frame, ticks, title="share of the time of all kernels"), *_legend()]
    for index, one in enumerate(precisions):
        y = top + index * (BAR + GAP)
        parts.append(svg.text((frame.left, y + 16), _heading(one), "label"))
        parts += _segments(frame, _shares(one), y=y + 24)
    return svg.document(parts, height=bottom + 54, title=title)


def _heading(one: PrecisionProfile) -> str:
    """What a bar's whole length is."""
    busy = milliseconds(one.kernel_seconds_per_step)
    return f"{one.precision}: {busy} ms of kernels a step, idle {percent(one.idle_share)}"


def _shares(one: PrecisionProfile) -> dict[str, float]:
    return {
        **{part.category: part.share for part in one.categories},
        "unknown": one.unknown_share,
    }


def _legend() -> list[str]:
    parts = []
    for index, name in enumerate(SEGMENTS):
        x, y = 20 + (index % 2) * svg.WIDTH / 2, 6 + (index // 2) * 24
        parts.append(svg.rectangle((x, y), (16, 16), f"category c{index}", tip=name))
        parts.append(svg.text((x + 24, y + 13), name, "tick"))
    return parts


def _segments(frame: Frame, shares: Mapping[str, float], *, y: float) -> list[str]:
    parts, reached = [], 0.0
    for index, name in enumerate(SEGMENTS):
        share = shares[name]
        left, right = frame.x(reached), frame.x(reached + share)
        reached += share
        if right - left < 0.3:
            continue
        tip = f"{name}: {percent(share)}"
        css = f"category c{index}"
        parts.append(svg.rectangle((left, y), (right - left, BAR - 4), css, tip=tip))
        if right - left >= LEAST_LABELLED:
            middle = ((left + right) / 2, y + BAR / 2 + 3)
            parts.append(svg.text(middle, f"{share:.0%}", f"on-category c{index}", anchor="middle"))
    return parts


def stages_figure(ranks: Sequence[Stages], *, title: str) -> str:
    """V2 Table 12 as bars: each stage's mean over the ranks, a dot for each rank."""
    row = 30.0
    rows = {name: [getattr(one, name) * 1000 for one in ranks] for name in TIMES}
    highest = max(max(values) for values in rows.values())
    bottom = 16 + row * len(rows)
    ticks = svg.nice_ticks(0, highest or 1, most=5)
    frame = Frame(x=Scale(0, ticks.high, 170, svg.WIDTH - 30), y=Scale(0, 1, bottom, 16))
    parts = [svg.x_axis(frame, ticks, title="ms of a step; bar: mean, dots: ranks")]
    for index, (name, values) in enumerate(rows.items()):
        y = 16 + row * index
        middle = y + row / 2
        mean = sum(values) / len(values)
        tip = f"{STAGES[name]}: {milliseconds(mean / 1000)} ms"
        parts.append(svg.text((frame.left - 10, middle + 5), STAGES[name], "tick", anchor="end"))
        if (width := frame.x(mean) - frame.left) >= 0.3:
            parts.append(svg.rectangle((frame.left, y + 4), (width, row - 8), "bar", tip=tip))
        parts += [svg.dot((frame.x(value), middle), "mean") for value in values]
    return svg.document(parts, height=bottom + 54, title=title)
