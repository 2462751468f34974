"""The report of a study: one self-contained HTML file in the design of all reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_seconds, human_si
from ai500.report.summary import counted
from ai500.report.templating import environment
from ai500.rules.decisions import DECISIONS
from ai500.study.definition import Study, View
from ai500.study.records import PointResult, StudyResult
from ai500.study.table import common_size, points_table

NOTHING_YET = View(["No point of the study has a result yet."], [])
LABELS_NAMED = 6


def write_report(path: Path, result: StudyResult, study: Study) -> None:
    """report.html."""
    write_text(path, render(result, study))


def render(result: StudyResult, study: Study) -> str:
    """The page as text."""
    return (
        environment()
        .get_template("study.html")
        .render(
            result=result,
            study=study,
            view=study.view(result) if result.points else NOTHING_YET,
            doubts=doubted(result.points),
            doubted_all=not any(one.trusted for one in result.points),
            unknown_load=unknown_load(result.points),
            points=points_table(result.points),
            size=common_size(result.points),
            took=took(result.points),
            trials=counted(sum(len(one.score.trials) for one in result.points), "trial"),
            decisions=DECISIONS,
        )
    )


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
