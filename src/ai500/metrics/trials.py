"""From the events of a trial to its score, and from trials to the run's.

The window of an ensemble is [first start, last end] over all members [D6]. Operations are those
of the target epochs: work that a crash threw away and a resume repeated is not counted twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from ai500.core import schema
from ai500.core.clocks import Clocks, host_of, on_one_clock
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import NodeLog
from ai500.metrics import equations
from ai500.metrics.energy import Window, per_watt, sample_times, trial_energy
from ai500.records import EnsembleResult, Operations, Plan, Score
from ai500.workloads.protocol import load_workload

ENERGY_FIELDS = (
    "energy_joules", "watts", "flops_per_watt", "vflops_per_watt", "power_coverage",
)  # fmt: skip
TRAINING_EVENTS = {"first_batch", "resumed", "epoch", "quality", "interrupted", "end"}


@dataclass(frozen=True)
class MemberSpan:
    """One member's part of the window, from its events."""

    member: int
    start: float
    end: float
    attempts: tuple[tuple[float, float], ...]
    """When each attempt trained."""
    images: int
    steps: int
    validation_images: int
    qualities: dict[int, tuple[float, float]]
    """Epoch → (time, quality)."""
    operations: Operations

    @property
    def training_operations(self) -> int:
        """Forward and backward of every image, and an update per step [D12]."""
        count = self.operations
        per_image = count.forward_per_image + count.backward_per_image
        return self.images * per_image + self.steps * count.update_per_step


def score_trial(
    plan: Plan, events: Iterable[Event], *, trial: int, meters: Iterable[NodeLog] = ()
) -> Score:
    """One trial's score, from its events alone, and its energy from what the meters recorded."""
    mine = [event for event in events if event.get("trial") == trial]
    result = _last_aggregate(mine)
    _check_members(result, ensemble_size=plan.ensemble_size, trial=trial)
    clock = clock_of(mine)
    told, clocks = mine, Clocks(mine)
    mine = list(on_one_clock(told, clock))
    epochs = plan.hyperparameters.epochs
    by_member: dict[int, list[Event]] = {member: [] for member in result.members}
    for event in mine:
        if event.get("member") in by_member:
            by_member[event["member"]].append(event)
    spans = [
        _span(told_of, member, clock=clock, epochs=epochs) for member, told_of in by_member.items()
    ]
    problem_class = plan.definition
    workload = load_workload(plan.workload)
    first, last = min(s.start for s in spans), max(s.end for s in spans)
    seconds = last - first
    operations = sum(span.training_operations for span in spans)
    penalty = equations.penalty_coefficient(
        result.ensemble_quality,
        target_quality=problem_class.target_quality,
        exponent=problem_class.penalty_exponent,
        direction=workload.quality_direction,
    )
    flops = equations.flops(operations, seconds=seconds)
    vflops = equations.vflops(flops, penalty_coefficient=penalty)
    window = Window(first, last, sample_times(told, clock))
    nodes = {one.member: len(one.shares) for one in plan.mapping if one.member in result.members}
    energy = trial_energy(meters, window, nodes_of_members=nodes)
    first_wave = {one.member for one in plan.mapping if one.wave == 0}
    starts = [span.start for span in spans if span.member in first_wave]
    reached = _target_reached(
        spans,
        target=problem_class.target_quality,
        lower_is_better=workload.quality_direction == "lower",
    )
    return Score(
        workload=plan.workload,
        problem_class=plan.problem_class,
        convention=spans[0].operations.convention,
        complete=result.complete,
        trial=trial,
        seed=next((e["seed"] for e in mine if e["event"] == "trial_start"), None),
        flops=flops,
        vflops=vflops,
        penalty_coefficient=penalty,
        target_quality=problem_class.target_quality,
        quality_name=workload.quality_name,
        ensemble_quality=result.ensemble_quality,
        members_mean_quality=result.members_mean_quality,
        out_of_bag_quality=result.out_of_bag_quality,
        seconds=seconds,
        time_to_quality_seconds=seconds,
        time_to_target_seconds=None if reached is None else reached[1] - first,
        epochs_to_target=None if reached is None else reached[0],
        operations=float(operations),
        validation_operations=float(
            sum(s.validation_images * s.operations.forward_per_image for s in spans)
        ),
        apc=equations.apc(
            spans[0].operations.forward_per_image + spans[0].operations.backward_per_image,
            batch_size=plan.global_batch_size,
            ensemble_size=plan.ensemble_size,
        ),
        members_flops_sum=sum(s.training_operations / (s.end - s.start) for s in spans),
        start_skew_seconds=max(starts) - min(starts) if starts else 0.0,
        idle_seconds=_idle(spans, first=first, last=last),
        ensemble_size=plan.ensemble_size,
        parallel_degree=plan.parallel_degree,
        system_scale=plan.system_scale,
        members_per_accelerator=plan.members_per_accelerator,
        waves=plan.waves,
        clock=clock,
        clock_offset_seconds=clocks.largest_offset(),
        clock_uncertainty_seconds=0.0
        if clock == "monotonic"
        else _uncertainty(clocks, spans, told),
        **per_watt(energy, flops=flops, vflops=vflops),
    )


