"""The records that a report shows, read from the run folder.

Curves, members and placement are those of one trial, the median of those that enter the mean; of
the others only the events are read. A record that is missing (a member that failed) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ai500.core import events
from ai500.core.clocks import on_one_clock
from ai500.core.errors import RunFolderError
from ai500.core.events import Event
from ai500.core.reading import MAX_TEXT_BYTES, parse_toml, read_bytes
from ai500.inventory.description import NodeDescription
from ai500.inventory.node import merged_nodes, recorded_nodes
from ai500.metrics.node_health import Sign, trial_signs
from ai500.parallel.sharing import describe_strategies
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
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.report.history import MemberHistory, member_histories
from ai500.rules.evidence import Evidence, TrialEvidence

T = TypeVar("T")


@dataclass(frozen=True)
class RunData:
    """Records of a scored run that the sections of its report are made of."""

    folder: RunFolder
    state: RunState
    score: Score
    plan: Plan
    step_strategies: Sequence[str]
    """Sentences on how processes took the steps of the members that share them."""
    system: System
    findings: Sequence[Finding]
    judgement: Judgement | None
    """None: judged by an older version, which did not record it."""
    config: str
    """Text of config.toml."""
    notes: Mapping[str, str]
    """Notes on the system that a person wrote into the configuration."""
    started_at: float | None
    """Wall clock of the first trial's start, in seconds since 1970."""
    missing: Mapping[int, Sequence[int]]
    """Members that did not finish, by trial."""
    shown: TrialScore
    """Trial whose curves, members and placement are shown."""
    events: Sequence[Event]
    """Events of the shown trial."""
    histories: Mapping[int, MemberHistory]
    """Histories of the shown trial's members."""
    other_histories: Mapping[int, Mapping[int, MemberHistory]]
    """Histories of the other complete trials' members, by trial."""
    members: Mapping[int, TrainRecord]
    bootstraps: Mapping[int, BootstrapRecord]
    placements: Sequence[Placement]
    jobs: Mapping[int, JobRecord]
    hosts: Mapping[int, Sequence[str]]
    """Nodes that trained each member, recorded by themselves; members that share a process are
    recorded with its first."""
    nodes: Sequence[NodeDescription]
    """Nodes that trained, described by themselves; empty in runs of older versions."""
    signs: Sequence[Sign]
    """Signs of sick nodes in the shown trial."""

    @property
    def trial_folder(self) -> TrialFolder:
        """Folder of the shown trial."""
        return self.folder.trial(self.shown.trial)


def read_run_data(run: RunFolder, evidence: Evidence | None = None) -> RunData:
    """Read the records of a scored run; events and members are those of the evidence, if given."""
    score, plan = run_folder.read(Score, run.score), run_folder.read(Plan, run.plan)
    log = evidence.events if evidence else list(events.read_checked(run.events))
    shown = score.shown_trial
    number = shown.trial
    trial = run.trial(number)
    judged_trials = evidence.trials if evidence else ()
    judged = next((each for each in judged_trials if each.trial == number), None)
    config = _text(run.config)
    starts = (event.get("wall") for event in log if event["event"] == "trial_start")
    return RunData(
        folder=run,
        state=run_folder.read(RunState, run.state),
        score=score,
        plan=plan,
        step_strategies=describe_strategies(log, trial=number),
        system=run_folder.read(System, run.system),
        findings=_all(Finding, run.findings),
        judgement=run_folder.read(Judgement, run.judgement) if run.judgement.exists() else None,
        config=config,
        notes=_notes(config),
        started_at=next(starts, None),
        missing=_missing(run, score),
        shown=shown,
        events=[event for event in log if event.get("trial") == number],
        histories=member_histories(on_one_clock(log, shown.clock), trial=number, clock=shown.clock),
        other_histories={
            other.trial: member_histories(
                on_one_clock(log, other.clock), trial=other.trial, clock=other.clock
            )
            for other in score.trials
            if other.complete and other.trial != number
        },
        members=_members(trial, plan, judged),
        bootstraps={record.member: record for record in _all(BootstrapRecord, trial.bootstraps)},
        placements=_all(Placement, trial.placement),
        jobs={job.member: job for job in _all(JobRecord, trial.jobs)},
        hosts=trial.hosts_of_members(),
        nodes=merged_nodes([node for _, node in each.nodes] for each in evidence.trials)
        if evidence
        else recorded_nodes(run),
        signs=judged.signs if judged else trial_signs(run, plan, log, trial=number),
    )


def _members(
    trial: TrialFolder, plan: Plan, judged: TrialEvidence | None
) -> dict[int, TrainRecord]:
    members = range(plan.ensemble_size)
    if judged:
        return {record.member: record for record in judged.members if record.member in members}
    records = {member: trial.member(member).record for member in members}
    return {
        member: run_folder.read(TrainRecord, record)
        for member, record in records.items()
        if record.exists()
    }


def _missing(run: RunFolder, score: Score) -> dict[int, Sequence[int]]:
    results = {
        trial.trial: run_folder.read(EnsembleResult, run.trial(trial.trial).ensemble)
        for trial in score.trials
        if not trial.complete
    }
    return {trial: result.missing for trial, result in results.items() if result.missing}


def _all(kind: type[T], path: Path) -> list[T]:
    return run_folder.read_all(kind, path) if path.exists() else []


def _notes(config: str) -> dict[str, str]:
    """Return a person's notes; a file that is no TOML has none, and is shown as it is."""
    try:
        notes = parse_toml(config).get("system", {}).get("notes", {})
    except ValueError:
        return {}
    return {str(name): str(text) for name, text in notes.items()}


def _text(path: Path) -> str:
    try:
        return read_bytes(path, limit=MAX_TEXT_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise RunFolderError(f"{path} can't be read: {error.strerror}", path=path) from error
