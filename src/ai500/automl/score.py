"""From the histories of a search's workers to its score over time (AIPerf §IV-D, §IV-E).

    FLOPS(t)            = operations from the first batch until t / t
    regulated score(t)  = −ln(best error until t) × FLOPS(t)                       (AIPerf Eq. 3)

Operations are those of training and of validation, counted analytically for each architecture.
The final score is the highest FLOPS(t) of all t that are no shorter than the class's least time:
so the warm-up counts, a lucky moment does not, and whoever searches longer loses nothing.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from ai500.automl.history import Candidate, Epoch, History, Line, Phase, Presence, Work
from ai500.core.clocks import Clocks, host_of
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import NodeLog
from ai500.metrics.energy import Window, sample_times
from ai500.metrics.trials import Clock, clock_of, recorded_result, trial_score
from ai500.records import (
    EnsembleResult,
    Improvement,
    Plan,
    SearchFigures,
    SearchScore,
    TrialScore,
    TrialSearchScore,
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A few seconds of one worker's work, with those operations that nothing before had counted."""

    worker: int
    attempt: int
    model: str
    phase: Phase
    start: float
    end: float
    """Seconds on the search's clock, which begins at its first batch."""
    operations: int
    count: int
    """Steps of training or images of validation that were counted."""


@dataclass(frozen=True)
class Curve:
    """Operations over time, straight between the points."""

    seconds: Sequence[float]
    operations: Sequence[float]

    def at(self, seconds: float) -> float:
        """Operations from the start until then."""
        place = bisect_right(self.seconds, seconds)
        if place in (0, len(self.seconds)):
            return self.operations[-1] if place else 0.0
        (left, right), (low, high) = (
            known[place - 1 : place + 1] for known in (self.seconds, self.operations)
        )
        return low + (high - low) * (seconds - left) / (right - left)

    def flops(self, seconds: float) -> float:
        """FLOPS(t)."""
        return self.at(seconds) / seconds if seconds > 0 else 0.0

    def rate(self, until: float, *, window: float) -> float:
        """Operations a second in the window that ends then."""
        return (self.at(until) - self.at(until - window)) / window

    def highest(self, *, least: float) -> tuple[float, float]:
        """The highest FLOPS(t) with t ≥ `least` (of a shorter search: its last) and that t."""
        last = self.seconds[-1]
        times = [*self.seconds[bisect_left(self.seconds, min(least, last)) :], min(least, last)]
        best = max(times, key=self.flops)
        return self.flops(best), best


@dataclass(frozen=True)
class SearchTimeline:
    """A trial's search on one clock: all that score and report are made of."""

    chunks: Sequence[Chunk]
    curve: Curve
    improvements: Sequence[Improvement]
    first: float
    """The first batch, on the clock of the trial's events."""
    validation_images: int

    @property
    def seconds(self) -> float:
        """From the first batch to the last worker's end."""
        return self.curve.seconds[-1]

    def error(self, seconds: float) -> float | None:
        """The best error until then; None: no model was validated yet."""
        place = bisect_right(self.improvements, seconds, key=lambda one: one.seconds)
        return self.improvements[place - 1].error if place else None

    def regulated(self, seconds: float) -> float | None:
        """The regulated score until then."""
        error = self.error(seconds)
        if error is None:
            return None
        return regulated_score(
            self.curve.flops(seconds), error=error, validation_images=self.validation_images
        )

    def to_error(self, error: float) -> Improvement | None:
        """When, and after how many operations, the best error was first at most that."""
        return next((one for one in self.improvements if one.error <= error), None)


def regulated_score(flops: float, *, error: float, validation_images: int) -> float:
    """AIPerf Eq. 3, for errors in (0, 1). No error among N images is known as less than 1 / N."""
    return -math.log(max(error, 1 / validation_images)) * flops


def search_timeline(
    lines: Sequence[Line], history: History, time_of: Callable[[Line], float]
) -> SearchTimeline:
    """The search from its workers' lines; `time_of` tells a line's time on the trial's clock."""
    counted = list(_chunks(lines, history, time_of))
    if not counted:
        raise JobError("no worker has trained yet: their histories are empty.")
    present = [time_of(line) for line in lines if isinstance(line.entry, Presence)]
    first = min([*(chunk.start for chunk in counted), *present])
    chunks = [
        dataclasses.replace(one, start=one.start - first, end=one.end - first) for one in counted
    ]
    curve = curve_of(chunks, until=max(present, default=first) - first)
    told: dict[tuple[str, int], tuple[float, float, str]] = {}
    for line in lines:
        one = line.entry
        if isinstance(one, Epoch) and _own(line, history):
            # A resumed worker may tell an epoch again: the last word counts, as in `Model`.
            told[one.model, one.epoch] = time_of(line) - first, 1 - one.accuracy, one.model
    judged = sorted(told.values())
    sizes = {model.candidate.validation_images for model in history.models.values()}
    return SearchTimeline(chunks, curve, _improvements(judged, curve), first, max(1, *sizes))


