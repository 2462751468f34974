"""A common time for events of several hosts: wall clocks minus the offsets that workers measured.

A worker compares its wall clock with the barrier server's before and after it trains (events
`clock`). The wall time of each event is corrected by the measurement nearest to it [D6].
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from ai500.core.events import Event

Host = tuple[str, str]
"""(host name, boot id)."""

# Starts of one gang; the others of a log that has more are not compared.
MAX_REFERENCES = 64
MAX_DRIFT = 1e-4  # seconds per second that a computer's clock may gain or lose without correction


@dataclass(frozen=True, slots=True)
class Measurement:
    """A host's wall clock minus the reference's at one moment."""

    wall: float
    offset_seconds: float
    uncertainty_seconds: float
    reference: str


_WALL = attrgetter("wall")


class Clocks:
    """Clock measurements of each host during a trial."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._measurements: dict[Host, list[Measurement]] = {}
        for event in events:
            if event["event"] == "clock":
                self._measurements.setdefault(host_of(event), []).append(
                    Measurement(
                        float(event["wall"]),
                        float(event["offset_seconds"]),
                        float(event["uncertainty_seconds"]),
                        str(event["reference"]),
                    )
                )
        for measurements in self._measurements.values():
            measurements.sort(key=lambda measurement: measurement.wall)
        self._references = self._compare_references()

    def _compare_references(self) -> dict[str, tuple[float, float]]:
        """Return each reference's clock minus the first's, with its uncertainty, in seconds.

        A gang that was requeued may have its barrier server on another node: a host that was
        compared with both references compares them. One that cannot be compared is left out.
        """
        earliest = min(self._all(), key=lambda measurement: measurement.wall, default=None)
        known = {earliest.reference: (0.0, 0.0)} if earliest is not None else {}
        nearest: dict[tuple[str, str], tuple[float, Measurement, Measurement]] = {}
        for measurements in self._measurements.values():
            for a, b in pairwise(measurements):
                if a.reference != b.reference:
                    step, pair = (abs(a.wall - b.wall), a, b), (a.reference, b.reference)
                    nearest[pair] = min(nearest.get(pair, step), step, key=lambda each: each[0])
        while len(known) < MAX_REFERENCES:
            steps = [
                step for pair, step in nearest.items() if (pair[0] in known) != (pair[1] in known)
            ]
            if not steps:
                break
            seconds, a, b = min(steps, key=lambda step: step[0])
            if b.reference in known:
                a, b = b, a
            offset, uncertainty = known[a.reference]
            known[b.reference] = (
                offset + a.offset_seconds - b.offset_seconds,
                uncertainty + a.uncertainty_seconds + b.uncertainty_seconds + MAX_DRIFT * seconds,
            )
        return known

    def nearest(self, event: Event) -> Measurement | None:
        """Return the measurement of the event's host nearest in time; None without any."""
        measurements = self._measurements.get(host_of(event)) if self._measurements else None
        if not measurements:
            return None
        wall = event["wall"]
        later = bisect(measurements, wall, key=_WALL)
        if later in (0, len(measurements)):
            return measurements[max(0, later - 1)]
        before, after = measurements[later - 1 : later + 1]
        return before if wall - before.wall <= after.wall - wall else after

    def corrected(self, event: Event) -> Event:
        """Return the event with its wall time on the first reference's clock."""
        wall = self.corrected_wall(event)
        return event if wall == event["wall"] else {**event, "wall": wall}

    def corrected_wall(self, event: Event) -> float:
        """Return the event's wall time on the first reference's clock."""
        wall: float = event["wall"]
        if (nearest := self.nearest(event)) is None:
            return wall
        reference, _ = self._references.get(nearest.reference, (0.0, 0.0))
        return wall - nearest.offset_seconds - reference

    def largest_offset(self) -> float | None:
        """Return the largest measured offset in seconds; None without a measurement."""
        return max((abs(m.offset_seconds) for m in self._all()), default=None)

    def uncertainty(self, first: Event, last: Event) -> float | None:
        """Return the uncertainty in seconds of the time between two events.

        None if a host has no measurement, or if no host was compared with both references.
        """
        total = 0.0
        for event in (first, last):
            nearest = self.nearest(event)
            if nearest is None or any(m.reference not in self._references for m in self._all()):
                return None
            drift = MAX_DRIFT * abs(event["wall"] - nearest.wall)
            _, between_references = self._references[nearest.reference]
            total += nearest.uncertainty_seconds + drift + between_references
        return total

    def _all(self) -> list[Measurement]:
        return [m for measurements in self._measurements.values() for m in measurements]


def on_one_clock(events: Sequence[Event], clock: str) -> Sequence[Event]:
    """Return the events on a common clock: corrected if the trial's clock is `wall`."""
    if clock != "wall":
        return events
    clocks = Clocks(events)
    return [clocks.corrected(event) for event in events]


def host_of(event: Event) -> Host:
    """Return the event's host and boot id: clocks are comparable within one boot only."""
    return str(event.get("host")), str(event.get("boot"))
