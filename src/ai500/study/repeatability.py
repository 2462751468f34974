"""V2 Table 2, V3 Fig. 2: how much a result varies from seed to seed, of bagging and of AutoML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from ai500 import plugins
from ai500.errors import InputError
from ai500.metrics.published import V2_TABLE_2
from ai500.metrics.trials import variation
from ai500.report.figures import Figure
from ai500.report.headline import flops, quality
from ai500.report.sections import Table, flop, share
from ai500.study.charts import Strip, strips
from ai500.study.definition import Choices, Ground, Point, Study, View
from ai500.study.published import V2_TABLE_2_ROW
from ai500.study.records import PointResult, StudyResult
from ai500.units import human_seconds

AUTOML = "automl"
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


QUANTITIES = (
    Quantity("operations", lambda one: one.score.operations, flop),
    Quantity("epochs to target", lambda one: _epochs(one), _plain),
    Quantity("quality", lambda one: one.score.ensemble_quality, quality),
    Quantity("penalty", lambda one: one.score.penalty_coefficient, quality),
    Quantity("time", lambda one: one.score.seconds, human_seconds, is_speed=True),
    Quantity("FLOPS", lambda one: one.score.flops, flops, is_speed=True),
    Quantity("VFLOPS", lambda one: one.score.vflops, flops, is_speed=True),
)


def _epochs(one: PointResult) -> Value:
    """Of a single trial, or their mean where all got there."""
    known = [trial.epochs_to_target for trial in one.score.trials]
    reached = [epochs for epochs in known if epochs is not None]
    return fmean(reached) if reached and len(reached) == len(known) else None


def points(ground: Ground, choices: Choices) -> list[Point]:
    """The same work from several seeds; of AutoML, too, where it is there."""
    count = choices.seeds or ground.plan.definition.least_runs
    if count < 2:
        raise InputError(f"--seeds {count}: a variation needs at least 2.")
    first = ground.config.run.seed
    found = [
        Point(f"seed-{seed}", f"seed {seed}", {"run.seed": seed})
        for seed in range(first, first + count)
    ]
    if AUTOML in plugins.names("workload") and ground.config.workload != AUTOML:
        found += [
            Point(f"{AUTOML}-seed-{seed}", f"AutoML, seed {seed}",
                  {"run.seed": seed, "workload": AUTOML}, optional=True)
            for seed in range(first, first + count)
        ]  # fmt: skip
    return found


def view(result: StudyResult) -> View:
    """The spread of every quantity, V2 Table 2 beside it."""
    groups = by_workload(result)
    figures = [spread_figure(workload, found) for workload, found in groups.items()]
    figures.append(published_figure(groups))
    tables = [
        (
            "Variation",
            "Sample standard deviation / mean over the seeds (V2 §2.3).",
            variation_table(groups),
        )
    ]
    return View(sentences(groups), figures, tables)


def by_workload(result: StudyResult) -> dict[str, list[PointResult]]:
    """Bagging first."""
    groups: dict[str, list[PointResult]] = {}
    for one in result.points:
        groups.setdefault(one.score.workload, []).append(one)
    return groups


def sentences(groups: dict[str, list[PointResult]]) -> list[str]:
    """What varies, and what can't."""
    said = []
    for workload, found in groups.items():
        amount = varies(found, QUANTITIES[0])
        ensemble = varies(found, QUANTITIES[2])
        said.append(
            f"{workload.replace('_', ' ').capitalize()}, {len(found)} seeds: the amount of "
            f"computation varies by {share(amount)}, the quality by {share(ensemble)}."
        )
    said.append(
        "V3 (Fig. 2) holds against AutoML that a search's amount of computation varies from run to "
        "run; every member of a bagged ensemble computes the same, whatever it draws."
    )
    return said


def varies(found: Sequence[PointResult], quantity: Quantity) -> float | None:
    """Of one quantity over the seeds; None: fewer than two, or one did not get there."""
    return variation([quantity.of(one) for one in found])


def quantities(found: Sequence[PointResult]) -> list[Quantity]:
    """Those of the workload: a search has some of its own."""
    return [*QUANTITIES, *search_quantities(found)]


