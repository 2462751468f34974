"""Members that share an accelerator [D11]: FLOPS and quality over their number (V3 Fig. 5's M)."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.core.errors import InputError
from ai500.core.units import human_seconds
from ai500.report.formats import flops
from ai500.report.section import Paragraph, Section, Table
from ai500.study.definition import Point, Study, StudyContext, StudyOptions, View
from ai500.study.records import PointResult, StudyResult
from ai500.study.scaling import (
    quality_factor_figure,
    quality_figure,
    speed_figure,
    timeline_figure,
)

DEFAULT_MOST = 8
"""Largest number of members per accelerator if --max-members is not given."""


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return 1, 2, 4, … members per accelerator on the whole system, all trained at once."""
    places = context.accelerators // context.degree
    if places < 1:
        raise InputError(
            f"parallel.degree = {context.degree}: one member needs more than the system's "
            f"{context.accelerators} accelerators (V3 Eq. 5).",
            key="parallel.degree",
            value=context.degree,
            remedy="Set a smaller parallel.degree.",
        )
    most = max(1, (options.max_members or DEFAULT_MOST * places) // places)
    return [
        Point(
            name=f"k{shared}",
            label=f"{shared} per accelerator",
            overrides={
                "ensemble.size": shared * places,
                "ensemble.members_per_accelerator": shared,
                "parallel.degree": context.degree,
                "system.scale": places * context.degree,
            },
        )
        for shared in (2**power for power in range(most.bit_length()))
    ]


def view(result: StudyResult) -> View:
    """Show speed and quality over M, and the power and time of each point."""
    points = sorted(result.points, key=lambda point: point.score.members_per_accelerator)
    figures = [
        speed_figure(points),
        quality_figure(points),
        quality_factor_figure(points, workload=result.workload),
        timeline_figure(points[-1]),
    ]
    note = Paragraph(
        "All members of a point train at once. Where one process trains the members of an "
        "accelerator, their steps are CUDA graphs (decision D11)."
    )
    return View(sentences(points), figures, [Section("Gain", [note, gain_table(points)])])


def sentences(points: Sequence[PointResult]) -> list[str]:
    """Name the fastest point and its gain over one member per accelerator."""
    first, last = points[0], points[-1]
    score = last.score
    count = score.system_scale
    shared = "an accelerator" if count == 1 else f"each of {count} accelerators"
    lines = [
        f"{first.score.members_per_accelerator} to {score.members_per_accelerator} members shared "
        f"{shared}. The ensemble's {score.quality_name} goes "
        f"from {first.ensemble_quality:.4f} (M = {first.score.ensemble_size}) to "
        f"{last.ensemble_quality:.4f} (M = {score.ensemble_size}), the target is "
        f"{score.target_quality:g}."
    ]
    best = max(points, key=lambda point: point.flops)
    if first.timing_valid and best.timing_valid and best is not first:
        lines.append(
            f"The highest FLOPS, {flops(best.flops)}, are those of "
            f"{best.score.members_per_accelerator} members per accelerator: "
            f"{best.flops / first.flops:.2f} times those of {first.score.members_per_accelerator}."
        )
    return lines


def gain_table(points: Sequence[PointResult]) -> Table:
    """List FLOPS, time and power of each point beside the first."""
    first = points[0]
    rows = [
        (
            point.label,
            flops(point.flops),
            f"{point.flops / first.flops:.2f}",
            human_seconds(point.score.seconds),
            "not measured" if point.score.watts is None else f"{point.score.watts:.0f} W",
            "not measured"
            if point.score.flops_per_watt is None
            else f"{flops(point.score.flops_per_watt)}/W",
        )
        for point in points
    ]
    columns = ("point", "FLOPS", "FLOPS / first", "time", "power", "FLOPS per watt")
    return Table(columns, rows, numbers=(1, 2, 3, 4, 5))


STUDY = Study(
    name="sharing",
    title="Members that share an accelerator",
    source="V3 Fig. 5, decision D11",
    controls=("ensemble.size", "ensemble.members_per_accelerator"),
    points=make_points,
    view=view,
    measures_sharing=True,
)
