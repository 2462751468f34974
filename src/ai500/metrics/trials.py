"""Scores of trials, and of a run: the mean of its trials.

A program times its trial and counts its operations; what follows from them is the same for all:
penalty, VFLOPS, energy, and the mean over trials.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any, Literal

from ai500.core import schema
from ai500.core.clocks import Host
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import NodeLog
from ai500.metrics import equations
from ai500.metrics.energy import Window, per_watt, trial_energy
from ai500.metrics.quality import target_of
from ai500.records import (
    EnsembleResult,
    Plan,
    Score,
    ScoreFigures,
    TrialScore,
    most_uncounted,
    require,
)
from ai500.workloads.protocol import class_workload

Clock = Literal["monotonic", "wall"]
ENERGY_FIELDS = (
    "energy_joules", "watts", "flops_per_watt", "vflops_per_watt", "power_coverage",
)  # fmt: skip


def trial_score(
    plan: Plan,
    events: Sequence[Event],
    *,
    trial: int,
    result: EnsembleResult,
    flops: float | None,
    window: Window,
    meters: Iterable[NodeLog],
    **figures: Any,
) -> TrialScore:
    """Complete the score of a trial whose program passes its own `figures`."""
    target = target_of(plan)
    quality = result.ensemble_quality
    # Without predictions the members' mean stands for the ensemble.
    penalty = target.penalty(result.members_mean_quality if quality is None else quality)
    vflops = None if flops is None else equations.vflops(flops, penalty_coefficient=penalty)
    nodes = {
        mapping.member: len(mapping.shares)
        for mapping in plan.mapping
        if mapping.member in result.members
    }
    energy = trial_energy(meters, window, nodes_of_members=nodes, device=plan.device)
    return TrialScore(
        workload=plan.workload,
        problem_class=plan.problem_class,
        complete=result.complete,
        trial=trial,
        seed=next((event["seed"] for event in events if event["event"] == "trial_start"), None),
        flops=flops,
        vflops=vflops,
        penalty_coefficient=penalty,
        target_quality=target.quality,
        quality_name=class_workload(plan.workload, plan.definition).quality_name,
        ensemble_quality=quality,
        members_mean_quality=result.members_mean_quality,
        out_of_bag_quality=result.out_of_bag_quality,
        custom_class=plan.definition.custom is not None,
        ensemble_size=plan.ensemble_size,
        parallel_degree=plan.parallel_degree,
        system_scale=plan.system_scale,
        members_per_accelerator=plan.members_per_accelerator,
        waves=plan.waves,
        **per_watt(energy, flops=flops, vflops=vflops),
        **figures,
    )


def recorded_result(events: Sequence[Event]) -> EnsembleResult:
    """Return the result that the last `aggregate` event of a trial recorded."""
    results = [event["result"] for event in events if event["event"] == "aggregate"]
    if not results:
        raise JobError(
            "the trial has no result yet.", key="aggregate", remedy="Run `ai500 resume`."
        )
    return schema.decode(EnsembleResult, results[-1], at="aggregate")


def idle_seconds(work: Iterable[tuple[float, float]], *, first: float, last: float) -> float:
    """Return the seconds from `first` to `last` that no work covers, given in order of starts."""
    covered, reached = 0.0, first
    for start, end in work:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return max(0.0, (last - first) - covered)


def clock_of(hosts: set[Host]) -> Clock:
    """Choose the clock of a trial: the monotonic one needs a single boot of a single host."""
    return "monotonic" if len(hosts) == 1 and all(boot for _, boot in hosts) else "wall"


def mean_of_trials(trials: Sequence[TrialScore], *, required_runs: int) -> Score:
    """Compute the run's score: the mean of the kept trials, with every trial's own (V2 §5.3.2).

    The variations are over all complete trials, as V2 Table 2's are over all runs.
    """
    kept = kept_trials(trials, required_runs=required_runs)
    complete = [trial for trial in trials if trial.complete]
    figures = _means(kept) | {"complete": len(complete) == len(trials)}
    return Score(
        **figures,
        kept_trials=tuple(trial.trial for trial in kept),
        score_variation=variation([trial.vflops for trial in complete]),
        epochs_to_target_variation=variation([trial.epochs_to_target for trial in complete]),
        trials=tuple(trials),
    )


def kept_trials(trials: Sequence[TrialScore], *, required_runs: int) -> list[TrialScore]:
    """Return the trials whose mean is the score: all but the highest and lowest (V2 §5.3.2).

    They are ranked by VFLOPS, or by their time where operations were not counted. Only complete
    trials compete, and only if there are at least the least runs of the class; fewer are no valid
    result [D3], and their plain mean is shown. Of one or two trials none is dropped.
    """
    complete = [trial for trial in trials if trial.complete]
    if len(complete) < max(required_runs, 3):
        return complete if len(complete) >= required_runs else list(trials)
    rates = [trial.vflops for trial in complete]
    # Operations that were not counted give no VFLOPS: the time then decides.
    by_time = [-trial.seconds for trial in complete]
    ranks = by_time if None in rates else [require(rate, "vflops") for rate in rates]
    ranked = sorted(range(len(complete)), key=ranks.__getitem__)
    dropped = {ranked[0], ranked[-1]}
    return [trial for index, trial in enumerate(complete) if index not in dropped]


def variation(values: Sequence[float | None]) -> float | None:
    """Compute sample standard deviation (n − 1) / mean.

    Return None for fewer than two values, or where a value is not known.
    """
    known = [value for value in values if value is not None]
    if len(known) < max(2, len(values)) or not fmean(known):
        return None
    return stdev(known) / fmean(known)


def mean(values: Sequence[float]) -> float:
    """Return the mean; exactly the common value where all are equal.

    A rounded mean of a constant such as the target differs from it: (0.7 + 0.7 + 0.7) / 3 ≠ 0.7.
    """
    first = values[0]
    return first if all(value == first for value in values) else fmean(values)


def _means(trials: Sequence[TrialScore]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for field in dataclasses.fields(ScoreFigures):
        values = [getattr(trial, field.name) for trial in trials]
        if all(type(value) is float for value in values):
            figures[field.name] = mean(values)
        else:
            # A mean over only those trials that reached the target would flatter the run.
            figures[field.name] = None if None in values else values[0]
    figures["uncounted"] = most_uncounted(trial.uncounted for trial in trials)
    if any(trial.clock == "wall" for trial in trials):
        figures["clock"] = "wall"
    if len({trial.power_coverage for trial in trials}) > 1:
        # Watts of accelerators and watts of whole nodes have no mean.
        figures |= dict.fromkeys(ENERGY_FIELDS)
    return figures
