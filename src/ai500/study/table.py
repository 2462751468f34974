"""The points as a table of the report, and as a CSV."""

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
# Column of points.csv → its value; empty: not measured.
COLUMNS: dict[str, Callable[[PointResult], Value]] = {
    "point": lambda point: point.name,
    "label": lambda point: point.label,
    "ensemble_size": lambda point: point.score.ensemble_size,
    "parallel_degree": lambda point: point.score.parallel_degree,
    "system_scale": lambda point: point.score.system_scale,
    "waves": lambda point: point.score.waves,
    "trials": lambda point: len(point.score.trials),
    "seed": lambda point: point.seed,
    "precision": lambda point: point.precision,
    "communication_precision": lambda point: point.communication_precision,
    "global_batch_size": lambda point: point.global_batch_size,
    "learning_rate": lambda point: point.learning_rate,
    "warmup_epochs": lambda point: point.warmup_epochs,
    "flops": lambda point: point.score.flops,
    "vflops": lambda point: point.score.vflops,
    "penalty_coefficient": lambda point: point.score.penalty_coefficient,
    "ensemble_quality": lambda point: point.score.ensemble_quality,
    "members_mean_quality": lambda point: point.score.members_mean_quality,
    "target_quality": lambda point: point.score.target_quality,
    "images_per_second": lambda point: point.images_per_second,
    "seconds": lambda point: point.score.seconds,
    "start_skew_seconds": lambda point: point.score.start_skew_seconds,
    "idle_seconds": lambda point: point.score.idle_seconds,
    "operations": lambda point: point.score.operations,
    "energy_joules": lambda point: point.score.energy_joules,
    "watts": lambda point: point.score.watts,
    "flops_per_watt": lambda point: point.score.flops_per_watt,
    "vflops_per_watt": lambda point: point.score.vflops_per_watt,
    "speed_meaningful": lambda point: point.timing_valid,
    "busy_share_before": lambda point: point.busy_share,
    "reused": lambda point: point.reused,
    "run": lambda point: point.run,
}


def write_csv(path: Path, result: StudyResult) -> None:
    """Write one row per point, every number in its unit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in result.points:
        writer.writerow([_cell(value(point)) for value in COLUMNS.values()])
    write_text(path, text.getvalue())


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    # A spreadsheet would read such a text as a formula.
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text


def points_table(points: Sequence[PointResult]) -> Table:
    """List the points; M × P and the validity of speeds only where they differ."""
    metered = any(point.score.watts is not None for point in points)
    rows = [
        (
            point.label,
            f"{point.score.ensemble_size} × {point.score.parallel_degree}",
            flops(point.score.vflops),
            flops(point.score.flops),
            f"{point.score.penalty_coefficient:.4f}",
            quality(point.score.ensemble_quality),
            quality(point.score.members_mean_quality),
            human_seconds(point.score.seconds),
            *([_watts(point)] if metered else []),
            "yes" if point.timing_valid else "no",
        )
        for point in points
    ]
    columns = (
        "point", "M × P", "VFLOPS", "FLOPS", "penalty", "ensemble", "members' mean", "time",
        *(["power"] if metered else []), "speed counts",
    )  # fmt: skip
    kept = [
        index
        for index, name in enumerate(columns)
        if name not in ("M × P", "speed counts") or len({row[index] for row in rows}) > 1
    ]
    names = tuple(columns[index] for index in kept)
    numbers = (index for index, name in enumerate(names) if name not in ("point", "speed counts"))
    return Table(
        names, [tuple(row[index] for index in kept) for row in rows], numbers=tuple(numbers)
    )


def common_size(points: Sequence[PointResult]) -> str | None:
    """Describe the columns that `points_table` omits because all points agree."""
    sizes = {(point.score.ensemble_size, point.score.parallel_degree) for point in points}
    if len(sizes) != 1:
        return None
    members, degree = sizes.pop()
    return f"Every point has M = {members} and P_degree = {degree}."


def _watts(point: PointResult) -> str:
    return NOT_MEASURED if point.score.watts is None else f"{point.score.watts:.4g} W"
