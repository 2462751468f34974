"""Score of a search over time, from the histories of its workers (AIPerf §IV-D, §IV-E).

    FLOPS(t)            = operations from the first batch until t / t
    regulated score(t)  = −ln(best error until t) × FLOPS(t)                       (AIPerf Eq. 3)

Operations are those of training and of validation, counted analytically for each architecture.
The final score is the highest FLOPS(t) of all t that are at least the class's minimum time: the
warm-up counts, a short peak does not, and a longer search never lowers the score.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean
from typing import Any

from ai500.automl.history import Candidate, Epoch, History, Line, Phase, Presence, Work
from ai500.core.clocks import Clocks, host_of
from ai500.core.errors import JobError
from ai500.core.events import Event
from ai500.meters.log import NodeLog
from ai500.metrics.energy import Window, sample_times
from ai500.metrics.trials import (
    Clock,
    clock_of,
    idle_seconds,
    mean,
    recorded_result,
    trial_score,
)
from ai500.records import (
    EnsembleResult,
    Improvement,
    Plan,
    SearchFigures,
    SearchScore,
    TrialScore,
    TrialSearchScore,
    most_uncounted,
    require,
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Work of one worker in a few seconds, with the operations that were not counted before."""

    worker: int
    attempt: int
    model: str
    phase: Phase
    start: float
    end: float
    """Start and end in seconds since the search's first batch."""
    operations: int
    count: int
    """Counted steps of training or samples of validation."""


@dataclass(frozen=True)
class Curve:
    """Operations over time, linear between the points."""

    seconds: Sequence[float]
    operations: Sequence[float]

    def at(self, seconds: float) -> float:
        """Interpolate the operations from the start until `seconds`."""
        place = bisect_right(self.seconds, seconds)
        if place in (0, len(self.seconds)):
            return self.operations[-1] if place else 0.0
        left, right = self.seconds[place - 1 : place + 1]
        low, high = self.operations[place - 1 : place + 1]
        return low + (high - low) * (seconds - left) / (right - left)

    def flops(self, seconds: float) -> float:
        """Compute FLOPS(t)."""
        return self.at(seconds) / seconds if seconds > 0 else 0.0

    def rate(self, until: float, *, window: float) -> float:
        """Compute the operations per second in the `window` that ends at `until`."""
        return (self.at(until) - self.at(until - window)) / window

    def highest(self, *, least: float) -> tuple[float, float]:
        """Return the highest FLOPS(t) with t ≥ `least`, or of a shorter search its last, and t."""
        last = self.seconds[-1]
        times = [*self.seconds[bisect_left(self.seconds, min(least, last)) :], min(least, last)]
        best = max(times, key=self.flops)
        return self.flops(best), best


@dataclass(frozen=True)
class SearchTimeline:
    """A trial's search on one clock."""

    chunks: Sequence[Chunk]
    curve: Curve
    improvements: Sequence[Improvement]
    first: float
    """Time of the first batch, on the clock of the trial's events."""
    validation_samples: int

    @property
    def seconds(self) -> float:
        """Seconds from the first batch to the last worker's end."""
        return self.curve.seconds[-1]

    def error(self, seconds: float) -> float | None:
        """Return the best error until `seconds`; None: no model was validated yet."""
        place = bisect_right(self.improvements, seconds, key=lambda better: better.seconds)
        return self.improvements[place - 1].error if place else None

    def regulated(self, seconds: float) -> float | None:
        """Compute the regulated score at `seconds`; None: no model was validated yet."""
        error = self.error(seconds)
        if error is None:
            return None
        return regulated_score(
            self.curve.flops(seconds), error=error, validation_samples=self.validation_samples
        )

    def to_error(self, error: float) -> Improvement | None:
        """Return the first improvement to at most `error`."""
        return next((better for better in self.improvements if better.error <= error), None)


def regulated_score(flops: float, *, error: float, validation_samples: int) -> float:
    """Compute AIPerf Eq. 3. An error of 0 among N samples counts as 1 / N."""
    return -math.log(max(error, 1 / validation_samples)) * flops


