"""V3 Fig. 7: speed against quality, over all M × P_degree that fill the system."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.parallel.parallelism_controller import divisors
from ai500.report.charts.dot_chart import DotRow, DotRows, NamedDot, Scatter
from ai500.report.section import Figure
from ai500.study.definition import Choices, Ground, Point, Study, View
from ai500.study.published import V3_TRADEOFF, V3_TRADEOFF_LOSS
from ai500.study.records import PointResult, StudyResult


def points(ground: Ground, choices: Choices) -> list[Point]:
    """Every (M, P_degree) with M × P_degree = Sys_scale that fits the nodes (V3 Eq. 5)."""
    del choices
    scale, per_node = ground.accelerators, ground.per_node
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
    """Speed against quality, and what VFLOPS makes of the two."""
    found = sorted(result.points, key=lambda one: one.score.parallel_degree)
    return View(sentences(found), [quality_figure(found), score_figure(found)])


def sentences(found: Sequence[PointResult]) -> list[str]:
    """What one model loses against the largest ensemble."""
    most, least = found[0].score, found[-1].score
    name = most.quality_name
    said = [
        f"{len(found)} ways to use {most.system_scale} accelerators: from M = "
        f"{most.ensemble_size} members on {most.parallel_degree} each to M = "
        f"{least.ensemble_size} on {least.parallel_degree}. Quality is the ensemble's {name}; "
        "beside it stands the mean of its members."
    ]
    if len(found) > 1:
        difference = most.ensemble_quality - least.ensemble_quality
        said.append(
            f"M = {least.ensemble_size} has {abs(100 * difference):.2f} points of {name} "
            f"{'less' if difference >= 0 else 'more'} than M = {most.ensemble_size}. In V3 (M = "
            f"{', '.join(str(m) for m, _ in V3_TRADEOFF)} on 64 GPUs) M = 1 loses about "
            f"{100 * V3_TRADEOFF_LOSS:.0f} points and is the fastest."
        )
    return said


def quality_figure(found: Sequence[PointResult]) -> Figure:
    """V3 Fig. 7."""
    title = "Quality against speed"
    measured = [
        NamedDot(
            one.label,
            one.images_per_second,
            one.score.ensemble_quality,
            one.score.members_mean_quality,
            one.trusted,
        )
        for one in found
        if one.images_per_second is not None
    ]
    unknown = [one.label for one in found if one.images_per_second is None]
    missing = f"Images per second were not measured of {'; '.join(unknown)}." if unknown else ""
    if not measured:
        return Figure(title, None, missing)
    chart = Scatter(
        measured,
        x_title="images per second, all members",
        y_title=found[0].score.quality_name,
    )
    said = [
        "Large, blue: the ensemble. Small, orange, joined to it: the mean of its members; what "
        "lies between is the worth of combining them.",
        "" if all(one.trusted for one in measured) else "Hollow: the speed is not meaningful.",
        missing,
    ]
    return Figure(title, chart, " ".join(filter(None, said)))


def score_figure(found: Sequence[PointResult]) -> Figure:
    """VFLOPS of each way."""
    title = "What the score makes of it"
    best = max(one.score.vflops for one in found)
    if best == 0:
        return Figure(title, None, "None has valid speed: VFLOPS are 0 where nothing was learned.")
    rows = [DotRow(one.label, [one.score.vflops / best], trusted=one.trusted) for one in found]
    chart = DotRows(rows, x_title="VFLOPS / the highest", reference=1.0)
    return Figure(title, chart, "VFLOPS weigh speed by quality (V3 Eq. 7 and 8).")


STUDY = Study(
    name="tradeoff",
    title="Quality against speed: M × P_degree",
    source="V3 Fig. 7",
    varies=("ensemble.size", "ensemble.members_per_accelerator", "parallel.degree"),
    points=points,
    view=view,
)
