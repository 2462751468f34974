"""The ensemble of V3 as a program: members that each train the class's model on a bootstrap.

The score of a trial follows from its events alone. Its window is [first start, last end] over all
members [D6]. Operations are those of the target epochs: work that a crash threw away and a resume
repeated is not counted twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from ai500.bagging.aggregate import aggregate, illustrate
from ai500.bagging.log_recovery import recover_logs
from ai500.bagging.member_views import DetailsReader
from ai500.bagging.predictions import FinishedMember
from ai500.bagging.script_result import script_result
from ai500.bagging.sections import ensemble_report
from ai500.config import AutomlConfig, Config
from ai500.core import schema
from ai500.core.clocks import Clocks, host_of, on_one_clock
from ai500.core.errors import JobError, setting_error
from ai500.core.events import TRAINING_EVENTS, Event
from ai500.data.bootstrap import recorded_counts
from ai500.data.store import Store
from ai500.meters.log import NodeLog, read_meters
from ai500.metrics import equations, trials
from ai500.metrics.energy import Window, sample_times
from ai500.metrics.quality import Target, target_of
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    Operations,
    Plan,
    ProblemClass,
    TrainRecord,
    TrialScore,
    most_uncounted,
    run_folder,
)
from ai500.records.run_folder import RunFolder
from ai500.rules.facts import ensemble_facts
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.rules.rule import Rule
from ai500.workloads.protocol import load_workload


class Ensemble:
    """A bagged ensemble: every member trains the class's model on its own bootstrap."""

    name = "ensemble"
    member_noun = "member"
    activity = "training the ensemble"
    aggregation = "aggregating predictions and scoring"
    trains_class_model = True
    entry_point = "ai500.train.member_process:run"
    member_files: Sequence[str] = ()
    rules: Sequence[Rule] = ENSEMBLE_RULES
    facts = staticmethod(ensemble_facts)
    recover = staticmethod(recover_logs)
    report = staticmethod(ensemble_report)
    score_run = staticmethod(trials.mean_of_trials)

    def parallel_degree(self, config: Config, problem_class: ProblemClass) -> int | None:
        """Return the configured degree."""
        return config.parallel.degree

    def complete(self, plan: Plan, config: Config) -> Plan:
        """Refuse settings of a search; count a trial's operations; estimate the run's time."""
        for field in dataclasses.fields(AutomlConfig):
            if (value := getattr(config.automl, field.name)) is not None:
                raise setting_error(
                    f"automl.{field.name}",
                    value,
                    f"no effect: workload {config.workload} trains an ensemble, not a search.",
                    'Set workload = "automl", or leave [automl] out.',
                )
        hyper, count, operations, seconds = plan.hyperparameters, plan.operations, None, None
        steps = plan.steps_per_epoch * hyper.epochs
        if count is not None:
            operations = count.per_step(plan.global_batch_size) * steps * plan.ensemble_size
        per_sample, reason = plan.definition.seconds_per_sample, _not_measured(plan)
        basis = f"not estimated: {reason}"
        if not reason and per_sample is not None:
            sharing = plan.members_per_accelerator
            seconds = plan.waves * (steps * hyper.samples_per_step) * per_sample * plan.trials
            seconds *= sharing  # an upper bound where one member does not fill the accelerator
            basis = f"measured on {plan.definition.measured_on}"
            basis += f"; {sharing} members in turn on each slot" if sharing > 1 else ""
        return dataclasses.replace(
            plan,
            operations_per_trial=operations,
            estimated_seconds=seconds,
            estimate_basis=basis,
        )

    def details_reader(self, run: RunFolder, trial: int) -> DetailsReader:
        """Return a function that reads nothing: a member's progress is its epochs."""
        return dict

    def aggregate(
        self, run: RunFolder, plan: Plan, trial: int, *, finished: Sequence[int], store: Store
    ) -> EnsembleResult:
        """Verify and combine the members' predictions, and draw the workload's pictures of them."""
        folder = run.trial(trial)
        bootstraps = run_folder.read_all(BootstrapRecord, folder.bootstraps)
        members = [
            FinishedMember(
                member=member,
                folder=folder.member(member),
                record=run_folder.read(TrainRecord, folder.member(member).record),
                run=run.path,
                read_counts=partial(recorded_counts, run.path, bootstraps[member]),
            )
            for member in finished
        ]
        if plan.framework.kind == "script":
            return script_result(plan, members, store=store)
        workload, validation = load_workload(plan.workload), store.splits["validation"]
        aggregated = aggregate(
            members,
            workload=workload,
            validation=validation,
            train=store.splits["train"],
            ensemble_size=plan.ensemble_size,
            out_of_bag_limit=plan.definition.out_of_bag_samples,
        )
        illustrate(
            folder,
            members,
            workload=workload,
            ensemble=aggregated.predictions,
            samples=validation,
        )
        return aggregated.result

    def score_trial(
        self, run: RunFolder, plan: Plan, trial: int, *, events: Sequence[Event]
    ) -> TrialScore:
        """Compute a trial's score from its events."""
        return score_trial(plan, events, trial=trial, meters=read_meters(run.trial(trial).meters))

    def evidence(self, run: RunFolder, trial: int) -> None:
        """Read nothing: the members' records suffice."""


