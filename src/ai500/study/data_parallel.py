"""V3 Fig. 9: scaling of an ensemble against one model over all accelerators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ai500.core.errors import InputError
from ai500.report.charts.line_chart import Level, LineChart, Series, Style, Value
from ai500.report.section import Figure, Paragraph, Section, Table
from ai500.study.definition import Point, Study, StudyContext, StudyOptions, View, hollow_note
from ai500.study.published import V2_EFFICIENCY
from ai500.study.records import PointResult, StudyResult
from ai500.workloads.protocol import sample_noun

# Multiple of the first point's accelerators; the ensemble; the single model.
Pair = tuple[int, PointResult | None, PointResult | None]


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return 1, 2, 4, … times P_degree accelerators, as members and as one model."""
    degree = context.degree
    most = min(options.max_members or context.accelerators, context.accelerators // degree)
    sizes = _sizes(most, degree=degree, per_node=context.per_node)
    if len(sizes) < 2:
        raise InputError(
            f"study data-parallel needs at least {2 * degree} accelerators with parallel.degree = "
            f"{degree}, in a number that divides or fills nodes of {context.per_node}; it may use "
            f"{most * degree}.",
            key="parallel.degree",
            value=degree,
            remedy="Set a smaller parallel.degree or a larger --max-members, or change [system].",
        )
    points = []
    for size in sizes:
        scale = {"system.scale": size * degree}
        ensemble = {"ensemble.size": size, "parallel.degree": degree, **scale}
        points.append(Point(f"ensemble-{size}", _label(size, degree), ensemble))
        if size > 1:
            single = {"ensemble.size": 1, "parallel.degree": size * degree, **scale}
            points.append(Point(f"single-{size}", _label(1, size * degree), single))
    return points


def _sizes(most: int, *, degree: int, per_node: int) -> list[int]:
    """Return sizes that at least double and whose single model fits the nodes, and the largest."""
    fitting = [
        size
        for size in range(1, most + 1)
        if per_node % (size * degree) == 0 or (size * degree) % per_node == 0
    ]
    sizes: list[int] = []
    for size in fitting:
        if not sizes or size >= 2 * sizes[-1]:
            sizes.append(size)
    return sizes if sizes[-1:] == fitting[-1:] else [*sizes, fitting[-1]]


def _label(members: int, degree: int) -> str:
    return f"M = {members}, P = {degree}"


def view(result: StudyResult) -> View:
    """Show the efficiency of ensembles and of data parallelism, beside the papers'."""
    pairs = make_pairs(result)
    if not pairs or pairs[0][0] != 1:
        return View(["The first point, the baseline, has no result yet."], [])
    first = pairs[0][1]
    assert first is not None
    return View(
        sentences(pairs, first),
        [efficiency_figure(pairs, first, workload=result.workload), quality_figure(pairs, first)],
        [Section("Efficiency", [Paragraph(EFFICIENCY_NOTE), table(pairs, first)])],
    )


def make_pairs(result: StudyResult) -> list[Pair]:
    """Pair the points by size; the first point is both an ensemble of one and a single model."""
    points = result.by_name()
    sizes = sorted({int(name.rpartition("-")[2]) for name in points})
    return [
        (n, points.get(f"ensemble-{n}"), points.get("ensemble-1" if n == 1 else f"single-{n}"))
        for n in sizes
    ]


def efficiency(point: PointResult, first: PointResult, *, size: int) -> float:
    """Return FLOPS over linear FLOPS."""
    return point.flops / (size * first.flops)


EFFICIENCY_NOTE = "FLOPS / (n × FLOPS of the first point)."
COMPARED: tuple[tuple[str, Style], ...] = (("ensemble", "ensemble"), ("one model", "mean"))


def sentences(pairs: Sequence[Pair], first: PointResult) -> list[str]:
    """Compare the two at the largest size."""
    size, ensemble, single = pairs[-1]
    degree = first.score.parallel_degree
    lines = [
        f"Up to {size * degree} accelerators, used in two ways: an ensemble of independent models "
        "(V3), and one model whose replicas average their gradients in every step (data "
        "parallelism)."
    ]
    if ensemble is None or single is None:
        return lines
    ensemble_efficiency, single_efficiency = (
        efficiency(point, first, size=size) for point in (ensemble, single)
    )
    if ensemble.timing_valid and single.timing_valid and first.timing_valid:
        lines.append(
            f"At {size} times the first point's accelerators the ensemble has "
            f"{ensemble_efficiency:.1%} of linear "
            f"FLOPS, the single model {single_efficiency:.1%}."
        )
    name = first.score.quality_name
    lines.append(
        f"Their {name}: {ensemble.ensemble_quality:.4f} of the ensemble, "
        f"{single.ensemble_quality:.4f} of the single model."
    )
    if single.global_batch_size == first.global_batch_size:
        lines.append(
            f"The class fixes the batch of a step ({first.global_batch_size} "
            f"{sample_noun(first.score.workload)}s), so the share of each replica of the single "
            "model shrinks with their number."
        )
    return lines


def efficiency_figure(pairs: Sequence[Pair], first: PointResult, *, workload: str) -> Figure:
    """Plot V3 Fig. 9."""
    title = "Scaling efficiency, ensemble against one model"
    paper = V2_EFFICIENCY.get(workload, {})
    published = [Value(1, 1.0), *(Value(n, share) for n, share in paper.items())]

    def value(size: int, point: PointResult) -> Value:
        valid = point.timing_valid and first.timing_valid
        return Value(size, efficiency(point, first, size=size), valid)

    series = _series(pairs, value)
    if paper:
        series.append(Series("V2, one model", published, "theoretical", published=True))
    chart = LineChart(
        series,
        x_title="times the accelerators of the first point",
        y_title="FLOPS / linear",
        levels=[Level("linear", 1.0, "target")],
    )
    note = "Thin, dashed: V2 §7.4, data parallelism over nodes of 8 V100, 10 GbE. " if paper else ""
    hollow = hollow_note(point for pair in pairs for point in pair[1:] if point is not None)
    return Figure(title, chart, (note + hollow).strip())


def _series(pairs: Sequence[Pair], value: Callable[[int, PointResult], Value]) -> list[Series]:
    """Return a value over the size, for the ensemble and for the single model."""
    return [
        Series(
            label,
            [value(size, point) for size, *both in pairs if (point := both[index]) is not None],
            style,
        )
        for index, (label, style) in enumerate(COMPARED)
    ]


def quality_figure(pairs: Sequence[Pair], first: PointResult) -> Figure:
    """Plot the quality of both."""
    name = first.score.quality_name
    title = f"Quality of both: {name}"
    chart = LineChart(
        _series(pairs, lambda size, point: Value(size, point.ensemble_quality)),
        x_title="times the accelerators of the first point",
        y_title=name,
        levels=[Level("target", first.score.target_quality, "target")],
        from_zero=False,
    )
    return Figure(title, chart, "After the same number of epochs.")


def table(pairs: Sequence[Pair], first: PointResult) -> Table:
    """List both efficiencies."""
    rows = [
        (
            f"{size * first.score.parallel_degree}",
            *(
                "no result" if point is None else f"{efficiency(point, first, size=size):.3f}"
                for point in (ensemble, single)
            ),
            "yes"
            if all(point is None or point.timing_valid for point in (first, ensemble, single))
            else "no",
        )
        for size, ensemble, single in pairs
    ]
    columns = ("accelerators", "ensemble", "one model", "speed counts")
    return Table(columns, rows, numbers=(1, 2))


STUDY = Study(
    name="data-parallel",
    title="The ensemble against data parallelism",
    source="V3 Fig. 9",
    controls=("ensemble.size", "ensemble.members_per_accelerator"),
    points=make_points,
    view=view,
)