def search_timeline(
    lines: Sequence[Line], history: History, time_of: Callable[[Line], float]
) -> SearchTimeline:
    """Read a search from its workers' lines; `time_of` gives a line's time on one clock."""
    counted = list(_chunks(lines, history, time_of))
    if not counted:
        raise JobError("no worker has trained yet: their histories are empty.", key="history")
    presences = [time_of(line) for line in lines if isinstance(line.entry, Presence)]
    first = min([*(chunk.start for chunk in counted), *presences])
    chunks = [
        dataclasses.replace(chunk, start=chunk.start - first, end=chunk.end - first)
        for chunk in counted
    ]
    curve = curve_of(chunks, until=max(presences, default=first) - first)
    errors: dict[tuple[str, int], tuple[float, float, str]] = {}
    for line in lines:
        epoch = line.entry
        if isinstance(epoch, Epoch) and _own(line, history):
            # Of an epoch that a resumed worker repeated the last one counts, as in `Model`.
            key = epoch.model, epoch.epoch
            errors[key] = time_of(line) - first, 1 - epoch.accuracy, epoch.model
    validations = sorted(errors.values())
    sizes = {model.candidate.validation_samples for model in history.models.values()}
    return SearchTimeline(chunks, curve, _improvements(validations, curve), first, max(1, *sizes))


def _own(line: Line, history: History) -> bool:
    """Return True if a line is about a model of the worker that wrote it."""
    model = history.models.get(getattr(line.entry, "model", ""))
    return model is not None and model.worker == line.worker


def _improvements(
    validations: Iterable[tuple[float, float, str]], curve: Curve
) -> tuple[Improvement, ...]:
    improvements: list[Improvement] = []
    for seconds, error, model in validations:
        if not improvements or error < improvements[-1].error:
            # The epoch's line follows its work, which may be the last of the search.
            at = min(seconds, curve.seconds[-1])
            improvements.append(Improvement(at, curve.at(at), error, model))
    return tuple(improvements)


def _chunks(
    lines: Iterable[Line], history: History, time_of: Callable[[Line], float]
) -> Iterable[Chunk]:
    counter = WorkCounter()
    for line in lines:
        work = line.entry
        if not isinstance(work, Work) or not _own(line, history):
            continue
        candidate, end = history.models[work.model].candidate, time_of(line)
        new = counter.count(work, candidate)
        yield Chunk(
            worker=line.worker,
            attempt=line.attempt,
            model=work.model,
            phase=work.phase,
            start=end - work.seconds,
            end=end,
            operations=new * candidate.operations_per_unit(work.phase),
            count=new,
        )


class WorkCounter:
    """Counter of work: repeated work counts once, and no epoch exceeds its length."""

    def __init__(self) -> None:
        self._covered: dict[tuple[str, Phase, int], list[tuple[int, int]]] = {}

    def count(self, work: Work, candidate: Candidate) -> int:
        """Return the steps or samples that were not counted before."""
        limit = candidate.steps_per_epoch if work.phase == "train" else candidate.validation_samples
        if work.epoch > candidate.epochs:
            return 0
        known = self._covered.setdefault((work.model, work.phase, work.epoch), [])
        return newly_covered(known, work.first, min(work.first + work.count, limit))


def newly_covered(known: list[tuple[int, int]], first: int, end: int) -> int:
    """Add [first, end) to the ranges in `known`. Return how many of it they did not cover."""
    if end <= first:
        return 0
    touching = [span for span in known if span[0] <= end and first <= span[1]]
    before = sum(high - low for low, high in touching)
    low = min([first, *(span[0] for span in touching)])
    high = max([end, *(span[1] for span in touching)])
    known[:] = [span for span in known if span not in touching] + [(low, high)]
    return high - low - before


