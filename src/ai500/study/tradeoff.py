"""V3 Fig. 7: speed against quality, over all M × P_degree that fill the system.

Speed is that of one model: it rises as M falls, because more accelerators train each model, and is
highest at M = 1. All members together do more work the more of them there are; VFLOPS have that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ai500.parallel.parallelism_controller import divisors
from ai500.report.charts.dot_chart import DotRow, DotRows, NamedDot, Scatter
from ai500.report.section import Figure
from ai500.study.definition import (
    Point,
    Study,
    StudyContext,
    StudyOptions,
    View,
    hollow_note,
    vflops_figure,
)
from ai500.study.published import V3_TRADEOFF, V3_TRADEOFF_LOSS
from ai500.study.records import PointResult, StudyResult
from ai500.workloads.protocol import sample_noun


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return every (M, P_degree) with M × P_degree = Sys_scale that fits the nodes (V3 Eq. 5)."""
    del options
    scale, per_node = context.accelerators, context.per_node
    degrees = [d for d in divisors(scale) if per_node % d == 0 or d % per_node == 0]
    return [
        Point(
            name=f"m{scale // degree}-p{degree}",
            label=f"M = {scale // degree}, P = {degree}",
            overrides={
                "ensemble.size": scale // degree,
                "parallel.degree": degree,
                "system.scale": scale,
            },
        )
        for degree in degrees
    ]


def view(result: StudyResult) -> View:
    """Show speed against quality, and time to finish and VFLOPS of each point."""
    points = sorted(result.points, key=lambda point: point.score.parallel_degree)
    figures = [quality_figure(points), time_figure(points), vflops_figure(points)]
    return View(sentences(points), figures)


def sentences(points: Sequence[PointResult]) -> list[str]:
    """Compare a single model with the largest ensemble."""
    most, least = points[0].score, points[-1].score
    name = most.quality_name
    lines = [
        f"{len(points)} ways to use {most.system_scale} accelerators: from M = "
        f"{most.ensemble_size} members on {most.parallel_degree} each to M = "
        f"{least.ensemble_size} on {least.parallel_degree}. Quality is the ensemble's {name}; "
        "beside it stands the mean of its members."
    ]
    if len(points) > 1:
        difference = points[0].ensemble_quality - points[-1].ensemble_quality
        lines.append(
            f"M = {least.ensemble_size} has {abs(100 * difference):.2f} points of {name} "
            f"{'less' if difference >= 0 else 'more'} than M = {most.ensemble_size}. In V3 (M = "
            f"{', '.join(str(m) for m, _ in V3_TRADEOFF)} on 64 GPUs) M = 1 loses about "
            f"{100 * V3_TRADEOFF_LOSS:.0f} points and is the fastest."
        )
        lines += _speed_sentence(points[0], points[-1])
    return lines


def _speed_sentence(most: PointResult, least: PointResult) -> list[str]:
    """Compare the speed of one model; nothing where a speed is not meaningful."""
    slow, fast = most.model_samples_per_second, least.model_samples_per_second
    if slow is None or fast is None or not (most.timing_valid and least.timing_valid):
        return []
    return [
        f"A model of M = {least.score.ensemble_size} trains {fast / slow:.2f} times as many "
        f"{sample_noun(least.score.workload)}s per second as one of M = "
        f"{most.score.ensemble_size}, and its run is finished in "
        f"{least.score.seconds / most.score.seconds:.2f} of the time."
    ]


def quality_figure(points: Sequence[PointResult]) -> Figure:
    """Plot V3 Fig. 7."""
    title = "Quality against speed"
    measured = [
        NamedDot(
            point.label,
            speed,
            point.ensemble_quality,
            point.score.members_mean_quality,
            point.timing_valid,
        )
        for point in points
        if (speed := point.model_samples_per_second) is not None
    ]
    unknown = [point.label for point in points if point.model_samples_per_second is None]
    samples = f"{sample_noun(points[0].score.workload)}s"
    missing = (
        f"{samples.capitalize()} per second were not measured of {'; '.join(unknown)}."
        if unknown
        else ""
    )
    if not measured:
        return Figure(title, None, missing)
    chart = Scatter(
        measured,
        x_title=f"{samples} per second of one model",
        y_title=points[0].score.quality_name,
    )
    notes = [
        "Large, blue: the ensemble. Small, orange, joined to it: the mean of its members. The "
        "difference is the gain of combining them.",
        hollow_note(point for point in points if point.model_samples_per_second is not None),
        missing,
    ]
    return Figure(title, chart, " ".join(filter(None, notes)))


def time_figure(points: Sequence[PointResult]) -> Figure:
    """Plot the time from the first start to the last end of each point."""
    rows = [
        DotRow(point.label, [point.score.seconds], trusted=point.timing_valid) for point in points
    ]
    caption = "From the first member's start to the last one's end. Members train side by side."
    return Figure("Time to finish", DotRows(rows, x_title="seconds"), caption)


STUDY = Study(
    name="tradeoff",
    title="Quality against speed: M × P_degree",
    source="V3 Fig. 7",
    controls=("ensemble.size", "ensemble.members_per_accelerator", "parallel.degree"),
    points=make_points,
    view=view,
)
