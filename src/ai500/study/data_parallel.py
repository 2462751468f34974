"""V3 Fig. 9: how an ensemble scales, against one model over all accelerators."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.core.errors import InputError
from ai500.report.charts.line_chart import Level, LineChart, Series, Style, Value
from ai500.report.section import Figure, Table
from ai500.study.definition import Choices, Ground, Point, Study, View, by_name
from ai500.study.published import V2_EFFICIENCY
from ai500.study.records import PointResult, StudyResult

Pair = tuple[int, PointResult | None, PointResult | None]
"""Times the first point's accelerators; the ensemble, the one model."""


def points(ground: Ground, choices: Choices) -> list[Point]:
    """1, 2, 4, … times P_degree accelerators: as so many members, and as one model."""
    degree = ground.degree
    most = min(choices.max_members or ground.accelerators, ground.accelerators // degree)
    sizes = _sizes(most, degree=degree, per_node=ground.per_node)
    if len(sizes) < 2:
        raise InputError(
            f"study data-parallel needs at least {2 * degree} accelerators with parallel.degree = "
            f"{degree}, in a number that divides or fills nodes of {ground.per_node}; it may use "
            f"{most * degree}. Set a smaller parallel.degree or a larger --max-members, or change "
            "[system]."
        )
    found = []
    for size in sizes:
        scale = {"system.scale": size * degree}
        ensemble = {"ensemble.size": size, "parallel.degree": degree, **scale}
        found.append(Point(f"ensemble-{size}", _label(size, degree), ensemble))
        if size > 1:
            single = {"ensemble.size": 1, "parallel.degree": size * degree, **scale}
            found.append(Point(f"single-{size}", _label(1, size * degree), single))
    return found


def _sizes(most: int, *, degree: int, per_node: int) -> list[int]:
    """1, then each time at least twice as many of which one model fits the nodes; the largest."""
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
    """Efficiency of both ways, the papers' data parallelism beside them."""
    found = pairs(result)
    if not found or found[0][0] != 1:
        return View(["The first point has no result yet: nothing to compare with."], [])
    first = found[0][1]
    assert first is not None
    return View(
        sentences(found, first),
        [efficiency_figure(found, first, workload=result.workload), quality_figure(found, first)],
        [("Efficiency", "FLOPS / (n × FLOPS of the first point).", table(found, first))],
    )


def pairs(result: StudyResult) -> list[Pair]:
    """By size; the first point is both an ensemble of one and one model."""
    points = by_name(result)
    sizes = sorted({int(name.rpartition("-")[2]) for name in points})
    return [
        (n, points.get(f"ensemble-{n}"), points.get("ensemble-1" if n == 1 else f"single-{n}"))
        for n in sizes
    ]


def efficiency(one: PointResult, first: PointResult, *, size: int) -> float:
    """Of FLOPS."""
    return one.score.flops / (size * first.score.flops)


COMPARED: tuple[tuple[str, Style], ...] = (("ensemble", "ensemble"), ("one model", "mean"))


def sentences(found: Sequence[Pair], first: PointResult) -> list[str]:
    """The two ways at the largest size."""
    size, ensemble, single = found[-1]
    degree = first.score.parallel_degree
    said = [
        f"Up to {size * degree} accelerators, used in two ways: an ensemble of models that know "
        "nothing of each other (V3), and one model whose replicas average their gradients after "
        "every step (data parallelism)."
    ]
    if ensemble is None or single is None:
        return said
    ours, theirs = (efficiency(one, first, size=size) for one in (ensemble, single))
    if ensemble.trusted and single.trusted and first.trusted:
        said.append(
            f"At {size} times the first point's accelerators the ensemble has {ours:.1%} of linear "
            f"FLOPS, the single model {theirs:.1%}."
        )
    name = first.score.quality_name
    said.append(
        f"Their {name}: {ensemble.score.ensemble_quality:.4f} of the ensemble, "
        f"{single.score.ensemble_quality:.4f} of the single model."
    )
    if single.global_batch_size == first.global_batch_size:
        said.append(
            f"The class fixes the batch of a step ({first.global_batch_size} images), so each "
            "replica of the single model has the smaller a share of it the more there are."
        )
    return said


def efficiency_figure(found: Sequence[Pair], first: PointResult, *, workload: str) -> Figure:
    """V3 Fig. 9."""
    title = "Scaling efficiency, ensemble against one model"
    paper = V2_EFFICIENCY.get(workload, {})
    published = [Value(1, 1.0), *(Value(n, share) for n, share in paper.items())]
    series = [
        Series("ensemble", _values(found, first, at=1), "ensemble"),
        Series("one model", _values(found, first, at=2), "mean"),
    ]
    if paper:
        series.append(Series("V2, one model", published, "theoretical", published=True))
    chart = LineChart(
        series,
        x_title="times the accelerators of the first point",
        y_title="FLOPS / linear",
        levels=[Level("linear", 1.0, "target")],
    )
    said = "Thin, dashed: V2 §7.4, data parallelism over nodes of 8 V100, 10 GbE. " if paper else ""
    trusted = all(one.trusted for pair in found for one in pair[1:] if one is not None)
    hollow = "" if trusted else "Hollow: the speed is not meaningful."
    return Figure(title, chart, (said + hollow).strip())


def _values(found: Sequence[Pair], first: PointResult, *, at: int) -> list[Value]:
    chosen = [(pair[0], pair[1] if at == 1 else pair[2]) for pair in found]
    return [
        Value(size, efficiency(one, first, size=size), one.trusted and first.trusted)
        for size, one in chosen
        if one is not None
    ]


def quality_figure(found: Sequence[Pair], first: PointResult) -> Figure:
    """What each way makes of the accelerators."""
    name = first.score.quality_name
    title = f"Quality of both: {name}"
    series = [
        Series(
            label,
            [Value(n, one.score.ensemble_quality) for n, *both in found
             if (one := both[at]) is not None],
            style,
        )
        for at, (label, style) in enumerate(COMPARED)
    ]  # fmt: skip
    chart = LineChart(
        series,
        x_title="times the accelerators of the first point",
        y_title=name,
        levels=[Level("target", first.score.target_quality, "target")],
        from_zero=False,
    )
    return Figure(title, chart, "After the same number of epochs.")


def table(found: Sequence[Pair], first: PointResult) -> Table:
    """Both efficiencies."""
    rows = [
        (
            f"{size * first.score.parallel_degree}",
            *(
                "no result" if one is None else f"{efficiency(one, first, size=size):.3f}"
                for one in (ensemble, single)
            ),
            "yes" if all(one is None or one.trusted for one in (first, ensemble, single)) else "no",
        )
        for size, ensemble, single in found
    ]
    columns = ("accelerators", "ensemble", "one model", "speed counts")
    return Table(columns, rows, numbers=(1, 2))


STUDY = Study(
    name="data-parallel",
    title="The ensemble against data parallelism",
    source="V3 Fig. 9",
    varies=("ensemble.size", "ensemble.members_per_accelerator"),
    points=points,
    view=view,
)