def curve_of(chunks: Sequence[Chunk], *, until: float) -> Curve:
    """Sum all workers' operations, each chunk's spread evenly over its time; flat to `until`."""
    # Time → change of the rate there.
    steps: dict[float, float] = {0.0: 0.0}
    if until > max(chunk.end for chunk in chunks):
        steps[until] = 0.0
    jumps: dict[float, float] = {}
    for chunk in chunks:
        length = chunk.end - chunk.start
        if length > 0:
            steps[chunk.start] = steps.get(chunk.start, 0.0) + chunk.operations / length
            steps[chunk.end] = steps.get(chunk.end, 0.0) - chunk.operations / length
        else:
            steps.setdefault(chunk.end, 0.0)
            jumps[chunk.end] = jumps.get(chunk.end, 0.0) + chunk.operations
    times = sorted(steps)
    total, rate, totals = 0.0, 0.0, []
    for before, now in pairwise([times[0], *times]):
        total += rate * (now - before) + jumps.get(now, 0.0)
        rate += steps[now]
        totals.append(total)
    return Curve(times, totals)


@dataclass(frozen=True, slots=True)
class Idle:
    """Fractions of the workers' time, from each one's first batch to its last work."""

    between_trainings: float
    """Fraction from the end of one model's work to the next one's first batch, in one attempt."""
    uncovered: float
    """Fraction without any work, restarts after a failure included. Checkpoints and the ends of
    epochs count as the work they belong to."""


def idle(chunks: Iterable[Chunk]) -> Idle:
    """Compute how much of their time the workers' accelerators were idle."""
    by_worker: dict[int, list[Chunk]] = {}
    for chunk in chunks:
        by_worker.setdefault(chunk.worker, []).append(chunk)
    total = between = uncovered = 0.0
    for own in by_worker.values():
        own.sort(key=lambda chunk: (chunk.end, chunk.start))
        total += own[-1].end - own[0].start
        reached = own[0].end
        for chunk, following in pairwise(own):
            gap = max(0.0, following.start - reached)
            uncovered += gap
            if chunk.attempt == following.attempt and chunk.model != following.model:
                between += gap
            reached = max(reached, following.end)
    return Idle(between / total, uncovered / total) if total else Idle(0.0, 0.0)