def search_quantities(found: Sequence[PointResult]) -> list[Quantity]:
    """V3 Fig. 2: what a search computed until its target, and until an error all seeds reached."""
    if any(_search(one) is None for one in found):
        return []
    common = _common_error(found)
    return [
        Quantity("models taken up", lambda one: _search(one).models, _plain),
        Quantity("operations to target", lambda one: _search(one).operations_to_target, flop),
        Quantity("operations to common error", lambda one: _to_error(one, common), flop),
    ]


def _search(one: PointResult) -> Any:
    """The sub-record of a search's score; None: an ensemble was trained."""
    return getattr(one.score, "search", None)


def _improvements(one: PointResult) -> list[Any]:
    """Of its first trial: when the best error fell, and after how many operations."""
    trial = next(iter(one.score.trials), one.score)
    search = getattr(trial, "search", None)
    return list(search.improvements) if search else []


def _common_error(found: Sequence[PointResult]) -> float | None:
    """The lowest error that every seed reached; None: one has none."""
    lowest = [min((step.error for step in _improvements(one)), default=None) for one in found]
    known = [error for error in lowest if error is not None]
    return max(known) if known and len(known) == len(lowest) else None


def _to_error(one: PointResult, error: float | None) -> Value:
    if error is None:
        return None
    return next((step.operations for step in _improvements(one) if step.error <= error), None)


def spread_figure(workload: str, found: Sequence[PointResult]) -> Figure:
    """Each seed's value over the mean."""
    title = f"From seed to seed: {workload.replace('_', ' ')}"
    rows = []
    for quantity in quantities(found):
        values = [value for one in found if (value := quantity.of(one)) is not None]
        if len(values) == len(found) and fmean(values):
            trusted = not quantity.is_speed or all(one.trusted for one in found)
            rows.append(Strip(quantity.name, [v / fmean(values) for v in values], trusted=trusted))
    if not rows:
        return Figure(title, None, "Not measured: no quantity is known of every seed.")
    drawn = strips(rows, title=title, x_title="value / mean of the seeds", reference=1.0, room=150)
    hollow = "" if all(row.trusted for row in rows) else " Hollow: speed, not meaningful here."
    return Figure(title, Markup(drawn), f"A dot is a seed.{hollow}")


def published_figure(groups: dict[str, list[PointResult]]) -> Figure:
    """V2 Table 2, ours on top of it."""
    title = "Variation of the epochs to the target, and V2 Table 2"
    rows = []
    for workload, found in groups.items():
        ours = varies(found, QUANTITIES[1])
        if ours is not None:
            rows.append(Strip(f"ours: {workload.replace('_', ' ')}", [100 * ours]))
    rows += [
        Strip(one.task, [100 * one.variation], "member")
        for one in V2_TABLE_2
        if one.variation is not None
    ]
    drawn = strips(rows, title=title, x_title="standard deviation / mean, %", reference=None)
    reached = all(varies(found, QUANTITIES[1]) is not None for found in groups.values())
    return Figure(
        title,
        Markup(drawn),
        "Grey: AIBench's tasks, V2 Table 2."
        + ("" if reached else " Ours is missing where a seed did not reach the target."),
    )


def variation_table(groups: dict[str, list[PointResult]]) -> Table:
    """Every quantity of every workload."""
    printed = {one.task: one.variation for one in V2_TABLE_2}
    rows = []
    for workload, found in groups.items():
        for quantity in quantities(found):
            known = [value for one in found if (value := quantity.of(one)) is not None]
            paper = printed.get(V2_TABLE_2_ROW.get(workload, ""))
            meant = quantity.name == "epochs to target" and paper is not None
            rows.append((
                f"{workload.replace('_', ' ')}: {quantity.name}",
                f"{len(known)} of {len(found)}",
                quantity.written(fmean(known)) if known else "none",
                share(varies(found, quantity)) + _doubt(found, quantity),
                f"{100 * (paper or 0.0):.3g} %" if meant else "",
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
)
