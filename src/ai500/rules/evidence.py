"""Evidence for the rules: what a run recorded, beside the problem class it belongs to.

Nothing here comes from a configuration. A record may have been written by another version or by an
untrusted author: a missing value, or one of another type, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ai500.core import events as events_file
from ai500.core.clocks import Host, host_of
from ai500.core.errors import InputError, RunFolderError
from ai500.core.events import TRAINING_EVENTS, Event
from ai500.inventory.description import NodeDescription
from ai500.metrics.equations import Direction
from ai500.metrics.node_health import Sign, trial_signs
from ai500.operations.graph_file import graph_digest, read_graph, recount
from ai500.operations.shipped import ModelIdentity, shipped_model
from ai500.records import (
    BootstrapRecord,
    Hyperparameters,
    Operations,
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
from ai500.rules.layers import ASPECTS
from ai500.workloads.protocol import class_workload, load_workload


@dataclass(frozen=True, slots=True)
class Fact:
    """Value of a run beside the value that the class prescribes."""

    aspect: str
    """Name in ASPECTS."""
    name: str
    reference: str | None
    """Prescribed value; None: free to choose, so the fact is only stated."""
    run: str | None
    """Recorded value; None: not recorded."""
    advice: str = ""

    @property
    def layer(self) -> int:
        """Layer of the aspect."""
        return ASPECTS[self.aspect].layer

    @property
    def differs(self) -> bool:
        """True if the recorded value is known to differ from the prescribed one."""
        return self.reference is not None and self.run is not None and self.run != self.reference


@dataclass(frozen=True, slots=True)
class CountedGraph:
    """Operations of a recorded graph, counted again."""

    sha256: str
    counts: Mapping[str, Operations]
    """Convention → count; empty: the file is not a counted graph."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MeterSpan:
    """Start of a member's recorder of meters, on the clock of its host."""

    host: Host
    member: int
    first: float
    """Monotonic time of its first line."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Ceilings that `ai500 roofline` measured, submitted with the run."""

    device_name: str
    unit: str
    flops: Mapping[str, float]
    """Precision → best FLOPS of one unit over all kernels and shapes."""