def _own(line: Line, history: History) -> bool:
    """Whether it is about a model of the worker that wrote it."""
    model = history.models.get(getattr(line.entry, "model", ""))
    return model is not None and model.worker == line.worker


def _improvements(
    judged: Iterable[tuple[float, float, str]], curve: Curve
) -> tuple[Improvement, ...]:
    found: list[Improvement] = []
    for seconds, error, model in judged:
        if not found or error < found[-1].error:
            # The last validation is judged a moment after its work, which may end the search.
            at = min(seconds, curve.seconds[-1])
            found.append(Improvement(at, curve.at(at), error, model))
    return tuple(found)


def _chunks(
    lines: Iterable[Line], history: History, time_of: Callable[[Line], float]
) -> Iterable[Chunk]:
    counted = WorkCounter()
    for line in lines:
        work = line.entry
        if not isinstance(work, Work) or not _own(line, history):
            continue
        candidate, end = history.models[work.model].candidate, time_of(line)
        fresh = counted.new(work, candidate)
        yield Chunk(
            worker=line.worker,
            attempt=line.attempt,
            model=work.model,
            phase=work.phase,
            start=end - work.seconds,
            end=end,
            operations=fresh * operations_per_unit(candidate, work.phase),
            count=fresh,
        )


class WorkCounter:
    """Work that is known: whatever is told again counts once, and no epoch has more than it has."""

    def __init__(self) -> None:
        self._covered: dict[tuple[str, Phase, int], list[tuple[int, int]]] = {}

    def new(self, work: Work, candidate: Candidate) -> int:
        """Steps or images that nothing told before."""
        limit = candidate.steps_per_epoch if work.phase == "train" else candidate.validation_images
        if work.epoch > candidate.epochs:
            return 0
        known = self._covered.setdefault((work.model, work.phase, work.epoch), [])
        return newly_covered(known, work.first, min(work.first + work.count, limit))


def newly_covered(known: list[tuple[int, int]], first: int, end: int) -> int:
    """How many of [first, end) no range in `known` has yet; they are in it afterwards."""
    if end <= first:
        return 0
    touching = [one for one in known if one[0] <= end and first <= one[1]]
    before = sum(high - low for low, high in touching)
    low = min([first, *(one[0] for one in touching)])
    high = max([end, *(one[1] for one in touching)])
    known[:] = [one for one in known if one not in touching] + [(low, high)]
    return high - low - before


def operations_per_unit(candidate: Candidate, phase: Phase) -> int:
    """Of an optimizer step [D12], or of one image's validation."""
    count = candidate.operations
    if phase == "validate":
        return count.forward_per_image
    return count.per_step(candidate.batch_size)


def curve_of(chunks: Sequence[Chunk], *, until: float) -> Curve:
    """All workers' operations, each chunk's spread evenly over its time; then none `until`."""
    steps: dict[float, float] = {0.0: 0.0}
    if until > max(one.end for one in chunks):
        steps[until] = 0.0
    """Time → change of the rate there."""
    jumps: dict[float, float] = {}
    for one in chunks:
        length = one.end - one.start
        if length > 0:
            steps[one.start] = steps.get(one.start, 0.0) + one.operations / length
            steps[one.end] = steps.get(one.end, 0.0) - one.operations / length
        else:
            steps.setdefault(one.end, 0.0)
            jumps[one.end] = jumps.get(one.end, 0.0) + one.operations
    times = sorted(steps)
    total, rate, totals = 0.0, 0.0, []
    for before, now in pairwise([times[0], *times]):
        total += rate * (now - before) + jumps.get(now, 0.0)
        rate += steps[now]
        totals.append(total)
    return Curve(times, totals)


@dataclass(frozen=True, slots=True)
class Idle:
    """Shares of the workers' time, each from its own first batch to its own last work."""

    between_trainings: float
    """From the end of one model's work to the next model's first batch, in one attempt."""
    uncovered: float
    """All time without work: also restarts after a failure. Checkpoints and the ends of epochs are
    in the time of the work they belong to."""


def idle(chunks: Iterable[Chunk]) -> Idle:
    """How much of their time the workers' accelerators had nothing to do."""
    by_worker: dict[int, list[Chunk]] = {}
    for chunk in chunks:
        by_worker.setdefault(chunk.worker, []).append(chunk)
    total = between = uncovered = 0.0
    for mine in by_worker.values():
        mine.sort(key=lambda one: (one.end, one.start))
        total += mine[-1].end - mine[0].start
        reached = mine[0].end
        for one, other in pairwise(mine):
            gap = max(0.0, other.start - reached)
            uncovered += gap
            if one.attempt == other.attempt and one.model != other.model:
                between += gap
            reached = max(reached, other.end)
    return Idle(between / total, uncovered / total) if total else Idle(0.0, 0.0)