def _not_measured(plan: Plan) -> str:
    """Return why the class's measured speed does not apply to a plan; empty: it applies."""
    definition, name = plan.definition, plan.definition.name
    if plan.own_code.model is not None:
        return "the model is your own"
    measured_on = (definition.measured_on or "").partition(":")[0]
    if definition.seconds_per_sample is None or measured_on != plan.device:
        return f"class {name} was not measured on {plan.device}"
    if plan.parallel.mode != "data" or plan.parallel.sharded:
        return f"class {name} was measured with data parallelism"
    if plan.hyperparameters.precision != definition.reference.precision:
        return f"class {name} was not measured in this precision"
    return ""


ENSEMBLE = Ensemble()


@dataclass(frozen=True)
class MemberSpan:
    """Part of the window in which one member trained, and its work."""

    member: int
    start: float
    end: float
    attempts: tuple[tuple[float, float], ...]
    """Start and end of training in each attempt."""
    samples: int
    steps: int
    validation_samples: int
    qualities: Mapping[int, tuple[float, float]]
    """Epoch → (time, quality)."""
    operations: Operations | None
    """None: not counted (scripts)."""


@dataclass(frozen=True)
class CountedWork:
    """Operations of all members; of each kind None if a member's were not counted."""

    convention: str | None = None
    training: int | None = None
    """Operations of all samples and steps [D12]."""
    validation: int | None = None
    apc: float | None = None
    members_rates: float | None = None
    """Sum of the members' own rates, in operations per second [D6]."""
    uncounted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Operator that no rule counts → number in one step [D23]."""


def score_trial(
    plan: Plan, events: Iterable[Event], *, trial: int, meters: Iterable[NodeLog] = ()
) -> TrialScore:
    """Compute a trial's score from its events, and its energy from the meters' logs."""
    recorded = [event for event in events if event.get("trial") == trial]
    result = trials.recorded_result(recorded)
    _check_members(result, ensemble_size=plan.ensemble_size, trial=trial)
    training = [event for event in recorded if event["event"] in TRAINING_EVENTS]
    clock, clocks = trials.clock_of({host_of(event) for event in training}), Clocks(recorded)
    by_member: dict[int, list[Event]] = {member: [] for member in result.members}
    for event in on_one_clock(recorded, clock):
        if event.get("member") in by_member:
            by_member[event["member"]].append(event)
    epochs, counts = plan.hyperparameters.epochs, plan.framework.kind != "script"
    spans = [
        _span(events_of_member, member, clock=clock, epochs=epochs, counts=counts)
        for member, events_of_member in by_member.items()
    ]
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    seconds = last - first
    work = _counted_work(spans, plan)
    first_wave = {mapping.member for mapping in plan.mapping if mapping.wave == 0}
    starts = [span.start for span in spans if span.member in first_wave]
    attempts = sorted(attempt for span in spans for attempt in span.attempts)
    reached = _target_reached(spans, target_of(plan))
    return trials.trial_score(
        plan,
        recorded,
        trial=trial,
        result=result,
        flops=None if work.training is None else equations.flops(work.training, seconds=seconds),
        window=Window(first, last, sample_times(recorded, clock)),
        meters=meters,
        convention=work.convention,
        seconds=seconds,
        time_to_quality_seconds=seconds,
        time_to_target_seconds=None if reached is None else reached[1] - first,
        epochs_to_target=None if reached is None else reached[0],
        operations=None if work.training is None else float(work.training),
        validation_operations=None if work.validation is None else float(work.validation),
        apc=work.apc,
        members_flops_sum=work.members_rates,
        uncounted=dict(work.uncounted),
        start_skew_seconds=max(starts) - min(starts) if starts else 0.0,
        idle_seconds=trials.idle_seconds(attempts, first=first, last=last),
        clock=clock,
        clock_offset_seconds=clocks.largest_offset(),
        clock_uncertainty_seconds=0.0
        if clock == "monotonic"
        else _uncertainty(clocks, spans, recorded),
    )


def _counted_work(spans: Sequence[MemberSpan], plan: Plan) -> CountedWork:
    """Add up the members' operations; a sum without a member's would be no sum."""
    counts = [span.operations for span in spans if span.operations is not None]
    if len(counts) < len(spans):
        return CountedWork()
    pairs = list(zip(spans, counts, strict=True))
    training = [count.training(samples=span.samples, steps=span.steps) for span, count in pairs]
    return CountedWork(
        convention=counts[0].convention,
        training=sum(training),
        validation=sum(span.validation_samples * count.forward_per_sample for span, count in pairs),
        apc=equations.apc(
            counts[0].per_sample,
            batch_size=plan.global_batch_size,
            ensemble_size=plan.ensemble_size,
        ),
        members_rates=sum(
            operations / (span.end - span.start)
            for span, operations in zip(spans, training, strict=True)
        ),
        uncounted=most_uncounted(count.uncounted for count in counts),
    )


def _check_members(result: EnsembleResult, *, ensemble_size: int, trial: int) -> None:
    """Refuse a result with a member too many: it would add operations."""
    members = sorted((*result.members, *result.missing))
    if members != list(range(ensemble_size)) or result.complete != (not result.missing):
        raise JobError(
            f"the result of trial {trial} does not list the {ensemble_size} planned members.",
            key="aggregate",
            remedy="Repeat the trial with `ai500 resume`.",
        )
    if not result.members or len(result.members) != len(result.member_qualities):
        raise JobError(
            f"the result of trial {trial} lacks the quality of a member.", key="aggregate"
        )


def _span(
    events: Sequence[Event], member: int, *, clock: str, epochs: int, counts: bool
) -> MemberSpan:
    """Read a member's span; `counts`: its framework counts operations."""
    by_kind: dict[str, list[Event]] = {}
    attempts: dict[int, list[float]] = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)
        if event["event"] in TRAINING_EVENTS:
            attempts.setdefault(event["attempt"], []).append(event[clock])
    for kind in ("first_batch", "end", "epoch", *(["operations"] if counts else [])):
        if kind not in by_kind:
            raise JobError(f"the log of member {member} has no event {kind!r}.", key=kind)
    # A crash between an event and its checkpoint repeats the event: an epoch counts once.
    trained = {event["epoch"]: event for event in by_kind["epoch"]}
    if set(trained) != set(range(1, epochs + 1)):
        raise JobError(
            f"member {member} logged epochs {sorted(trained)}; planned are 1 to {epochs}.",
            key="epoch",
            value=sorted(trained),
        )
    evaluated = {event["epoch"]: event for event in by_kind.get("quality", [])}
    names = {field.name for field in dataclasses.fields(Operations)}
    counted = [
        {key: value for key, value in event.items() if key in names}
        for event in by_kind.get("operations", [])
    ]
    return MemberSpan(
        member=member,
        start=min(event[clock] for event in by_kind["first_batch"]),
        end=by_kind["end"][-1][clock],
        attempts=tuple((min(times), max(times)) for times in attempts.values()),
        samples=sum(event["samples"] for event in trained.values()),
        steps=sum(event["steps"] for event in trained.values()),
        validation_samples=sum(event["samples"] for event in evaluated.values()),
        qualities={epoch: (event[clock], event["quality"]) for epoch, event in evaluated.items()},
        operations=schema.decode(Operations, counted[-1], at="operations") if counted else None,
    )


def _target_reached(spans: Sequence[MemberSpan], target: Target) -> tuple[int, float] | None:
    """Return epoch and time at which the members' mean first reached the target.

    The epoch is that of an evaluation: it is known no finer than the class evaluates [D14].
    """
    common = set.intersection(*(set(span.qualities) for span in spans))
    for epoch in sorted(common):
        if target.reached(fmean(span.qualities[epoch][1] for span in spans)):
            return epoch, max(span.qualities[epoch][0] for span in spans)
    return None


def _uncertainty(
    clocks: Clocks, spans: Sequence[MemberSpan], events: Sequence[Event]
) -> float | None:
    """Return the window's uncertainty: by the clocks of the first starter and the last finisher."""
    first = min(spans, key=lambda span: span.start).member
    last = max(spans, key=lambda span: span.end).member
    starts = [e for e in events if e["event"] == "first_batch" and e["member"] == first]
    ends = [e for e in events if e["event"] == "end" and e["member"] == last]
    return clocks.uncertainty(starts[0], ends[-1])