@dataclass(frozen=True)
class TrialEvidence:
    """Records of one scored trial."""

    trial: int
    members: Sequence[TrainRecord]
    placements: Sequence[Placement] = ()
    bootstraps: Sequence[BootstrapRecord] = ()
    record: TrialRecord | None = None
    graphs: Mapping[int, CountedGraph] = field(default_factory=dict)
    """Member → its counted graph, where it is recorded."""
    nodes: Sequence[tuple[int, NodeDescription]] = ()
    """Descriptions of the nodes, each by the member that recorded it."""
    meter_spans: Sequence[MeterSpan] = ()
    signs: Sequence[Sign] = ()
    """Signs of sick nodes."""
    program_evidence: object | None = None
    """Evidence that only the trial's program reads, such as the histories of a search."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Records of one run, the class it belongs to, and the facts that follow from them."""

    reference: ProblemClass
    plan: Plan
    score: Score
    trials: Sequence[TrialEvidence]
    read_facts: FactReader
    """Function of the run's program that yields its facts."""
    events: Sequence[Event] = ()
    system: System | None = None
    ceilings: Ceilings | None = None
    """Measured ceilings of the system; None: no roofline was submitted."""
    model: ModelIdentity | None = None
    """Identity of the class's own model; None: it does not ship with the package."""
    quality_direction: Direction = "higher"
    quality_range: tuple[float, float] | None = None
    """Least and largest possible quality; None: the workload does not say."""

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """Facts of the run, the problem domain's first and the hardware's last."""
        return tuple(self.read_facts(self))

    @property
    def members(self) -> list[TrainRecord]:
        """Members of all trials."""
        return [member for trial in self.trials for member in trial.members]

    def named_members(self) -> Iterator[tuple[str, TrainRecord]]:
        """Yield each member with its name in messages: "member 2 of trial 1"."""
        for trial in self.trials:
            for member in trial.members:
                yield f"member {member.member} of trial {trial.trial}", member

    @cached_property
    def events_by_trial(self) -> dict[Any, list[Event]]:
        """Events of trials by the trial's number, in the order of the log."""
        groups: dict[Any, list[Event]] = {}
        for event in self.events:
            if "trial" in event:
                groups.setdefault(event["trial"], []).append(event)
        return groups

    @cached_property
    def events_by_member(self) -> dict[tuple[Any, Any], list[Event]]:
        """Training events by trial and member, in the order of the log."""
        groups: dict[tuple[Any, Any], list[Event]] = {}
        for event in self.events:
            if event["event"] in TRAINING_EVENTS:
                groups.setdefault((event.get("trial"), event.get("member")), []).append(event)
        return groups

    def events_of(self, kind: str) -> list[Event]:
        """Return the events of a kind, in the order of the log."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def placements(self) -> list[Placement]:
        """Placements of all trials."""
        return [placement for trial in self.trials for placement in trial.placements]

    @property
    def reference_hyperparameters(self) -> Hyperparameters:
        """Hyper-parameters that the class prescribes for a member of this size."""
        return self.reference.reference_at(self.plan.parallel_degree)


FactReader = Callable[[Evidence], Iterable[Fact]]


def evidence_of(
    run: RunFolder,
    *,
    plan: Plan,
    score: Score,
    events: Sequence[Event] = (),
    read_facts: FactReader,
    read_program_evidence: Callable[[RunFolder, int], object] | None = None,
) -> Evidence:
    """Read the evidence from a run folder that is scored.

    `read_program_evidence` reads what only the program knows of a trial, by the trial's number.
    """
    workload = class_workload(plan.workload, plan.definition)
    return Evidence(
        reference=reference_class(plan),
        plan=plan,
        score=score,
        trials=[
            replace(
                _trial(run, trial.trial, read_program_evidence),
                signs=trial_signs(run, plan, events, trial=trial.trial),
            )
            for trial in score.trials
        ],
        read_facts=read_facts,
        events=events,
        system=run_folder.read(System, run.system) if run.system.exists() else None,
        ceilings=_ceilings(run.roofline) if run.roofline.exists() else None,
        model=shipped_model(plan.workload, plan.problem_class),
        quality_direction=workload.quality_direction,
        quality_range=getattr(workload, "quality_range", None),
    )


def reference_class(record: Plan | Score) -> ProblemClass:
    """Return the registered class of a plan or score, whatever definition a plan contains.

    A class of the user's own is its own reference; rule "registered class" reports it.
    """
    if isinstance(record, Plan) and record.definition.custom is not None:
        return record.definition
    workload, name = record.workload, record.problem_class
    classes = load_workload(workload).problem_classes
    if name not in classes:
        raise RunFolderError(f"{workload} has no class {name!r}.", key="problem_class", value=name)
    return classes[name]


def _trial(
    run: RunFolder, number: int, read_program_evidence: Callable[[RunFolder, int], object] | None
) -> TrialEvidence:
    trial = run.trial(number)
    records = sorted(trial.path.glob("members/*/record.json"))
    bootstraps = trial.bootstraps
    return TrialEvidence(
        trial=number,
        members=[run_folder.read(TrainRecord, path) for path in records],
        placements=run_folder.read_all(Placement, trial.placement),
        bootstraps=run_folder.read_all(BootstrapRecord, bootstraps) if bootstraps.exists() else [],
        record=run_folder.read(TrialRecord, trial.trial) if trial.trial.exists() else None,
        nodes=[
            (_member_of(path), run_folder.read(NodeDescription, path))
            for path in sorted(trial.systems.glob("*.json"))
        ],
        meter_spans=[
            span
            for path in sorted(trial.meters.glob("*.jsonl"))
            if (span := _meter_span(path)) is not None
        ],
        program_evidence=read_program_evidence(run, number) if read_program_evidence else None,
        graphs={
            int(path.parent.name): _counted_graph(path.read_bytes())
            for path in sorted(trial.path.glob("members/*/graph.json"))
        },
    )


def _member_of(path: Path) -> int:
    """Return the member in a file's name, HOST-000.json; -1 in another name."""
    number = path.stem.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def _meter_span(path: Path) -> MeterSpan | None:
    """Read the first line of a recorder; None for a damaged one, which gives no energy either."""
    head = next(iter(events_file.read(path)), None)
    if head is None or not isinstance(head.get("monotonic"), float):
        return None
    return MeterSpan(host_of(head), _member_of(path), head["monotonic"])


def _ceilings(path: Path) -> Ceilings | None:
    """Read the ceilings of a roofline; its own package, which draws it, is above the rules."""
    value = run_folder.read_json(path)
    record = value.get("ceilings", value) if isinstance(value, dict) else {}
    flops: dict[str, float] = {}
    for kernel in record.get("kernels", ()):
        seconds = min(kernel["seconds"], kernel.get("burst_seconds") or kernel["seconds"])
        rate = kernel["operations"] / seconds / record["units"]
        flops[kernel["precision"]] = max(rate, flops.get(kernel["precision"], 0.0))
    return Ceilings(str(record.get("device_name")), str(record.get("unit")), flops)


@lru_cache(maxsize=8)  # all members of a run have the same graph
def _counted_graph(data: bytes) -> CountedGraph:
    try:
        return CountedGraph(graph_digest(data), recount(read_graph(data)))
    except InputError as error:
        return CountedGraph(graph_digest(data), {}, str(error))


def effective(member: TrainRecord, *path: str) -> Any:
    """Return the value that the worker recorded under a path, or None."""
    value: Any = member.effective
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def optimizer_groups(member: TrainRecord) -> list[dict[str, Any]]:
    """Return the optimizer's parameter groups as they were at the end of training."""
    groups = effective(member, "groups")
    return (
        [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    )
