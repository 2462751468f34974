"""One time for events of several hosts: wall clocks, less the offsets that the workers measured.

A worker asks the barrier server for its time before and after it trains (events `clock`). The wall
time of its events is corrected by the measurement nearest to each [D6].
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from ai500.core.events import Event

Host = tuple[str, str]
LARGEST_DRIFT = 1e-4
"""Seconds a second: what a computer's clock may gain or lose while nobody corrects it."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A host's wall clock at one moment, less the reference's."""

    wall: float
    offset_seconds: float
    uncertainty_seconds: float
    reference: str


class Clocks:
    """What was measured on each host during a trial."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._measured: dict[Host, list[Measurement]] = {}
        for event in events:
            if event["event"] == "clock":
                self._measured.setdefault(host_of(event), []).append(
                    Measurement(
                        float(event["wall"]),
                        float(event["offset_seconds"]),
                        float(event["uncertainty_seconds"]),
                        str(event["reference"]),
                    )
                )
        for known in self._measured.values():
            known.sort(key=lambda one: one.wall)

    def nearest(self, event: Event) -> Measurement | None:
        """The measurement on the event's host that is nearest in time; None: there is none."""
        known = self._measured.get(host_of(event), [])
        at = bisect([one.wall for one in known], event["wall"])
        return min(
            known[max(0, at - 1) : at + 1], key=lambda m: abs(m.wall - event["wall"]), default=None
        )

    def corrected(self, event: Event) -> Event:
        """The event with its wall time as the reference's clock would have told it."""
        found = self.nearest(event)
        return event if found is None else {**event, "wall": event["wall"] - found.offset_seconds}

    def largest_offset(self) -> float | None:
        """Of all that was measured, in seconds; None: nothing was."""
        offsets = [abs(m.offset_seconds) for known in self._measured.values() for m in known]
        return max(offsets, default=None)

    def uncertainty(self, first: Event, last: Event) -> float | None:
        """How far the time between two events may be off; None: not measured on one reference."""
        references = {m.reference for known in self._measured.values() for m in known}
        total = 0.0
        for event in (first, last):
            found = self.nearest(event)
            if found is None or len(references) > 1:
                return None
            drift = LARGEST_DRIFT * abs(event["wall"] - found.wall)
            total += found.uncertainty_seconds + drift
        return total


def on_one_clock(events: Sequence[Event], clock: str) -> Sequence[Event]:
    """The events with wall times that compare across hosts, where that is the trial's clock."""
    if clock != "wall":
        return events
    clocks = Clocks(events)
    return [clocks.corrected(event) for event in events]


def host_of(event: Event) -> Host:
    """Clocks belong to one boot of one host."""
    return str(event.get("host")), str(event.get("boot"))
