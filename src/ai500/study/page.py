"""The report of a study: one self-contained HTML file in the design of all reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_seconds, human_si
from ai500.report.formats import counted
from ai500.report.page import Page, render
from ai500.report.section import Block, Grid, Item, Items, Notice, Paragraph, Section
from ai500.rules.decisions import DECISIONS
from ai500.study.definition import Study, View
from ai500.study.records import PointResult, StudyResult
from ai500.study.table import common_size, points_table

NOTHING_YET = View(["No point of the study has a result yet."], [])
LABELS_NAMED = 6


def write_report(path: Path, result: StudyResult, study: Study) -> None:
    """report.html."""
    write_text(path, render(study_page(result, study)))


def study_page(result: StudyResult, study: Study) -> Page:
    """Put the page together."""
    view = study.view(result) if result.points else NOTHING_YET
    workload = result.workload.replace("_", " ")
    trials = counted(sum(len(one.score.trials) for one in result.points), "trial")
    lead: list[Block] = []
    if doubts := doubted(result.points):
        every = not any(one.trusted for one in result.points)
        lead.append(
            Notice(
                "The speed axis is not meaningful here."
                if every
                else "The speed of some points is not meaningful.",
                explanation="Such points are hollow, and no line joins them. Quality is what it "
                "is.",
                reasons=doubts,
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
            *(Section(title, [Paragraph(note), table]) for title, note, table in view.tables),
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
    text += f" {took(points)}" if points else ""
    text += f" {size}" if size is not None else ""
    blocks: list[Block] = [Paragraph(text)]
    if load := unknown_load(points):
        blocks.append(Paragraph(load))
    if points:
        blocks.append(replace(points_table(points), noun="points"))
        runs = [
            Item(f"{one.label}: `{one.run}`" + " (finished before, used again)" * one.reused)
            for one in points
        ]
        blocks.append(Items(runs, "Where the runs are"))
    if result.missing:
        missing = [
            Item(f"{one.label}: {one.reason}", "failed", "violation")
            if one.failed
            else Item(f"{one.label}: {one.reason}")
            for one in result.missing
        ]
        blocks.append(Items(missing, "Without a result"))
    return Section("Points", blocks)


def doubted(points: Sequence[PointResult]) -> list[str]:
    """Why speeds are not comparable, each reason with the points it is about."""
    reasons: dict[str, list[str]] = {}
    for one in points:
        for doubt in one.doubts:
            reasons.setdefault(doubt, []).append(one.label)
    return [f"{_named(labels, of=len(points))}: {doubt}." for doubt, labels in reasons.items()]


def _named(labels: Sequence[str], *, of: int) -> str:
    if len(labels) == of > 1:
        return "Every point"
    more = len(labels) - LABELS_NAMED
    return "; ".join(labels[:LABELS_NAMED]) + (f" and {more} more" if more > 0 else "")


def unknown_load(points: Sequence[PointResult]) -> str | None:
    """Runs that were made outside of a study: nobody looked what else the machine did."""
    reused = [one.label for one in points if one.reused and one.busy_share is None]
    if not reused:
        return None
    return (
        f"{_named(reused, of=len(points))}: taken from a run made outside of a study, for which "
        "nobody measured what else the machine did."
    )


def took(points: Sequence[PointResult]) -> str:
    """What all runs cost together, as far as it is known of each."""
    walls = [one.wall_seconds for one in points if one.wall_seconds is not None]
    joules = [trial.energy_joules for one in points for trial in one.score.trials]
    known = [value for value in joules if value is not None]
    whole = len(walls) == len(points)
    time = f"took {human_seconds(sum(walls))}" if whole else "took a time that is not known"
    if not known or len(known) < len(joules):
        return f"The runs together {time}; their energy was not measured."
    return f"The runs together {time} and {human_si(sum(known))}J in their timed windows."
