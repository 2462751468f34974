"""V2 Table 2, V3 Fig. 2: how much a result varies from seed to seed, of bagging and of AutoML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ai500.core.errors import InputError
from ai500.core.units import human_seconds
from ai500.metrics.published import V2_TABLE_2
from ai500.metrics.trials import variation
from ai500.records import Improvement, SearchScore
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.formats import flop, flops, quality, variation_percent
from ai500.report.section import Figure, Table
from ai500.study.definition import Choices, Ground, Point, Study, View
from ai500.study.published import V2_TABLE_2_ROW
from ai500.study.records import PointResult, StudyResult

Value = float | int | None


@dataclass(frozen=True)
class Quantity:
    """Something that a run measures; None: it did not get there."""

    name: str
    of: Callable[[PointResult], Value]
    written: Callable[[float], str]
    is_speed: bool = False


def _plain(value: float) -> str:
    return f"{value:.4g}"


OPERATIONS = Quantity("operations", lambda one: one.score.operations, flop)
EPOCHS = Quantity("epochs to target", lambda one: _epochs(one), _plain)
QUALITY = Quantity("quality", lambda one: one.score.ensemble_quality, quality)
FLOPS = Quantity("FLOPS", lambda one: one.score.flops, flops, is_speed=True)
QUANTITIES = (
    OPERATIONS,
    EPOCHS,
    QUALITY,
    Quantity("penalty", lambda one: one.score.penalty_coefficient, quality),
    Quantity("time", lambda one: one.score.seconds, human_seconds, is_speed=True),
    FLOPS,
    Quantity("VFLOPS", lambda one: one.score.vflops, flops, is_speed=True),
)


def _of_search(value: Callable[[SearchScore], Value]) -> Callable[[PointResult], Value]:
    return lambda one: None if one.score.search is None else value(one.score.search)


OF_A_SEARCH = (
    Quantity("operations to target", _of_search(lambda one: one.operations_to_target), flop),
    Quantity(
        "operations in all",
        lambda one: one.score.operations + one.score.validation_operations,
        flop,
        is_speed=True,
    ),
    Quantity("models taken up", _of_search(lambda one: one.models), _plain, is_speed=True),
    Quantity("regulated score", _of_search(lambda one: one.regulated_score), flops, is_speed=True),
)
"""In a given time a faster machine does more of it."""


def _epochs(one: PointResult) -> Value:
    """Of a single trial, or their mean where all got there."""
    known = [trial.epochs_to_target for trial in one.score.trials]
    reached = [epochs for epochs in known if epochs is not None]
    return fmean(reached) if reached and len(reached) == len(known) else None


def points(ground: Ground, choices: Choices) -> list[Point]:
    """The same work from several seeds."""
    count = choices.seeds or ground.plan.definition.required_runs
    if count < 2:
        raise InputError(f"--seeds {count}: a variation needs at least 2.")
    first = ground.config.run.seed
    return [
        Point(f"seed-{seed}", f"seed {seed}", {"run.seed": seed})
        for seed in range(first, first + count)
    ]


def view(result: StudyResult) -> View:
    """The spread of every quantity, V2 Table 2 beside it."""
    found = result.points
    figures = [spread_figure(result.workload, found)]
    if not is_search(found):
        figures.append(published_figure(result.workload, found))
    table = (
        "Variation",
        "Sample standard deviation / mean over the seeds (V2 §2.3).",
        variation_table(result.workload, found),
    )
    return View(sentences(result.workload, found), figures, [table])


def sentences(workload: str, found: Sequence[PointResult]) -> list[str]:
    """What varies, and what can't."""
    name = f"{workload.replace('_', ' ').capitalize()}, {len(found)} seeds"
    if is_search(found):
        return _words_of_a_search(name, found)
    return [
        f"{name}: the amount of computation varies by "
        f"{variation_percent(varies(found, OPERATIONS))}, the quality by "
        f"{variation_percent(varies(found, QUALITY))}.",
        "V3 (Fig. 2) holds against AutoML that a search's amount of computation varies from run to "
        "run; every member of a bagged ensemble computes the same, whatever it draws. ai500 study "
        "repeatability --workload automl measures it of a search.",
    ]


def _words_of_a_search(name: str, found: Sequence[PointResult]) -> list[str]:
    said = [
        "A search lasts a given time, so what it computes in all, and the error it ends with, "
        "follow the machine's speed. V3 (Fig. 2) asks another question: how much does it compute "
        "until it is as good as the others?"
    ]
    error = common_error(found)
    if error is None:
        return [*said, f"{name}: one of them validated no model, so there is no common error."]
    operations, seconds = to_common_error(found)
    spread = f"{variation_percent(varies(found, seconds))}{_doubt(found, seconds)}"
    return [
        *said,
        f"{name}: all reached an error of {error:.4f}. The operations until then vary by "
        f"{variation_percent(varies(found, operations))}, the time by {spread}.",
    ]


