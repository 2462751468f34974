"""A search's trial to the same `Score` an ensemble has, from its histories and events alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ai500.automl.history import History, Line
from ai500.automl.search_score import (
    Chunk,
    Search,
    best_errors,
    clock_of_lines,
    figures_of,
    read_search,
)
from ai500.core import schema
from ai500.core.clocks import Clocks, host_of
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import NodeLog
from ai500.metrics import equations
from ai500.metrics.energy import Window, per_watt, sample_times, trial_energy
from ai500.records import EnsembleResult, Plan, Score
from ai500.workloads.protocol import load_workload


@dataclass(frozen=True)
class Clocked:
    """A search, and how its time was told."""

    search: Search
    history: History
    clock: str
    clocks: Clocks
    ends: tuple[Event, Event]
    """The lines that begin and end the window."""


def clocked(history: History, events: Sequence[Event]) -> Clocked:
    """The search on one clock; `events` of the trial tell the offsets of its hosts' clocks."""
    lines = history.look()
    if not lines:
        raise JobError("the search has no history: no worker has written one yet.")
    clock = clock_of_lines({host_of(line.event) for line in lines})
    clocks = Clocks(events)

    def time_of(line: Line) -> float:
        if clock == "monotonic":
            return float(line.event["monotonic"])
        return float(clocks.corrected(line.event)["wall"])

    ordered = sorted(lines, key=time_of)
    search = read_search(lines, history, time_of)
    return Clocked(search, history, clock, clocks, (ordered[0].event, ordered[-1].event))


def score_search(
    plan: Plan,
    events: Iterable[Event],
    *,
    history: History,
    trial: int,
    meters: Iterable[NodeLog] = (),
) -> Score:
    """One trial's score; VFLOPS is by the class's exponent, which AIPerf does not have (n = 0)."""
    terms = plan.definition.search
    if terms is None:
        raise JobError("the plan's class has no terms of a search: it can't be scored as one.")
    mine = [event for event in events if event.get("trial") == trial]
    found = clocked(history, mine)
    search, definition = found.search, plan.definition
    result = _result(mine, history)
    flops, _ = search.curve.highest(least=60 * terms.minutes)
    error = result.ensemble_quality
    penalty = equations.penalty_coefficient(
        error,
        target_quality=definition.target_quality,
        exponent=definition.penalty_exponent,
        direction="lower",
    )
    vflops = equations.vflops(flops, penalty_coefficient=penalty)
    reached = search.to_error(definition.target_quality)
    window = Window(search.first, search.first + search.seconds, sample_times(mine, found.clock))
    nodes = {one.member: len(one.shares) for one in plan.mapping if one.member in result.members}
    energy = trial_energy(meters, window, nodes_of_members=nodes)
    training, validation = (_operations(search.chunks, phase) for phase in ("train", "validate"))
    steps = sum(one.count for one in search.chunks if one.phase == "train")
    first_wave = {one.member for one in plan.mapping if one.wave == 0}
    starts = [s for worker, (s, _) in spans(search.chunks).items() if worker in first_wave]
    one_host = found.clock == "monotonic"
    return Score(
        workload=plan.workload,
        problem_class=plan.problem_class,
        convention=_convention(history),
        complete=result.complete,
        trial=trial,
        seed=next((e["seed"] for e in mine if e["event"] == "trial_start"), None),
        flops=flops,
        vflops=vflops,
        penalty_coefficient=penalty,
        target_quality=definition.target_quality,
        quality_name=load_workload(plan.workload).quality_name,
        ensemble_quality=error,
        members_mean_quality=result.members_mean_quality,
        out_of_bag_quality=None,
        seconds=search.seconds,
        time_to_quality_seconds=search.seconds,
        time_to_target_seconds=None if reached is None else reached.seconds,
        operations=float(training),
        validation_operations=float(validation),
        apc=plan.ensemble_size * training / steps if steps else 0.0,
        members_flops_sum=_own_rates(search.chunks),
        start_skew_seconds=max(starts) - min(starts) if starts else 0.0,
        idle_seconds=_nobody_worked(search),
        ensemble_size=plan.ensemble_size,
        parallel_degree=plan.parallel_degree,
        system_scale=plan.system_scale,
        members_per_accelerator=plan.members_per_accelerator,
        waves=plan.waves,
        clock="monotonic" if one_host else "wall",
        clock_offset_seconds=found.clocks.largest_offset(),
        clock_uncertainty_seconds=0.0 if one_host else found.clocks.uncertainty(*found.ends),
        search=figures_of(
            search,
            history,
            least_seconds=60 * terms.minutes,
            target=definition.target_quality,
        ),
        **per_watt(energy, flops=flops, vflops=vflops),
    )


def _result(events: Sequence[Event], history: History) -> EnsembleResult:
    """The trial's result, which has to follow from the histories."""
    told = [event["result"] for event in events if event["event"] == "aggregate"]
    if not told:
        raise JobError("the search has no result yet: `ai500 resume` goes on with it.")
    result = schema.decode(EnsembleResult, told[-1], at="aggregate")
    best = best_errors(history)
    claimed = dict(zip(result.members, result.member_qualities, strict=True))
    if not best or not math.isclose(result.ensemble_quality, min(best.values()), rel_tol=1e-9):
        raise JobError(
            f"the result says an error of {result.ensemble_quality:g}, the histories of the "
            f"workers {min(best.values(), default=math.nan):g}. Is there a backup of them?"
        )
    for worker, error in claimed.items():
        if not math.isclose(error, best.get(worker, math.nan), rel_tol=1e-9):
            raise JobError(f"the error of worker {worker} does not follow from its history.")
    return result


def _operations(chunks: Sequence[Chunk], phase: str) -> int:
    return sum(one.operations for one in chunks if one.phase == phase)


def _convention(history: History) -> str:
    found = {model.candidate.operations.convention for model in history.models.values()}
    if len(found) != 1:
        raise JobError(f"operations are counted by several conventions: {', '.join(found)}.")
    return found.pop()


def spans(chunks: Iterable[Chunk]) -> dict[int, tuple[float, float]]:
    """Worker → its first batch and the end of its last work."""
    found: dict[int, tuple[float, float]] = {}
    for one in chunks:
        first, last = found.get(one.worker, (one.start, one.end))
        found[one.worker] = min(first, one.start), max(last, one.end)
    return found


def _own_rates(chunks: Sequence[Chunk]) -> float:
    total: dict[int, int] = {}
    for one in chunks:
        total[one.worker] = total.get(one.worker, 0) + one.operations
    return sum(
        total[worker] / (last - first)
        for worker, (first, last) in spans(chunks).items()
        if last > first
    )


def _nobody_worked(search: Search) -> float:
    """Seconds of the window that no worker's work covers."""
    covered = reached = 0.0
    for one in sorted(search.chunks, key=lambda chunk: chunk.start):
        covered += max(0.0, one.end - max(one.start, reached))
        reached = max(reached, one.end)
    return max(0.0, search.seconds - covered)
