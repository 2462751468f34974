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
    figures_of,
    read_search,
)
from ai500.core.clocks import Clocks, host_of
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import NodeLog
from ai500.metrics.energy import Window, sample_times
from ai500.metrics.trials import Clock, clock_of, recorded_result, trial_score
from ai500.records import EnsembleResult, Plan, TrialScore


@dataclass(frozen=True)
class Clocked:
    """A search, and how its time was told."""

    search: Search
    history: History
    clock: Clock
    clocks: Clocks
    ends: tuple[Event, Event]
    """The lines that begin and end the window."""


def clocked(history: History, events: Sequence[Event]) -> Clocked:
    """The search on one clock; `events` of the trial tell the offsets of its hosts' clocks."""
    lines = history.look()
    if not lines:
        raise JobError("the search has no history: no worker has written one yet.")
    clock = clock_of({host_of(line.event) for line in lines})
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
) -> TrialScore:
    """One trial's score; VFLOPS is by the class's exponent, which AIPerf does not have (n = 0)."""
    terms = plan.definition.search
    if terms is None:
        raise JobError("the plan's class has no terms of a search: it can't be scored as one.")
    mine = [event for event in events if event.get("trial") == trial]
    found = clocked(history, mine)
    search, definition = found.search, plan.definition
    result = _result(mine, history)
    flops, _ = search.curve.highest(least=60 * terms.minutes)
    reached = search.to_error(definition.target_quality)
    training, validation = (_operations(search.chunks, phase) for phase in ("train", "validate"))
    steps = sum(chunk.count for chunk in search.chunks if chunk.phase == "train")
    first_wave = {mapping.member for mapping in plan.mapping if mapping.wave == 0}
    starts = [s for worker, (s, _) in spans(search.chunks).items() if worker in first_wave]
    one_host = found.clock == "monotonic"
    return trial_score(
        plan,
        mine,
        trial=trial,
        result=result,
        flops=flops,
        window=Window(search.first, search.first + search.seconds, sample_times(mine, found.clock)),
        meters=meters,
        convention=_convention(history),
        seconds=search.seconds,
        time_to_quality_seconds=search.seconds,
        time_to_target_seconds=None if reached is None else reached.seconds,
        operations=float(training),
        validation_operations=float(validation),
        apc=plan.ensemble_size * training / steps if steps else 0.0,
        members_flops_sum=_own_rates(search.chunks),
        start_skew_seconds=max(starts) - min(starts) if starts else 0.0,
        idle_seconds=_nobody_worked(search),
        clock=found.clock,
        clock_offset_seconds=found.clocks.largest_offset(),
        clock_uncertainty_seconds=0.0 if one_host else found.clocks.uncertainty(*found.ends),
        search=figures_of(
            search,
            history,
            min_seconds=60 * terms.minutes,
            target=definition.target_quality,
        ),
    )


def _result(events: Sequence[Event], history: History) -> EnsembleResult:
    """The trial's result, which has to follow from the histories."""
    result = recorded_result(events)
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
