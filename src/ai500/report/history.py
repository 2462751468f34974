"""What each member of a trial did and when, from the run's events.

Unlike the score, which refuses an incomplete log, the report shows whatever was told: members
that failed have curves and attempts, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core.events import Event
from ai500.metrics.trials import TRAINING_EVENTS


@dataclass(frozen=True)
class Attempt:
    """One start of a member, on the trial's clock."""

    number: int
    job_started: float | None
    """None: not recorded."""
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
    """How often its job was submitted, whether it came to train or not."""

    @property
    def seconds(self) -> float | None:
        """From the first batch to the end; None: it has not ended."""
        if not self.attempts or not self.attempts[-1].finished:
            return None
        return self.attempts[-1].end - self.attempts[0].start


def member_histories(
    events: Iterable[Event], *, trial: int, clock: Literal["monotonic", "wall"]
) -> dict[int, MemberHistory]:
    """Member → its history; members that told nothing are not in it."""
    told: dict[int, list[Event]] = {}
    for event in events:
        member = event.get("member")
        if event.get("trial") == trial and isinstance(member, int):
            told.setdefault(member, []).append(event)
    return {
        member: MemberHistory(
            member=member,
            losses=_curve(told[member], "epoch", "loss"),
            qualities=_curve(told[member], "quality", "quality"),
            attempts=_attempts(told[member], clock),
            starts=len({event["attempt"] for event in told[member] if "attempt" in event}),
        )
        for member in sorted(told)
    }


def window_start(histories: Mapping[int, MemberHistory]) -> float:
    """The first batch of the ensemble."""
    return min(
        (attempt.start for one in histories.values() for attempt in one.attempts), default=0.0
    )


def _curve(events: Iterable[Event], kind: str, field: str) -> tuple[tuple[int, float], ...]:
    """A crash between an event and its checkpoint repeats the event: the last one counts."""
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
        known = _is_number(event.get(clock)) and isinstance(event.get("attempt"), int)
        if event["event"] in TRAINING_EVENTS and known:
            by_number.setdefault(event["attempt"], []).append(event)
    return tuple(
        Attempt(
            number=number,
            job_started=_job_started(events, mine[0], clock),
            start=min(event[clock] for event in mine),
            end=max(event[clock] for event in mine),
            finished=any(event["event"] == "end" for event in mine),
        )
        for number, mine in sorted(by_number.items())
    )


def _job_started(events: Sequence[Event], first: Event, clock: str) -> float | None:
    """The controller's word on the attempt's job; its clock counts only on the same host."""
    jobs = {
        event.get("job")
        for event in events
        if event["event"] == "job_submitted" and event.get("attempt") == first["attempt"]
    }
    here = (first.get("host"), first.get("boot"))
    return next(
        (
            float(event[clock])
            for event in events
            if event["event"] == "job_started"
            and event.get("job") in jobs
            and _is_number(event.get(clock))
            and (clock == "wall" or (event.get("host"), event.get("boot")) == here)
        ),
        None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
