"""Curves and attempts of each member of a trial, from the run's events.

Unlike the score, which refuses an incomplete log, the report shows all events that are there:
members that failed have curves and attempts, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core.events import TRAINING_EVENTS, Event


@dataclass(frozen=True)
class Attempt:
    """A start of a member; times in seconds on the trial's clock."""

    number: int
    job_started: float | None
    """None: not recorded."""
    launched: float | None
    """First event of the worker's process; None: not recorded."""
    start: float
    end: float
    finished: bool


@dataclass(frozen=True)
class MemberHistory:
    """A member's curves and attempts."""

    member: int
    losses: tuple[tuple[int, float], ...]
    """(epoch, mean training loss)."""
    qualities: tuple[tuple[int, float], ...]
    """(epoch, quality on the validation split)."""
    attempts: tuple[Attempt, ...]
    starts: int
    """Number of submissions of its job, including those that never trained."""

    @property
    def seconds(self) -> float | None:
        """Seconds from the first batch to the end; None: it has not ended."""
        if not self.attempts or not self.attempts[-1].finished:
            return None
        return self.attempts[-1].end - self.attempts[0].start


def member_histories(
    events: Iterable[Event], *, trial: int, clock: Literal["monotonic", "wall"]
) -> dict[int, MemberHistory]:
    """Return the history of each member that has events."""
    logs: dict[int, list[Event]] = {}
    for event in events:
        member = event.get("member")
        if event.get("trial") == trial and isinstance(member, int):
            logs.setdefault(member, []).append(event)
    return {
        member: MemberHistory(
            member=member,
            losses=_curve(logs[member], "epoch", "loss"),
            qualities=_curve(logs[member], "quality", "quality"),
            attempts=_attempts(logs[member], clock),
            starts=len({event["attempt"] for event in logs[member] if "attempt" in event}),
        )
        for member in sorted(logs)
    }


def window_start(histories: Mapping[int, MemberHistory]) -> float:
    """Return the time of the ensemble's first batch."""
    return min(
        (attempt.start for history in histories.values() for attempt in history.attempts),
        default=0.0,
    )


def _curve(events: Iterable[Event], kind: str, field: str) -> tuple[tuple[int, float], ...]:
    """Read a curve; after a crash before a checkpoint events repeat, and the last one counts."""
    curve = {
        int(event["epoch"]): float(event[field])
        for event in events
        if event["event"] == kind
        and _is_number(event.get("epoch"))
        and _is_number(event.get(field))
    }
    return tuple(sorted(curve.items()))


def _attempts(events: Sequence[Event], clock: str) -> tuple[Attempt, ...]:
    by_number: dict[int, list[Event]] = {}
    for event in events:
        complete = _is_number(event.get(clock)) and isinstance(event.get("attempt"), int)
        if event["event"] in TRAINING_EVENTS and complete:
            by_number.setdefault(event["attempt"], []).append(event)
    return tuple(
        Attempt(
            number=number,
            job_started=_job_started(events, attempt[0], clock),
            launched=_launched(events, number, clock),
            start=min(event[clock] for event in attempt),
            end=max(event[clock] for event in attempt),
            finished=any(event["event"] == "end" for event in attempt),
        )
        for number, attempt in sorted(by_number.items())
    )


def _job_started(events: Sequence[Event], first: Event, clock: str) -> float | None:
    """Return the start of the attempt's job; a monotonic clock counts on its host only."""
    jobs = {
        event.get("job")
        for event in events
        if event["event"] == "job_submitted" and event.get("attempt") == first["attempt"]
    }
    host = (first.get("host"), first.get("boot"))
    return next(
        (
            float(event[clock])
            for event in events
            if event["event"] == "job_started"
            and event.get("job") in jobs
            and _is_number(event.get(clock))
            and (clock == "wall" or (event.get("host"), event.get("boot")) == host)
        ),
        None,
    )


def _launched(events: Sequence[Event], attempt: int, clock: str) -> float | None:
    """Return the attempt's event `start`, which its worker logs before it loads data and model."""
    return next(
        (
            float(event[clock])
            for event in events
            if event["event"] == "start"
            and event.get("attempt") == attempt
            and _is_number(event.get(clock))
        ),
        None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
