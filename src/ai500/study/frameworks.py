"""V3 Table 2's last row, V2's system level: the same class in every installed framework."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.core import plugins
from ai500.frameworks.interpreted import Interpreted, installed_interpreter
from ai500.frameworks.protocol import load_framework
from ai500.report.charts.dot_chart import NamedDot, Scatter
from ai500.report.section import Figure, Section, Table
from ai500.study.definition import (
    Point,
    Study,
    StudyContext,
    StudyOptions,
    View,
    hollow_note,
    vflops_figure,
)
from ai500.study.records import PointResult, StudyResult
from ai500.workloads.protocol import sample_noun

REFERENCE = "pytorch"


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return the reference, and every other framework that trains by ai500's own worker."""
    del context, options
    names = [name for name in plugins.names("framework") if name != REFERENCE]
    frameworks = [load_framework(name) for name in names]
    return [
        Point(REFERENCE, "PyTorch", {"framework.kind": REFERENCE}),
        *(
            Point(
                framework.name,
                framework.title,
                {
                    "framework.kind": framework.name,
                    "framework.python": installed_interpreter(framework.name),
                },
                optional=True,
            )
            for framework in frameworks
            if isinstance(framework, Interpreted)
        ),
    ]


def view(result: StudyResult) -> View:
    """Show throughput, quality and operations side by side."""
    points = list(result.points)
    return View(sentences(points), [quality_figure(points), vflops_figure(points)], [table(points)])


def sentences(points: Sequence[PointResult]) -> list[str]:
    """Compare every framework with the reference."""
    lines = [
        "The same members in each framework: bootstraps, order, augmentation, initial weights, "
        "model, update and schedule are the reference's. Operations are counted on each "
        "framework's own graph."
    ]
    by_name = {point.name: point for point in points}
    reference = by_name.pop(REFERENCE, None)
    if reference is None:
        return lines
    for point in by_name.values():
        speed = _ratio(point.samples_per_second, reference.samples_per_second)
        difference = point.ensemble_quality - reference.ensemble_quality
        lines.append(
            f"{point.label}: {speed} of PyTorch's {_samples(points)} per second, "
            f"{difference:+.4f} in {point.score.quality_name}, "
            f"{_same(point, reference)} operations."
        )
    return lines


def quality_figure(points: Sequence[PointResult]) -> Figure:
    """Plot quality against samples per second."""
    title = "Quality against speed"
    measured = [
        NamedDot(
            point.label,
            point.samples_per_second,
            point.ensemble_quality,
            point.score.members_mean_quality,
            point.timing_valid,
        )
        for point in points
        if point.samples_per_second is not None
    ]
    if not measured:
        return Figure(title, None, f"{_samples(points).capitalize()} per second: not measured.")
    chart = Scatter(
        measured,
        x_title=f"{_samples(points)} per second, all members",
        y_title=points[0].score.quality_name,
    )
    note = "Large, blue: the ensemble. Small, orange: the mean of its members."
    return Figure(title, chart, " ".join(filter(None, [note, hollow_note(points)])))


def table(points: Sequence[PointResult]) -> Section:
    """List throughput, quality and operations."""
    rows = [
        (
            point.label,
            _number(point.samples_per_second, ".1f"),
            _number(point.score.ensemble_quality, ".4f"),
            _number(point.score.members_mean_quality, ".4f"),
            _number(point.score.operations, ".6g"),
            _number(point.score.flops, ".4g"),
        )
        for point in points
    ]
    samples = f"{_samples(points)}/s"
    columns = ("framework", samples, "ensemble", "members' mean", "operations", "FLOPS")
    return Section("Side by side", [Table(columns, rows, numbers=(1, 2, 3, 4, 5))])


def _samples(points: Sequence[PointResult]) -> str:
    return f"{sample_noun(points[0].score.workload)}s"


def _number(value: float | None, form: str) -> str:
    return "not measured" if value is None else f"{value:{form}}"


def _ratio(value: float | None, reference: float | None) -> str:
    return "not measured" if not value or not reference else f"{value / reference:.2f}"


def _same(point: PointResult, reference: PointResult) -> str:
    counted, expected = point.score.operations, reference.score.operations
    if counted is None or expected is None:
        return "not counted"
    return "the same" if counted == expected else f"{counted / expected:.4f} of its"


STUDY = Study(
    name="frameworks",
    title="The same class in every framework",
    source="V3 Table 2, V2 §3.1",
    controls=("framework.kind", "framework.python", "framework.command"),
    points=make_points,
    view=view,
)