def _uncertainty(
    clocks: Clocks, spans: Sequence[MemberSpan], events: Sequence[Event]
) -> float | None:
    """Of the window: by the clocks of the member that began first and the one that ended last."""
    first = min(spans, key=lambda span: span.start).member
    last = max(spans, key=lambda span: span.end).member
    starts = [e for e in events if e["event"] == "first_batch" and e["member"] == first]
    ends = [e for e in events if e["event"] == "end" and e["member"] == last]
    return clocks.uncertainty(starts[0], ends[-1])


def mean_of_trials(trials: Sequence[Score], *, least_runs: int) -> Score:
    """The run's score: the mean of the kept trials, every trial raw beside it (SPEC §5).

    The variations are over all complete trials, as V2 Table 2's are over all runs.
    """
    kept = kept_trials(trials, least_runs=least_runs)
    complete = [trial for trial in trials if trial.complete]
    return dataclasses.replace(
        kept[0],
        **_means(kept)
        | {
            "trial": None,
            "seed": None,
            "epochs_to_target": None,
            "complete": all(trial.complete for trial in trials),
            "kept_trials": tuple(trial.trial for trial in kept if trial.trial is not None),
            "score_variation": variation([trial.vflops for trial in complete]),
            "epochs_to_target_variation": variation([one.epochs_to_target for one in complete]),
            "trials": tuple(trials),
        },
    )


def kept_trials(trials: Sequence[Score], *, least_runs: int) -> list[Score]:
    """Those whose mean is the score: without the highest and the lowest by VFLOPS (V2 §5.3.2).

    Only complete trials compete, and only if there are at least the least runs of the class;
    fewer are no valid result [D3], and all of them are shown as their plain mean. What is left
    is never nothing: of one or two trials none is dropped.
    """
    complete = [trial for trial in trials if trial.complete]
    if len(complete) < max(least_runs, 3):
        return complete if len(complete) >= least_runs else list(trials)
    ranked = sorted(range(len(complete)), key=lambda at: complete[at].vflops)
    dropped = {ranked[0], ranked[-1]}
    return [trial for at, trial in enumerate(complete) if at not in dropped]


def variation(values: Sequence[float | None]) -> float | None:
    """Sample standard deviation (n − 1) / mean; None: fewer than two, or one is not known."""
    known = [value for value in values if value is not None]
    if len(known) < max(2, len(values)) or not fmean(known):
        return None
    return stdev(known) / fmean(known)