def search_result(
    history: History, *, finished: Sequence[int], ensemble_size: int
) -> EnsembleResult:
    """In the place of an aggregated result: each worker's best error, and the best of all."""
    history.refresh()
    best = best_errors(history)
    members = tuple(sorted(worker for worker in finished if worker in best))
    if not members:
        raise JobError(
            "no worker validated a model: the search was too short for one epoch. "
            "Give it more time, or a smaller class."
        )
    errors = tuple(best[worker] for worker in members)
    missing = tuple(sorted(set(range(ensemble_size)) - set(members)))
    return EnsembleResult(
        complete=not missing,
        members=members,
        missing=missing,
        member_qualities=errors,
        members_mean_quality=fmean(errors),
        ensemble_quality=min(best.values()),
        out_of_bag_quality=None,
        out_of_bag_samples=0,
    )


def best_errors(history: History) -> dict[int, float]:
    """Worker → the least error of its models; workers that validated none are not in it."""
    best: dict[int, float] = {}
    for model in history.models.values():
        if model.accuracy is not None:
            best[model.worker] = min(best.get(model.worker, 1.0), 1 - model.accuracy)
    return best


def search_figures(
    search: SearchTimeline, history: History, *, min_seconds: float, target: float
) -> TrialSearchScore:
    """All but the final FLOPS, which is the score's own."""
    _, at_seconds = search.curve.highest(least=min_seconds)
    models = history.models.values()
    lost = idle(search.chunks)
    regulated, regulated_at = highest_regulated(search, least=min_seconds)
    reached = search.to_error(target)
    initial = [
        1 - model.accuracy
        for model in models
        if model.candidate.parent is None and model.accuracy is not None
    ]
    return TrialSearchScore(
        at_seconds=at_seconds,
        min_seconds=min_seconds,
        mean_flops=search.curve.flops(search.seconds),
        regulated_score=regulated,
        regulated_at_seconds=regulated_at,
        best_model=search.improvements[-1].model,
        initial_error=min(initial, default=None),
        models=len(models),
        architectures=len({model.candidate.digest for model in models}),
        tuned=sum(model.candidate.tuned for model in models),
        lost=sum(model.state == "lost" for model in models),
        idle_between_trainings=lost.between_trainings,
        without_work=lost.uncovered,
        unreadable_lines=len(history.unreadable),
        operations_to_target=None if reached is None else reached.operations,
        improvements=tuple(search.improvements),
    )


def highest_regulated(search: SearchTimeline, *, least: float) -> tuple[float, float]:
    """The highest regulated score with t ≥ `least`, and that t."""
    least = min(least, search.seconds)
    moments = [t for t in search.curve.seconds if t >= least]
    moments += [one.seconds for one in search.improvements if least <= one.seconds]
    known = [(score, t) for t in [least, *moments] if (score := search.regulated(t)) is not None]
    if not known:
        raise JobError("no model was validated: there is no error, and no regulated score.")
    return max(known)


def mean_of_searches(trials: Sequence[TrialSearchScore], *, variation: float | None) -> SearchScore:
    """Average the figures of the kept trials; the best model is that of the least error."""
    best = min(trials, key=lambda trial: min((i.error for i in trial.improvements), default=1.0))
    figures: dict[str, Any] = {}
    for field in dataclasses.fields(SearchFigures):
        values = [getattr(trial, field.name) for trial in trials]
        if field.name in ("lost", "unreadable_lines"):
            figures[field.name] = sum(values)
        elif all(type(value) is int for value in values):
            figures[field.name] = round(fmean(values))
        elif all(type(value) is float for value in values):
            figures[field.name] = fmean(values)
        else:
            # A mean over only those trials that reached the target would flatter the run.
            figures[field.name] = None if None in values else getattr(best, field.name)
    return SearchScore(**figures, operations_to_target_variation=variation)


@dataclass(frozen=True)
class TimedSearch:
    """A search, and how its time was told."""

    search: SearchTimeline
    history: History
    clock: Clock
    clocks: Clocks
    ends: tuple[Event, Event]
    """The lines that begin and end the window."""


def timed_search(history: History, events: Sequence[Event]) -> TimedSearch:
    """The search on one clock; `events` of the trial tell the offsets of its hosts' clocks."""
    lines = history.refresh()
    if not lines:
        raise JobError("the search has no history: no worker has written one yet.")
    clock = clock_of({host_of(line.event) for line in lines})
    clocks = Clocks(events)

    def time_of(line: Line) -> float:
        if clock == "monotonic":
            return float(line.event["monotonic"])
        return float(clocks.corrected(line.event)["wall"])

    ordered = sorted(lines, key=time_of)
    search = search_timeline(lines, history, time_of)
    return TimedSearch(search, history, clock, clocks, (ordered[0].event, ordered[-1].event))


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
    found = timed_search(history, mine)
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
        search=search_figures(
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


def _nobody_worked(search: SearchTimeline) -> float:
    """Seconds of the window that no worker's work covers."""
    covered = reached = 0.0
    for one in sorted(search.chunks, key=lambda chunk: chunk.start):
        covered += max(0.0, one.end - max(one.start, reached))
        reached = max(reached, one.end)
    return max(0.0, search.seconds - covered)
