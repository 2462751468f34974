"""Events of several hosts on one clock; an offset that was not measured is None."""

from __future__ import annotations

from typing import Any

import pytest

from ai500.core.clocks import MAX_DRIFT, Clocks, on_one_clock
from ai500.core.events import Event


def event(kind: str, wall: float, host: str, **more: Any) -> Event:
    return {"event": kind, "wall": wall, "host": host, "boot": host, **more}


def clock(wall: float, host: str, offset: float, uncertainty: float, reference: str = "r") -> Event:
    return event(
        "clock", wall, host,
        offset_seconds=offset, uncertainty_seconds=uncertainty, reference=reference,
    )  # fmt: skip


def test_times_are_corrected_by_the_measurement_nearest_to_them() -> None:
    events = [
        clock(100.0, "a", 5.0, 0.001),
        event("first_batch", 101.0, "a"),
        event("end", 199.0, "a"),
        clock(200.0, "a", 7.0, 0.002),
        event("first_batch", 95.0, "unmeasured"),
    ]
    corrected = on_one_clock(events, "wall")
    walls = [event["wall"] for event in corrected if event["event"] != "clock"]
    assert walls == [96.0, 192.0, 95.0]
    assert on_one_clock(events, "monotonic") == events


def test_the_window_s_uncertainty_is_that_of_both_its_ends() -> None:
    first, last = event("first_batch", 10.0, "a"), event("end", 20.0, "b")
    both = [clock(10.0, "a", -3.0, 0.25), clock(20.0, "b", 1.0, 0.5)]
    clocks = Clocks([first, last, *both])
    assert clocks.uncertainty(first, last) == 0.75
    assert clocks.largest_offset() == 3.0


def test_a_clock_may_drift_since_it_was_compared() -> None:
    first, last = event("first_batch", 0.0, "a"), event("end", 10_000.0, "a")
    assert Clocks([clock(0.0, "a", 0.0, 0.0)]).uncertainty(first, last) == 10_000 * MAX_DRIFT


def test_an_offset_that_was_not_measured_stays_unknown() -> None:
    first, last = event("first_batch", 10.0, "a"), event("end", 20.0, "b")
    assert Clocks([first, last]).largest_offset() is None
    assert Clocks([clock(9.0, "a", 0.0, 0.1)]).uncertainty(first, last) is None
    two_references = [clock(9.0, "a", 0.0, 0.1, "login1"), clock(19.0, "b", 0.0, 0.1, "login2")]
    assert Clocks(two_references).uncertainty(first, last) is None


def test_a_host_that_knows_both_references_of_a_requeued_gang_compares_them() -> None:
    """Node c's clock is 3 s ahead of node a's: the gang's reference moved from a to c."""
    first, last = event("first_batch", 10.0, "a"), event("end", 43.0, "c")
    clocks = [
        clock(10.0, "a", 0.0, 0.001, "a"),
        clock(11.0, "b", 1.0, 0.002, "a"),
        clock(31.0, "b", -2.0, 0.004, "c"),
        clock(43.0, "c", 0.0, 0.008, "c"),
    ]
    events = [first, last, *clocks]
    walls = {e["event"]: e["wall"] for e in on_one_clock(events, "wall")}
    assert (walls["first_batch"], walls["end"]) == (10.0, 40.0)
    uncertainty = Clocks(events).uncertainty(first, last)
    assert uncertainty == pytest.approx(0.001 + 0.008 + 0.002 + 0.004 + 20 * MAX_DRIFT)
    assert Clocks([first, last, clocks[0], clocks[3]]).uncertainty(first, last) is None
