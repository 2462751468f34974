"""The records a report shows, read from the run folder.

Curves, members and placement are those of one trial, the first complete one: a run of many
trials and members is not read whole. A record that is missing (a member that failed) is left out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ai500.automl.history import History
from ai500.automl.trial_score import Clocked, clocked
from ai500.core import events
from ai500.core.clocks import on_one_clock
from ai500.core.errors import RunFolderError
from ai500.inventory.description import NodeDescription
from ai500.inventory.summary import recorded_nodes
from ai500.parallel.sharing import describe_strategies
from ai500.profile.record import Profile
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    JobRecord,
    Placement,
    Plan,
    RunState,
    Score,
    System,
    TrainRecord,
    TrialScore,
    run_folder,
)
from ai500.records.findings import Finding, Judgement
from ai500.records.run_folder import RunFolder
from ai500.report.history import MemberHistory, member_histories
from ai500.report.meter_view import MeterView, read_meter_view
from ai500.report.picture_files import TrialPictures, read_pictures
from ai500.roofline.records import RunPlacement

T = TypeVar("T")


@dataclass(frozen=True)
class Contents:
    """All that the sections of a report are made of."""

    state: RunState
    score: Score
    plan: Plan
    ways: Sequence[str]
    """How processes took the steps of members that share them, in words."""
    system: System
    findings: Sequence[Finding]
    judgement: Judgement | None
    """None: judged by an older version, which did not write it down."""
    config: str
    notes: Mapping[str, str]
    """What a person added to the system's description."""
    began: float | None
    """Wall clock of the first trial's start."""
    missing: Mapping[int, Sequence[int]]
    """Trial → members that did not finish."""
    shown: TrialScore
    """The trial whose curves, members and placement are shown."""
    histories: Mapping[int, MemberHistory]
    members: Mapping[int, TrainRecord]
    bootstraps: Mapping[int, BootstrapRecord]
    placements: Sequence[Placement]
    jobs: Mapping[int, JobRecord]
    meters: MeterView
    nodes: Sequence[NodeDescription]
    """The nodes that trained, described by themselves; none in runs of older versions."""
    roofline: RunPlacement | None
    """None: nobody placed the run."""
    profile: Profile | None
    """Where `ai500 profile RUN` was run."""
    pictures: TrialPictures | None
    """None: the workload shows nothing, or the run is of an older version."""
    search: Clocked | None
    """None: no search."""


def read_contents(run: RunFolder) -> Contents:
    """The records of a scored run."""
    score, plan = run_folder.read(Score, run.score), run_folder.read(Plan, run.plan)
    told = list(events.read(run.events))
    shown = score.shown_trial
    number = shown.trial
    trial = run.trial(number)
    folders = {member: trial.member(member) for member in range(plan.ensemble_size)}
    histories = member_histories(on_one_clock(told, shown.clock), trial=number, clock=shown.clock)
    return Contents(
        state=run_folder.read(RunState, run.state),
        score=score,
        plan=plan,
        ways=describe_strategies(told, trial=number),
        system=run_folder.read(System, run.system),
        findings=_all(Finding, run.findings),
        judgement=run_folder.read(Judgement, run.judgement) if run.judgement.exists() else None,
        config=_text(run.config),
        notes=_notes(_text(run.config)),
        began=next((event.get("wall") for event in told if event["event"] == "trial_start"), None),
        missing=_missing(run, score),
        shown=shown,
        histories=histories,
        members={
            member: run_folder.read(TrainRecord, folder.record)
            for member, folder in folders.items()
            if folder.record.exists()
        },
        bootstraps={one.member: one for one in _all(BootstrapRecord, trial.bootstraps)},
        placements=_all(Placement, trial.placement),
        jobs={one.member: one for one in _all(JobRecord, trial.jobs)},
        meters=read_meter_view(trial.meters, told, plan=plan, shown=shown, histories=histories),
        nodes=recorded_nodes(run),
        roofline=run_folder.read(RunPlacement, run.roofline) if run.roofline.exists() else None,
        profile=run_folder.read(Profile, run.profile) if run.profile.exists() else None,
        pictures=read_pictures(trial),
        search=None
        if plan.search is None
        else clocked(
            History(trial.members), [event for event in told if event.get("trial") == number]
        ),
    )


def _missing(run: RunFolder, score: Score) -> dict[int, Sequence[int]]:
    results = {
        one.trial: run_folder.read(EnsembleResult, run.trial(one.trial).ensemble)
        for one in score.trials
        if not one.complete
    }
    return {trial: result.missing for trial, result in results.items() if result.missing}


def _all(kind: type[T], path: Path) -> list[T]:
    return run_folder.read_all(kind, path) if path.exists() else []


def _notes(config: str) -> dict[str, str]:
    """A person's notes; a file that is no TOML has none, and is shown as it is."""
    try:
        notes = tomllib.loads(config).get("system", {}).get("notes", {})
    except tomllib.TOMLDecodeError:
        return {}
    return {str(name): str(text) for name, text in notes.items()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunFolderError(f"{path} can't be read: {error.strerror}") from error
