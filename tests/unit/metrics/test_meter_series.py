"""Curves of a log whose counters and gauges are known in each bin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ai500.core import events
from ai500.meters.log import read_meters
from ai500.metrics.energy import Window
from ai500.metrics.meter_series import Curve, meter_curves, power_names
from tests.support.metered import Columns, seconds, write_log

SENT = [("network", "eth0", "network_sent_bytes", None)]
WATTS = [("ipmi", "node", "watts", None)]


def wall(sample: events.Event) -> float:
    return float(sample["wall"])


def curve(
    folder: Path, name: str, columns: Columns, rows: Sequence[Sequence[float | None]], *,
    first: float = 0.0, last: float = 4.0,
) -> Curve:  # fmt: skip
    """The curve of a log with a row of values each second."""
    write_log(folder, covers={"ipmi": ["node"]}, columns=columns, times=seconds(0, len(rows) - 1),
              values=lambda t: rows[int(t)])  # fmt: skip
    return meter_curves(read_meters(folder), Window(first, last, wall))[name]


def points(curve: Curve) -> list[tuple[float, float]]:
    return [(point.at, point.mean) for point in curve.points]


def test_a_counter_is_its_rate_in_each_bin(tmp_path: Path) -> None:
    rates = curve(tmp_path, "network sent", SENT, [[0], [10], [30], [30], [70]])
    assert points(rates) == [(0.5, 10), (1.5, 20), (2.5, 0), (3.5, 40)]
    assert (rates.mean, rates.sources) == (17.5, 1)


def test_a_window_between_two_samples_has_their_share(tmp_path: Path) -> None:
    rates = curve(
        tmp_path, "network sent", SENT, [[0], [10], [30], [60], [100]], first=0.5, last=2.5
    )
    assert points(rates) == [(0.5, 15), (1.5, 25)]


def test_a_counter_that_is_reset_leaves_a_gap(tmp_path: Path) -> None:
    rates = curve(tmp_path, "network sent", SENT, [[50], [60], [0], [20], [20]])
    assert points(rates) == [(0.5, 10), (2.5, 20), (3.5, 0)]


def test_a_gauge_is_its_mean_in_each_bin_with_both_ends_of_the_window(tmp_path: Path) -> None:
    watts = curve(tmp_path, "power of node", WATTS, [[100], [200], [300], [None], [500], [900]])
    assert points(watts) == [(0.5, 100), (1.5, 200), (2.5, 300), (3.5, 500)]
    assert power_names({"power of node": watts, "power of a + b": watts, "x": watts}) == [
        "power of node", "power of a + b"
    ]  # fmt: skip


def test_interfaces_of_a_node_are_added_and_their_extremes_kept(tmp_path: Path) -> None:
    columns = [("network", name, "network_received_bytes", None) for name in ("eth0", "ib0")]
    rates = curve(tmp_path, "network received", columns, [[0, 0], [10, 1], [10, 3]], last=2.0)
    assert points(rates) == [(0.5, 11), (1.5, 2)]
    assert [(point.low, point.high) for point in rates.points] == [(11, 11), (2, 2)]


@pytest.mark.parametrize(("total", "share"), [(40, 0.25), (10, 1.0), (5, 1.0)])
def test_processors_are_busy_for_a_share_of_the_time(
    tmp_path: Path, total: float, share: float
) -> None:
    columns = [("host", "host", f"cpu_{kind}_seconds", None) for kind in ("busy", "total")]
    busy = curve(tmp_path, "host processors", columns, [[0, 0], [10, total]], last=1.0)
    assert points(busy) == [(0.5, share)]


def test_a_window_without_time_has_no_curves(tmp_path: Path) -> None:
    curve(tmp_path, "network sent", SENT, [[0], [10]])
    for last in (0.0, -1.0):
        assert meter_curves(read_meters(tmp_path), Window(0.0, last, wall)) == {}
