"""The points as a table: in the report for people, in a CSV for their own plots."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_seconds
from ai500.report.formats import NOT_MEASURED, flops, quality
from ai500.report.section import Table
from ai500.study.records import PointResult, StudyResult

Value = str | int | float | bool | None
COLUMNS: dict[str, Callable[[PointResult], Value]] = {
    "point": lambda one: one.name,
    "label": lambda one: one.label,
    "ensemble_size": lambda one: one.score.ensemble_size,
    "parallel_degree": lambda one: one.score.parallel_degree,
    "system_scale": lambda one: one.score.system_scale,
    "waves": lambda one: one.score.waves,
    "trials": lambda one: len(one.score.trials),
    "seed": lambda one: one.seed,
    "precision": lambda one: one.precision,
    "communication_precision": lambda one: one.communication_precision,
    "global_batch_size": lambda one: one.global_batch_size,
    "learning_rate": lambda one: one.learning_rate,
    "warmup_epochs": lambda one: one.warmup_epochs,
    "flops": lambda one: one.score.flops,
    "vflops": lambda one: one.score.vflops,
    "penalty_coefficient": lambda one: one.score.penalty_coefficient,
    "ensemble_quality": lambda one: one.score.ensemble_quality,
    "members_mean_quality": lambda one: one.score.members_mean_quality,
    "target_quality": lambda one: one.score.target_quality,
    "images_per_second": lambda one: one.images_per_second,
    "seconds": lambda one: one.score.seconds,
    "start_skew_seconds": lambda one: one.score.start_skew_seconds,
    "idle_seconds": lambda one: one.score.idle_seconds,
    "operations": lambda one: one.score.operations,
    "energy_joules": lambda one: one.score.energy_joules,
    "watts": lambda one: one.score.watts,
    "flops_per_watt": lambda one: one.score.flops_per_watt,
    "vflops_per_watt": lambda one: one.score.vflops_per_watt,
    "speed_meaningful": lambda one: one.trusted,
    "busy_share_before": lambda one: one.busy_share,
    "reused": lambda one: one.reused,
    "run": lambda one: one.run,
}
"""Column of points.csv → its value; empty: not measured."""


def write_csv(path: Path, result: StudyResult) -> None:
    """One row a point, every figure in its unit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in result.points:
        writer.writerow([_cell(value(one)) for value in COLUMNS.values()])
    write_text(path, text.getvalue())


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    # A spreadsheet would take such a text for a formula.
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text


def points_table(points: Sequence[PointResult]) -> Table:
    """What each point measured; M × P and whether speeds count only where they differ."""
    metered = any(one.score.watts is not None for one in points)
    rows = [
        (
            one.label,
            f"{one.score.ensemble_size} × {one.score.parallel_degree}",
            flops(one.score.vflops),
            flops(one.score.flops),
            f"{one.score.penalty_coefficient:.4f}",
            quality(one.score.ensemble_quality),
            quality(one.score.members_mean_quality),
            human_seconds(one.score.seconds),
            *([_watts(one)] if metered else []),
            "yes" if one.trusted else "no",
        )
        for one in points
    ]
    columns = (
        "point", "M × P", "VFLOPS", "FLOPS", "penalty", "ensemble", "members' mean", "time",
        *(["power"] if metered else []), "speed counts",
    )  # fmt: skip
    shown = [
        at
        for at, name in enumerate(columns)
        if name not in ("M × P", "speed counts") or len({row[at] for row in rows}) > 1
    ]
    names = tuple(columns[at] for at in shown)
    numbers = (at for at, name in enumerate(names) if name not in ("point", "speed counts"))
    return Table(names, [tuple(row[at] for at in shown) for row in rows], numbers=tuple(numbers))


def common_size(points: Sequence[PointResult]) -> str | None:
    """What `points_table` leaves out because it is the same everywhere."""
    sizes = {(one.score.ensemble_size, one.score.parallel_degree) for one in points}
    if len(sizes) != 1:
        return None
    members, degree = sizes.pop()
    return f"Every point has M = {members} and P_degree = {degree}."


def _watts(one: PointResult) -> str:
    return NOT_MEASURED if one.score.watts is None else f"{one.score.watts:.4g} W"