def _means(trials: Sequence[Score]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    if any(trial.clock == "wall" for trial in trials):
        merged["clock"] = "wall"
    for field in dataclasses.fields(Score):
        values = [getattr(trial, field.name) for trial in trials]
        if all(type(value) is float for value in values):
            merged[field.name] = fmean(values)
        elif None in values:
            # A mean over only those trials that got there would flatter the run.
            merged[field.name] = None
    if len({trial.power_coverage for trial in trials}) > 1:
        # Watts of accelerators and watts of whole nodes have no mean.
        merged |= dict.fromkeys(ENERGY_FIELDS)
    return merged


def _last_aggregate(events: Sequence[Event]) -> EnsembleResult:
    told = [event["result"] for event in events if event["event"] == "aggregate"]
    if not told:
        raise JobError("the trial has no aggregated result yet: `ai500 resume` goes on with it.")
    return schema.decode(EnsembleResult, told[-1], at="aggregate")


def _check_members(result: EnsembleResult, *, ensemble_size: int, trial: int) -> None:
    """Everybody finished or is missing, once: a member too many would add operations."""
    everyone = sorted((*result.members, *result.missing))
    if everyone != list(range(ensemble_size)) or result.complete != (not result.missing):
        raise JobError(
            f"the result of trial {trial} is not one of the {ensemble_size} members that were "
            "planned. `ai500 resume` repeats the trial."
        )
    if not result.members or len(result.members) != len(result.member_qualities):
        raise JobError(f"the result of trial {trial} does not tell each member's quality.")


def clock_of(events: Sequence[Event]) -> Literal["monotonic", "wall"]:
    """One boot of one host has a clock that nobody can set; several have only the wall's."""
    hosts = {host_of(event) for event in events if event["event"] in TRAINING_EVENTS}
    return "monotonic" if len(hosts) == 1 and all(boot for _, boot in hosts) else "wall"


def _span(events: Sequence[Event], member: int, *, clock: str, epochs: int) -> MemberSpan:
    training = [event for event in events if event["event"] in TRAINING_EVENTS]
    by_kind: dict[str, list[Event]] = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)
    for kind in ("first_batch", "end", "operations", "epoch"):
        if kind not in by_kind:
            raise JobError(f"member {member} has no event {kind!r}: its log is incomplete.")
    attempts: dict[int, list[float]] = {}
    for event in training:
        attempts.setdefault(event["attempt"], []).append(event[clock])
    # A crash between an event and its checkpoint repeats the event: an epoch counts once.
    trained = {event["epoch"]: event for event in by_kind["epoch"]}
    if set(trained) != set(range(1, epochs + 1)):
        raise JobError(f"member {member} told of epochs {sorted(trained)}, not of 1 to {epochs}.")
    qualities = {event["epoch"]: event for event in by_kind.get("quality", [])}
    names = {field.name for field in dataclasses.fields(Operations)}
    told = {key: value for key, value in by_kind["operations"][-1].items() if key in names}
    return MemberSpan(
        member=member,
        start=min(event[clock] for event in by_kind["first_batch"]),
        end=by_kind["end"][-1][clock],
        attempts=tuple((min(times), max(times)) for times in attempts.values()),
        images=sum(event["images"] for event in trained.values()),
        steps=sum(event["steps"] for event in trained.values()),
        validation_images=sum(event["images"] for event in qualities.values()),
        qualities={epoch: (e[clock], e["quality"]) for epoch, e in qualities.items()},
        operations=schema.decode(Operations, told, at="operations"),
    )


def _target_reached(
    spans: Sequence[MemberSpan], *, target: float, lower_is_better: bool
) -> tuple[int, float] | None:
    """Epoch and time at which the members' mean first reached the target; None: it did not.

    The epoch is that of an evaluation: it is known no finer than the class evaluates [D14].
    """
    common = set.intersection(*(set(span.qualities) for span in spans))
    for epoch in sorted(common):
        mean = fmean(span.qualities[epoch][1] for span in spans)
        if mean <= target if lower_is_better else mean >= target:
            return epoch, max(span.qualities[epoch][0] for span in spans)
    return None


def _idle(spans: Sequence[MemberSpan], *, first: float, last: float) -> float:
    """Seconds of the window that no attempt of any member covers."""
    covered, reached = 0.0, first
    for start, end in sorted(interval for span in spans for interval in span.attempts):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return max(0.0, (last - first) - covered)
