"""V2 Table 2, V3 Fig. 2: variation of results from seed to seed, for bagging and for AutoML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

from ai500.automl.sections import all_operations
from ai500.core.errors import InputError
from ai500.core.units import human_seconds
from ai500.metrics.published import V2_TABLE_2
from ai500.metrics.trials import variation
from ai500.records import Improvement
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.formats import flop, flops, quality, variation_percent
from ai500.report.section import Figure, Paragraph, Section, Table
from ai500.study.definition import Point, Study, StudyContext, StudyOptions, View
from ai500.study.published import V2_TABLE_2_ROW
from ai500.study.records import PointResult, StudyResult
from ai500.study.words import is_search

Value = float | int | None


@dataclass(frozen=True)
class Quantity:
    """A measured quantity; its value is None where a run did not reach it."""

    name: str
    value: Callable[[PointResult], Value]
    format: Callable[[float], str]
    is_speed: bool = False


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _epochs(point: PointResult) -> Value:
    """Return the epochs of a single trial, or the mean if all trials reached the target."""
    epochs_of_trials = [trial.epochs_to_target for trial in point.score.trials]
    reached = [epochs for epochs in epochs_of_trials if epochs is not None]
    return fmean(reached) if reached and len(reached) == len(epochs_of_trials) else None


def _all_operations(point: PointResult) -> Value:
    return all_operations(point.score)


OPERATIONS = Quantity("operations", attrgetter("score.operations"), flop)
EPOCHS = Quantity("epochs to target", _epochs, _plain)
QUALITY = Quantity("quality", attrgetter("score.ensemble_quality"), quality)
FLOPS = Quantity("FLOPS", attrgetter("score.flops"), flops, is_speed=True)
QUANTITIES = (
    OPERATIONS,
    EPOCHS,
    QUALITY,
    Quantity("quality factor", attrgetter("score.penalty_coefficient"), quality),
    Quantity("time", attrgetter("score.seconds"), human_seconds, is_speed=True),
    FLOPS,
    Quantity("VFLOPS", attrgetter("score.vflops"), flops, is_speed=True),
)
# Speeds, because in a fixed time a faster machine does more of them.
SEARCH_QUANTITIES = (
    Quantity("operations to target", attrgetter("score.search.operations_to_target"), flop),
    Quantity("operations in all", _all_operations, flop, is_speed=True),
    Quantity("models taken up", attrgetter("score.search.models"), _plain, is_speed=True),
    Quantity("regulated score", attrgetter("score.search.regulated_score"), flops, is_speed=True),
)


def make_points(context: StudyContext, options: StudyOptions) -> list[Point]:
    """Return the same work with several seeds."""
    count = options.seeds or context.plan.definition.required_runs
    if count < 2:
        raise InputError(
            f"--seeds {count}: a variation needs at least 2.", key="--seeds", value=count
        )
    first = context.plan.seed
    return [
        Point(f"seed-{seed}", f"seed {seed}", {"run.seed": seed})
        for seed in range(first, first + count)
    ]


def view(result: StudyResult) -> View:
    """Show the spread of every quantity, beside V2 Table 2."""
    points = result.points
    figures = [spread_figure(result.workload, points)]
    if not is_search(points):
        figures.append(published_figure(result.workload, points))
    note = Paragraph("Sample standard deviation / mean over the seeds (V2 §2.3).")
    section = Section("Variation", [note, variation_table(result.workload, points)])
    return View(sentences(result.workload, points), figures, [section])


def sentences(workload: str, points: Sequence[PointResult]) -> list[str]:
    """Describe the variation of computation and quality."""
    name = f"{workload.replace('_', ' ').capitalize()}, {len(points)} seeds"
    if is_search(points):
        return _search_sentences(name, points)
    return [
        f"{name}: the amount of computation varies by "
        f"{variation_percent(variation_of(points, OPERATIONS))}, the quality by "
        f"{variation_percent(variation_of(points, QUALITY))}.",
        "V3 (Fig. 2) objects to AutoML that a search's amount of computation varies from run to "
        "run; every member of a bagged ensemble computes the same. ai500 study repeatability "
        "--workload automl measures the variation of a search.",
    ]


def _search_sentences(name: str, points: Sequence[PointResult]) -> list[str]:
    lines = [
        "A search lasts a fixed time, so its total computation and its final error depend on the "
        "machine's speed. V3 (Fig. 2) compares the computation until a common error."
    ]
    error = common_error(points)
    if error is None:
        return [*lines, f"{name}: one seed validated no model, so there is no common error."]
    operations, seconds = to_common_error(points)
    spread = f"{variation_percent(variation_of(points, seconds))}{_validity_note(points, seconds)}"
    return [
        *lines,
        f"{name}: all reached an error of {error:.4f}. The operations until then vary by "
        f"{variation_percent(variation_of(points, operations))}, the time by {spread}.",
    ]


def variation_of(points: Sequence[PointResult], quantity: Quantity) -> float | None:
    """Return the variation over the seeds; None: fewer than two, or a value is missing."""
    return variation([quantity.value(point) for point in points])


def quantities(points: Sequence[PointResult]) -> list[Quantity]:
    """Return the quantities of the workload."""
    if not is_search(points):
        return [*QUANTITIES]
    return [*to_common_error(points), *SEARCH_QUANTITIES, QUALITY, FLOPS]


def to_common_error(points: Sequence[PointResult]) -> tuple[Quantity, Quantity]:
    """Return operations and time of a search until an error that all seeds reached (V3 Fig. 2)."""
    error = common_error(points)

    def figure(name: str) -> Callable[[PointResult], Value]:
        return lambda point: getattr(_step_to(point, error), name, None)

    return (
        Quantity("operations to common error", figure("operations"), flop),
        Quantity("time to common error", figure("seconds"), human_seconds, is_speed=True),
    )


def common_error(points: Sequence[PointResult]) -> float | None:
    """Return the lowest error that every seed reached; None: one has none."""
    lowest = [min((step.error for step in _improvements(point)), default=None) for point in points]
    errors = [error for error in lowest if error is not None]
    return max(errors) if errors and len(errors) == len(lowest) else None


def _improvements(point: PointResult) -> tuple[Improvement, ...]:
    """Return the improvements of the best error in the first trial."""
    search = point.score.trials[0].search
    return search.improvements if search else ()


def _step_to(point: PointResult, error: float | None) -> Improvement | None:
    if error is None:
        return None
    return next((step for step in _improvements(point) if step.error <= error), None)


def spread_figure(workload: str, points: Sequence[PointResult]) -> Figure:
    """Plot each seed's value over the mean."""
    title = f"From seed to seed: {workload.replace('_', ' ')}"
    rows = []
    for quantity in quantities(points):
        values = [value for point in points if (value := quantity.value(point)) is not None]
        if len(values) == len(points) and fmean(values):
            valid = not quantity.is_speed or all(point.timing_valid for point in points)
            rows.append(
                DotRow(quantity.name, [value / fmean(values) for value in values], trusted=valid)
            )
    if not rows:
        return Figure(title, None, "Not measured: no quantity is known of every seed.")
    chart = DotRows(rows, x_title="value / mean of the seeds", reference=1.0)
    hollow = "" if all(row.trusted for row in rows) else " Hollow: speed, not meaningful here."
    return Figure(title, chart, f"A dot is a seed.{hollow}")