def search_result(
    history: History, *, finished: Sequence[int], ensemble_size: int
) -> EnsembleResult:
    """Return the trial's result: the lowest error of each finished worker, and of all of them."""
    history.refresh()
    best = best_errors(history)
    members = tuple(sorted(worker for worker in finished if worker in best))
    if not members:
        raise JobError(
            "no worker validated a model: the search was too short for one epoch.",
            key="automl.minutes",
            remedy="Set a larger automl.minutes, or choose a smaller class.",
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
    """Return the least error of each worker that validated a model."""
    best: dict[int, float] = {}
    for model in history.models.values():
        if model.accuracy is not None:
            best[model.worker] = min(best.get(model.worker, 1.0), 1 - model.accuracy)
    return best


def search_figures(
    search: SearchTimeline, history: History, *, min_seconds: float, target: float
) -> TrialSearchScore:
    """Compute the figures of a search, all but the final FLOPS."""
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
    """Return the highest regulated score with t ≥ `least`, and that t."""
    least = min(least, search.seconds)
    moments = [t for t in search.curve.seconds if t >= least]
    moments += [better.seconds for better in search.improvements if least <= better.seconds]
    known = [(score, t) for t in [least, *moments] if (score := search.regulated(t)) is not None]
    if not known:
        raise JobError("no model was validated: there is no regulated score.", key="history")
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
            figures[field.name] = mean(values)
        else:
            # A mean over only those trials that reached the target would flatter the run.
            figures[field.name] = None if None in values else getattr(best, field.name)
    return SearchScore(**figures, operations_to_target_variation=variation)


@dataclass(frozen=True)
class TimedSearch:
    """A search with its histories and its clock."""

    search: SearchTimeline
    history: History
    clock: Clock
    clocks: Clocks
    ends: tuple[Event, Event]
    """Events of the first and the last line."""


def timed_search(history: History, events: Sequence[Event]) -> TimedSearch:
    """Read a search on one clock; the trial's `events` have the offsets of the hosts' clocks."""
    lines = history.refresh()
    if not lines:
        raise JobError("the search has no history: no worker has written one yet.", key="history")
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
    """Compute a trial's score; AIPerf has no penalty: its classes have the exponent n = 0."""
    terms = plan.definition.search
    if terms is None:
        raise JobError("the plan's class has no settings of a search.", key="definition.search")
    recorded = [event for event in events if event.get("trial") == trial]
    timed = timed_search(history, recorded)
    search, definition = timed.search, plan.definition
    result = _result(recorded, history)
    flops, _ = search.curve.highest(least=60 * terms.minutes)
    reached = search.to_error(definition.target_quality)
    training, validation = (_operations(search.chunks, phase) for phase in ("train", "validate"))
    steps = sum(chunk.count for chunk in search.chunks if chunk.phase == "train")
    first_wave = {mapping.member for mapping in plan.mapping if mapping.wave == 0}
    starts = [s for worker, (s, _) in spans(search.chunks).items() if worker in first_wave]
    work = [(chunk.start, chunk.end) for chunk in sorted(search.chunks, key=attrgetter("start"))]
    one_host = timed.clock == "monotonic"
    return trial_score(
        plan,
        recorded,
        trial=trial,
        result=result,
        flops=flops,
        window=Window(
            search.first, search.first + search.seconds, sample_times(recorded, timed.clock)
        ),
        meters=meters,
        convention=_convention(history),
        seconds=search.seconds,
        time_to_quality_seconds=search.seconds,
        time_to_target_seconds=None if reached is None else reached.seconds,
        operations=float(training),
        validation_operations=float(validation),
        apc=plan.ensemble_size * training / steps if steps else 0.0,
        members_flops_sum=_own_rates(search.chunks),
        uncounted=most_uncounted(
            model.candidate.operations.uncounted for model in history.models.values()
        ),
        start_skew_seconds=max(starts) - min(starts) if starts else 0.0,
        idle_seconds=idle_seconds(work, first=0.0, last=search.seconds),
        clock=timed.clock,
        clock_offset_seconds=timed.clocks.largest_offset(),
        clock_uncertainty_seconds=0.0 if one_host else timed.clocks.uncertainty(*timed.ends),
        search=search_figures(
            search,
            history,
            min_seconds=60 * terms.minutes,
            target=definition.target_quality,
        ),
    )


def _result(events: Sequence[Event], history: History) -> EnsembleResult:
    """Return the trial's recorded result; refuse one that contradicts the histories."""
    result = recorded_result(events)
    best, error = best_errors(history), require(result.ensemble_quality, "ensemble_quality")
    claimed = dict(zip(result.members, result.member_qualities, strict=True))
    if not best or not math.isclose(error, min(best.values()), rel_tol=1e-9):
        raise JobError(
            f"the recorded result has an error of {error:g}, the histories of "
            f"the workers {min(best.values(), default=math.nan):g}.",
            key="aggregate",
            value=error,
            remedy="Restore the histories from a backup.",
        )
    for worker, error in claimed.items():
        if not math.isclose(error, best.get(worker, math.nan), rel_tol=1e-9):
            raise JobError(
                f"the error of worker {worker} does not follow from its history.",
                key="aggregate",
                value=error,
            )
    return result


def _operations(chunks: Sequence[Chunk], phase: str) -> int:
    return sum(chunk.operations for chunk in chunks if chunk.phase == phase)


def _convention(history: History) -> str:
    conventions = {model.candidate.operations.convention for model in history.models.values()}
    if len(conventions) != 1:
        raise JobError(
            f"operations are counted by several conventions: {', '.join(conventions)}.",
            key="convention",
        )
    return conventions.pop()


def spans(chunks: Iterable[Chunk]) -> dict[int, tuple[float, float]]:
    """Return each worker's first batch and the end of its last work."""
    spans: dict[int, tuple[float, float]] = {}
    for chunk in chunks:
        first, last = spans.get(chunk.worker, (chunk.start, chunk.end))
        spans[chunk.worker] = min(first, chunk.start), max(last, chunk.end)
    return spans


def _own_rates(chunks: Sequence[Chunk]) -> float:
    total: dict[int, int] = {}
    for chunk in chunks:
        total[chunk.worker] = total.get(chunk.worker, 0) + chunk.operations
    return sum(
        total[worker] / (last - first)
        for worker, (first, last) in spans(chunks).items()
        if last > first
    )