def varies(found: Sequence[PointResult], quantity: Quantity) -> float | None:
    """Of one quantity over the seeds; None: fewer than two, or one did not get there."""
    return variation([quantity.of(one) for one in found])


def is_search(found: Sequence[PointResult]) -> bool:
    """Whether architectures were searched (AIPerf) instead of an ensemble trained."""
    return bool(found) and all(one.score.search is not None for one in found)


def quantities(found: Sequence[PointResult]) -> list[Quantity]:
    """Those of the workload: a search has some of its own."""
    if not is_search(found):
        return [*QUANTITIES]
    return [*to_common_error(found), *OF_A_SEARCH, QUALITY, FLOPS]


def to_common_error(found: Sequence[PointResult]) -> tuple[Quantity, Quantity]:
    """V3 Fig. 2: operations and time of a search until an error that all seeds reached."""
    error = common_error(found)

    def operations(one: PointResult) -> Value:
        step = _step_to(one, error)
        return None if step is None else step.operations

    def seconds(one: PointResult) -> Value:
        step = _step_to(one, error)
        return None if step is None else step.seconds

    return (
        Quantity("operations to common error", operations, flop),
        Quantity("time to common error", seconds, human_seconds, is_speed=True),
    )


def common_error(found: Sequence[PointResult]) -> float | None:
    """The lowest error that every seed reached; None: one has none."""
    lowest = [min((step.error for step in _improvements(one)), default=None) for one in found]
    known = [error for error in lowest if error is not None]
    return max(known) if known and len(known) == len(lowest) else None


def _improvements(one: PointResult) -> tuple[Improvement, ...]:
    """Of its first trial: when the best error fell, and after how many operations."""
    search = one.score.trials[0].search
    return search.improvements if search else ()


def _step_to(one: PointResult, error: float | None) -> Improvement | None:
    if error is None:
        return None
    return next((step for step in _improvements(one) if step.error <= error), None)


def spread_figure(workload: str, found: Sequence[PointResult]) -> Figure:
    """Each seed's value over the mean."""
    title = f"From seed to seed: {workload.replace('_', ' ')}"
    rows = []
    for quantity in quantities(found):
        values = [value for one in found if (value := quantity.of(one)) is not None]
        if len(values) == len(found) and fmean(values):
            trusted = not quantity.is_speed or all(one.trusted for one in found)
            rows.append(DotRow(quantity.name, [v / fmean(values) for v in values], trusted=trusted))
    if not rows:
        return Figure(title, None, "Not measured: no quantity is known of every seed.")
    chart = DotRows(rows, x_title="value / mean of the seeds", reference=1.0)
    hollow = "" if all(row.trusted for row in rows) else " Hollow: speed, not meaningful here."
    return Figure(title, chart, f"A dot is a seed.{hollow}")


def published_figure(workload: str, found: Sequence[PointResult]) -> Figure:
    """V2 Table 2, ours on top of it."""
    title = "Variation of the epochs to the target, and V2 Table 2"
    ours = varies(found, EPOCHS)
    mine = [] if ours is None else [DotRow(f"ours: {workload.replace('_', ' ')}", [100 * ours])]
    theirs = [
        DotRow(one.task, [100 * one.variation], "member")
        for one in V2_TABLE_2
        if one.variation is not None
    ]
    x_title = "standard deviation / mean, %"
    chart = DotRows([*mine, *theirs], x_title=x_title, reference=None)
    missing = "" if mine else " Ours is missing: a seed did not reach the target."
    return Figure(title, chart, f"Grey: AIBench's tasks, V2 Table 2.{missing}")


def variation_table(workload: str, found: Sequence[PointResult]) -> Table:
    """Every quantity."""
    printed = {one.task: one.variation for one in V2_TABLE_2}
    paper = printed.get(V2_TABLE_2_ROW.get(workload, ""))
    rows = []
    for quantity in quantities(found):
        known = [value for one in found if (value := quantity.of(one)) is not None]
        rows.append((
            quantity.name,
            f"{len(known)} of {len(found)}",
            quantity.written(fmean(known)) if known else "none",
            variation_percent(varies(found, quantity)) + _doubt(found, quantity),
            f"{100 * paper:.3g} %" if paper is not None and quantity is EPOCHS else "",
        ))  # fmt: skip
    columns = ("quantity", "seeds that got there", "mean", "variation", "V2 Table 2")
    return Table(columns, rows, numbers=(1, 2, 3, 4))


def _doubt(found: Sequence[PointResult], quantity: Quantity) -> str:
    doubted = quantity.is_speed and not all(one.trusted for one in found)
    return " (not meaningful)" if doubted else ""


STUDY = Study(
    name="repeatability",
    title="From seed to seed",
    source="V2 Table 2, V3 Fig. 2",
    varies=(),
    points=points,
    view=view,
    of_searches=True,
)
