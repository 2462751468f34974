"""The report of a study, and its points as a table and as a CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_seconds, human_si
from ai500.report.formats import counted, flops, known, quality, vflops
from ai500.report.page import Page, render
from ai500.report.section import Block, Grid, Item, Items, Notice, Paragraph, Section, Table
from ai500.rules.decisions import DECISIONS
from ai500.study.definition import Study, View
from ai500.study.records import PointResult, StudyResult
from ai500.study.words import is_search, words_of

NOTHING_YET = View(["No point of the study has a result yet."], [])
# Labels listed in a reason; the rest is counted.
LABELS_NAMED = 6


def write_report(path: Path, result: StudyResult, study: Study) -> None:
    """Write report.html."""
    write_text(path, render(study_page(result, study)))


def study_page(result: StudyResult, study: Study) -> Page:
    """Assemble the page."""
    view = study.view(result) if result.points else NOTHING_YET
    workload = result.workload.replace("_", " ")
    trials = counted(sum(len(point.score.trials) for point in result.points), "trial")
    lead: list[Block] = []
    if issues := issue_lines(result.points):
        all_invalid = not any(point.timing_valid for point in result.points)
        lead.append(
            Notice(
                "The speed axis is not meaningful here."
                if all_invalid
                else "The speed of some points is not meaningful.",
                explanation="Such points are hollow and not joined by lines. Quality is valid.",
                reasons=issues,
            )
        )
    lead += [Paragraph(sentence, "lead") for sentence in view.sentences]
    lead += [Grid(view.figures)] if view.figures else []
    return Page(
        title=f"{study.title}: {workload}",
        kicker=f"HPC AI500 V3.0 · study {study.name} ({study.source}) · {workload} · class "
        f"{result.problem_class}",
        heading=study.title,
        facts=f"{result.hardware} · {result.measured_at} · {trials} · ai500 {result.version}",
        lead=lead,
        sections=[
            *view.sections,
            _points_section(result),
        ],
        footer=["V3, V2 and AIPerf are the papers."],
        decisions=DECISIONS,
    )


def _points_section(result: StudyResult) -> Section:
    points, size = result.points, common_size(result.points)
    text = (
        "Each point is an ordinary run with a report of its own. `points.csv` has every figure in "
        "its unit, `result.json` every trial."
    )
    text += f" {cost_sentence(points)}" if points else ""
    text += f" {size}" if size is not None else ""
    blocks: list[Block] = [Paragraph(text)]
    if load := load_note(points):
        blocks.append(Paragraph(load))
    if points:
        blocks.append(replace(points_table(points), noun="points"))
        runs = [
            Item(f"{point.label}: `{point.run}`" + " (reused)" * point.reused) for point in points
        ]
        blocks.append(Items(runs, "Where the runs are"))
    if result.missing:
        missing = [
            Item(f"{point.label}: {point.reason}", "failed", "violation")
            if point.failed
            else Item(f"{point.label}: {point.reason}")
            for point in result.missing
        ]
        blocks.append(Items(missing, "Without a result"))
    return Section("Points", blocks)


def issue_lines(points: Sequence[PointResult]) -> list[str]:
    """Return the reasons why speeds are not comparable, each with its points."""
    reasons: dict[str, list[str]] = {}
    for point in points:
        for issue in point.timing_issues:
            reasons.setdefault(issue, []).append(point.label)
    return [
        f"{_join_labels(labels, of=len(points))}: {issue}." for issue, labels in reasons.items()
    ]


def _join_labels(labels: Sequence[str], *, of: int) -> str:
    if len(labels) == of > 1:
        return "Every point"
    more = len(labels) - LABELS_NAMED
    return "; ".join(labels[:LABELS_NAMED]) + (f" and {more} more" if more > 0 else "")


def load_note(points: Sequence[PointResult]) -> str | None:
    """Name the runs made outside a study, whose machine load is unknown."""
    reused = [point.label for point in points if point.reused and point.busy_share is None]
    if not reused:
        return None
    return (
        f"{_join_labels(reused, of=len(points))}: reused from a run outside a study, without a "
        "measurement of the machine's load."
    )


def cost_sentence(points: Sequence[PointResult]) -> str:
    """Describe the time and energy of all runs, as far as known."""
    walls = [point.wall_seconds for point in points if point.wall_seconds is not None]
    joules = [trial.energy_joules for point in points for trial in point.score.trials]
    known = [value for value in joules if value is not None]
    complete = len(walls) == len(points)
    time = f"took {human_seconds(sum(walls))}" if complete else "took an unknown time"
    if not known or len(known) < len(joules):
        return f"The runs together {time}; their energy was not measured."
    return f"The runs together {time}; their timed windows took {human_si(sum(known))}J."


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
    "flops": lambda point: point.flops,
    "vflops": lambda point: point.vflops,
    "penalty_coefficient": lambda point: point.score.penalty_coefficient,
    "ensemble_quality": lambda point: point.ensemble_quality,
    "members_mean_quality": lambda point: point.score.members_mean_quality,
    "target_quality": lambda point: point.score.target_quality,
    "samples_per_second": lambda point: point.samples_per_second,
    "model_samples_per_second": lambda point: point.model_samples_per_second,
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
    words = words_of(points)
    rows = [
        {
            "point": point.label,
            "M × P": f"{point.score.ensemble_size} × {point.score.parallel_degree}",
            "VFLOPS": vflops(point.vflops),
            "FLOPS": flops(point.flops),
            "quality factor": quality(point.score.penalty_coefficient),
            words.combined: quality(point.ensemble_quality),
            words.mean: quality(point.score.members_mean_quality),
            "time": human_seconds(point.score.seconds),
            **({"power": known(point.score.watts, "{:.4g} W".format)} if metered else {}),
            "speed counts": "yes" if point.timing_valid else "no",
        }
        for point in points
    ]
    unused = {"VFLOPS", "quality factor"} if is_search(points) else set()
    same = {"M × P", "speed counts"}
    names = [
        name
        for name in rows[0]
        if name not in unused and (name not in same or len({row[name] for row in rows}) > 1)
    ]
    numbers = [index for index, name in enumerate(names) if name not in ("point", "speed counts")]
    return Table(tuple(names), [tuple(row[name] for name in names) for row in rows], tuple(numbers))


def common_size(points: Sequence[PointResult]) -> str | None:
    """Describe the columns that `points_table` omits because all points agree."""
    sizes = {(point.score.ensemble_size, point.score.parallel_degree) for point in points}
    if len(sizes) != 1:
        return None
    members, degree = sizes.pop()
    return f"Every point has M = {members} and P_degree = {degree}."
