"""What a run recorded of itself, for the rules to judge. Nothing here comes from a configuration.

A record may come from a stranger or an older version: what is asked of it and is not there, or is
of another kind, is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ai500.automl.history import History, Line
from ai500.core.errors import RunFolderError
from ai500.core.events import Event
from ai500.operations.shipped import ModelIdentity, shipped_model
from ai500.records import (
    BootstrapRecord,
    Hyperparameters,
    Placement,
    Plan,
    ProblemClass,
    Score,
    System,
    TrainRecord,
    TrialRecord,
    run_folder,
)
from ai500.records.run_folder import RunFolder
from ai500.workloads.protocol import load_workload


@dataclass(frozen=True)
class TrialEvidence:
    """One scored trial."""

    trial: int
    members: Sequence[TrainRecord]
    placements: Sequence[Placement] = ()
    bootstraps: Sequence[BootstrapRecord] = ()
    begun: TrialRecord | None = None
    history: History | None = None
    """Of a search: all its workers', with the lines they were read from."""
    lines: Sequence[Line] = ()


@dataclass(frozen=True, eq=False)
class Evidence:
    """One run beside the class it belongs to. Two are equal only if they are the same object."""

    reference: ProblemClass
    plan: Plan
    score: Score
    trials: Sequence[TrialEvidence]
    events: Sequence[Event] = ()
    system: System | None = None
    model: ModelIdentity | None = None
    """The class's own; None: it does not ship with the package."""
    lower_is_better: bool = False
    quality_range: tuple[float, float] | None = None
    """Least and most the quality can be; None: the workload does not say."""

    @property
    def program(self) -> Literal["ensemble", "search"]:
        """What the class's members do; a plan can't say otherwise."""
        return "ensemble" if self.reference.search is None else "search"

    @property
    def members(self) -> list[TrainRecord]:
        """Of all trials."""
        return [member for trial in self.trials for member in trial.members]

    @property
    def placements(self) -> list[Placement]:
        """Of all trials."""
        return [one for trial in self.trials for one in trial.placements]

    @property
    def reference_hyperparameters(self) -> Hyperparameters:
        """What the class prescribes for a member of this size."""
        return self.reference.reference_at(self.plan.parallel_degree)


def evidence_of(
    run: RunFolder, *, plan: Plan, score: Score, events: Sequence[Event] = ()
) -> Evidence:
    """Everything the rules look at, read from a run folder that is scored."""
    workload, reference = load_workload(plan.workload), reference_class(plan)
    read = _trial if reference.search is None else _searched
    return Evidence(
        reference=reference,
        plan=plan,
        score=score,
        trials=[read(run, one.trial) for one in score.trials],
        events=events,
        system=run_folder.read(System, run.system) if run.system.exists() else None,
        model=shipped_model(plan.workload, plan.problem_class),
        lower_is_better=workload.quality_direction == "lower",
        quality_range=getattr(workload, "quality_range", None),
    )


def reference_class(plan: Plan) -> ProblemClass:
    """The class as it is registered here, whatever a plan says of it."""
    known = load_workload(plan.workload).problem_classes
    if plan.problem_class not in known:
        raise RunFolderError(f"plan.json: {plan.workload} has no class {plan.problem_class!r}.")
    return known[plan.problem_class]


def _trial(run: RunFolder, number: int) -> TrialEvidence:
    trial, drawn = run.trial(number), run.trial(number).bootstraps
    records = sorted(trial.path.glob("members/*/record.json"))
    return TrialEvidence(
        trial=number,
        members=[run_folder.read(TrainRecord, path) for path in records],
        placements=run_folder.read_all(Placement, trial.placement),
        bootstraps=run_folder.read_all(BootstrapRecord, drawn) if drawn.exists() else [],
        begun=run_folder.read(TrialRecord, trial.trial) if trial.trial.exists() else None,
    )


def _searched(run: RunFolder, number: int) -> TrialEvidence:
    history = History(run.trial(number).members)
    lines = history.look()
    return replace(_trial(run, number), history=history, lines=lines)


def told(member: TrainRecord, *path: str) -> Any:
    """What the worker recorded under that path; None: it did not."""
    found: Any = member.effective
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def groups(member: TrainRecord) -> list[dict[str, Any]]:
    """The optimizer's groups as they were when training ended."""
    found = told(member, "groups")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
