"""The records a report shows, read from the run folder.

Curves, members and placement are those of one trial, the first complete one: a run of many
trials and members is not read whole. A record that is missing (a member that failed) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ai500 import events, rundir
from ai500.errors import RunFolderError
from ai500.metrics.clocks import on_one_clock
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    Finding,
    JobRecord,
    Placement,
    Plan,
    RunState,
    Score,
    System,
    TrainRecord,
)
from ai500.report.history import MemberHistory, member_histories
from ai500.report.picture_files import TrialPictures, read_pictures
from ai500.rundir import RunFolder

T = TypeVar("T")


@dataclass(frozen=True)
class Contents:
    """All that the sections of a report are made of."""

    state: RunState
    score: Score
    plan: Plan
    system: System
    findings: Sequence[Finding]
    config: str
    began: float | None
    """Wall clock of the first trial's start."""
    missing: Mapping[int, Sequence[int]]
    """Trial → members that did not finish."""
    shown: Score
    """The trial whose curves, members and placement are shown."""
    histories: Mapping[int, MemberHistory]
    members: Mapping[int, TrainRecord]
    bootstraps: Mapping[int, BootstrapRecord]
    placements: Sequence[Placement]
    jobs: Mapping[int, JobRecord]
    pictures: TrialPictures | None
    """None: the workload shows nothing, or the run is of an older version."""


def read_contents(run: RunFolder) -> Contents:
    """The records of a scored run."""
    score, plan = rundir.read(Score, run.score), rundir.read(Plan, run.plan)
    told = list(events.read(run.events))
    shown = next((one for one in score.trials if one.complete), (score.trials or (score,))[0])
    number = shown.trial or 1
    trial = run.trial(number)
    folders = {member: trial.member(member) for member in range(plan.ensemble_size)}
    return Contents(
        state=rundir.read(RunState, run.state),
        score=score,
        plan=plan,
        system=rundir.read(System, run.system),
        findings=_all(Finding, run.findings),
        config=_text(run.config),
        began=next((event.get("wall") for event in told if event["event"] == "trial_start"), None),
        missing=_missing(run, score),
        shown=shown,
        histories=member_histories(
            on_one_clock(told, shown.clock), trial=number, clock=shown.clock
        ),
        members={
            member: rundir.read(TrainRecord, folder.record)
            for member, folder in folders.items()
            if folder.record.exists()
        },
        bootstraps={one.member: one for one in _all(BootstrapRecord, trial.bootstraps)},
        placements=_all(Placement, trial.placement),
        jobs={one.member: one for one in _all(JobRecord, trial.jobs)},
        pictures=read_pictures(trial),
    )


def _missing(run: RunFolder, score: Score) -> dict[int, Sequence[int]]:
    results = {
        one.trial: rundir.read(EnsembleResult, run.trial(one.trial).ensemble)
        for one in score.trials
        if one.trial is not None and not one.complete
    }
    return {trial: result.missing for trial, result in results.items() if result.missing}


def _all(kind: type[T], path: Path) -> list[T]:
    return rundir.read_all(kind, path) if path.exists() else []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunFolderError(f"{path} can't be read: {error.strerror}") from error