def published_figure(workload: str, points: Sequence[PointResult]) -> Figure:
    """Plot V2 Table 2, with our variation on top."""
    title = "Variation of the epochs to the target, and V2 Table 2"
    measured = variation_of(points, EPOCHS)
    own_rows = []
    if measured is not None:
        own_rows = [DotRow(f"ours: {workload.replace('_', ' ')}", [100 * measured])]
    published_rows = [
        DotRow(row.task, [100 * row.variation], "member")
        for row in V2_TABLE_2
        if row.variation is not None
    ]
    x_title = "standard deviation / mean, %"
    chart = DotRows([*own_rows, *published_rows], x_title=x_title, reference=None)
    missing = "" if own_rows else " Ours is missing: a seed did not reach the target."
    return Figure(title, chart, f"Grey: AIBench's tasks, V2 Table 2.{missing}")


def variation_table(workload: str, points: Sequence[PointResult]) -> Table:
    """List the variation of every quantity."""
    published = {point.task: point.variation for point in V2_TABLE_2}
    paper = published.get(V2_TABLE_2_ROW.get(workload, ""))
    rows = []
    for quantity in quantities(points):
        values = [value for point in points if (value := quantity.value(point)) is not None]
        rows.append((
            quantity.name,
            f"{len(values)} of {len(points)}",
            quantity.format(fmean(values)) if values else "none",
            variation_percent(variation_of(points, quantity)) + _validity_note(points, quantity),
            f"{100 * paper:.3g}%" if paper is not None and quantity is EPOCHS else "",
        ))  # fmt: skip
    columns = ("quantity", "seeds that reached it", "mean", "variation", "V2 Table 2")
    return Table(columns, rows, numbers=(1, 2, 3, 4))


def _validity_note(points: Sequence[PointResult], quantity: Quantity) -> str:
    invalid = quantity.is_speed and not all(point.timing_valid for point in points)
    return " (not meaningful)" if invalid else ""


STUDY = Study(
    name="repeatability",
    title="From seed to seed",
    source="V2 Table 2, V3 Fig. 2",
    controls=(),
    points=make_points,
    view=view,
    supports_search=True,
)
