"""Signs of sick nodes, with near misses on both sides of each limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ai500.core import events
from ai500.meters.growth import Growth, device_growths
from ai500.meters.log import Column
from ai500.metrics.node_health import Sign, node_signs
from tests.support.metered import seconds, write_log
from tests.support.trial_events import event

STEPS = 100
HEALTHY = (0.100, 0.101, 0.099, 0.100)
"""Seconds per step of a node's four epochs after the first."""
HOUR = 3600.0


def training(host: str, member: int, paces: Sequence[float], *, cold: float = 0.5) -> list[Any]:
    """Events of a member with these seconds per step; the first epoch reads cold data."""
    at = 10.0 * member
    log = [event("first_batch", at, member)]
    for epoch, pace in enumerate((cold, *paces), 1):
        at += pace * STEPS
        log.append(event("epoch", at, member, epoch=epoch, steps=STEPS))
        at += 7.0  # evaluation is no training
        log.append(event("quality", at, member, epoch=epoch, quality=0.5))
    log.append(event("end", at, member, epoch=len(paces) + 1))
    return [record | {"host": host} for record in log]


def step_signs(paces: dict[str, Sequence[float]], **nodes: Any) -> list[Sign]:
    log = [
        record
        for member, (host, values) in enumerate(paces.items())
        for record in training(host, member, values)
    ]
    return node_signs(log, [], trial=1, nodes_of_members=nodes.get("nodes_of_members", {}))


def scaled(factor: float) -> list[float]:
    return [factor * pace for pace in HEALTHY]


@pytest.mark.parametrize(
    ("factor", "named"), [(1.0, False), (1.09, False), (1.12, True), (2, True)]
)
def test_a_node_with_slow_steps_is_named(factor: float, named: bool) -> None:
    nodes = {f"n{number}": HEALTHY for number in range(1, 5)}
    signs = step_signs(nodes | {"n7": scaled(factor)})
    assert [sign.hosts for sign in signs] == ([("n7",)] if named else [])
    if named:
        assert f"{factor:.2f} × the median of 5 nodes (members 4)" in signs[0].text


def test_scatter_hides_what_it_explains() -> None:
    """Nodes that differ by tens of percent anyway name no node that is a little slower."""
    nodes = {f"n{number}": scaled(0.8 + 0.1 * number) for number in range(5)}
    assert step_signs(nodes | {"slow": scaled(1.4)}) == []
    assert step_signs(nodes | {"slow": scaled(2.4)})


def test_epochs_that_scatter_within_a_node_need_a_larger_difference() -> None:
    nodes = {f"n{number}": HEALTHY for number in range(4)}
    assert step_signs(nodes | {"noisy": (0.100, 0.180, 0.105, 0.190)}) == []


def test_a_fast_node_is_healthy() -> None:
    nodes = {f"n{number}": HEALTHY for number in range(4)}
    assert step_signs(nodes | {"fast": scaled(0.5)}) == []


@pytest.mark.parametrize(
    ("others", "epochs", "named"), [(1, 4, 0), (2, 4, 1), (2, 2, 0), (2, 3, 1)]
)
def test_three_nodes_and_three_epochs_are_compared(others: int, epochs: int, named: int) -> None:
    paces = {f"n{number}": HEALTHY[:epochs] for number in range(others)}
    assert len(step_signs(paces | {"slow": scaled(3)[:epochs]})) == named


def test_half_of_the_nodes_cannot_be_outliers() -> None:
    nodes = {f"n{n}": HEALTHY for n in range(3)} | {f"s{n}": scaled(2) for n in range(3)}
    assert step_signs(nodes) == []


def test_a_slow_first_epoch_and_other_trials_do_not_count() -> None:
    log = [r for n in range(4) for r in training(f"n{n}", n, HEALTHY, cold=9.0 if n else 0.1)]
    other = [record | {"trial": 2} for record in training("n0", 0, scaled(9))]
    assert node_signs([*log, *other], [], trial=1, nodes_of_members={}) == []


def test_a_member_over_several_nodes_names_them_all() -> None:
    nodes = {f"n{number}": HEALTHY for number in range(3)}
    signs = step_signs(nodes | {"n8": scaled(2)}, nodes_of_members={3: ["n8", "n9"]})
    assert signs[0].hosts == ("n8", "n9")
    assert str(signs[0]).startswith("n8, n9: a step takes")


def test_an_epoch_that_an_interruption_divided_is_not_timed() -> None:
    nodes = [r for n in range(3) for r in training(f"n{n}", n, HEALTHY)]
    slow = training("n9", 9, scaled(3))
    divided: list[Any] = []
    for record in slow:
        if record["event"] == "epoch":
            divided += [record | {"event": "interrupted"}, record | {"event": "resumed"}]
        divided.append(record)
    assert node_signs([*nodes, *slow], [], trial=1, nodes_of_members={})
    assert node_signs([*nodes, *divided], [], trial=1, nodes_of_members={}) == []


def growth(quantity: str, amount: float, *, host: str = "n1", **more: Any) -> Growth:
    column = Column("boot", "meter", more.get("device", "dev"), quantity, None)
    return Growth(host, column, amount, more.get("seconds", HOUR), more.get("last", amount))


@pytest.mark.parametrize(
    ("quantity", "below", "at"),
    [
        ("throttled_seconds", 0.02 * HOUR, 0.0201 * HOUR),
        ("memory_uncorrected_errors", 0, 1),
        ("memory_corrected_errors", 9, 10),
        ("xid_errors", 0, 1),
        ("link_errors", 10, 11),
    ],
)
def test_what_a_node_counted_is_a_sign_from_a_limit_on(
    quantity: str, below: float, at: float
) -> None:
    assert node_signs([], [growth(quantity, below)], trial=1, nodes_of_members={}) == []
    (sign,) = node_signs([], [growth(quantity, at)], trial=1, nodes_of_members={})
    assert sign.hosts == ("n1",)
    assert "dev " in sign.text


@pytest.mark.parametrize("quantity", ["throttled_seconds", "link_errors"])
def test_a_share_of_no_time_is_no_sign(quantity: str) -> None:
    for duration, count in ((0.0, 0), (0.5, 1)):
        counted = growth(quantity, 100, seconds=duration)
        assert len(node_signs([], [counted], trial=1, nodes_of_members={})) == count


def test_few_link_errors_in_a_short_trial_are_no_sign() -> None:
    few = growth("link_errors", 9, seconds=60.0)
    many = growth("link_errors", 10, seconds=60.0)
    assert node_signs([], [few], trial=1, nodes_of_members={}) == []
    assert len(node_signs([], [many], trial=1, nodes_of_members={})) == 1


def test_the_last_xid_is_named() -> None:
    counted = [growth("xid_errors", 2), growth("last_xid", 79, last=79)]
    (sign,) = node_signs([], counted, trial=1, nodes_of_members={})
    assert sign.text == "dev had 2 errors in the driver's log (XID), the last is 79"


@pytest.mark.parametrize(("speeds", "named"), [
    ((2e11, 2e11, 2e11, 1e11), 1), ((2e11, 2e11, 2e11, 4e11), 0), ((2e11, 1e11), 0),
    ((2e11, 2e11, 1e11, 1e11), 0),
])  # fmt: skip
def test_a_link_below_the_speed_of_most(speeds: Sequence[float], named: int) -> None:
    links = [
        growth("link_bits_per_second", 0, host=f"n{n}", device="mlx5_0:1", last=speed)
        for n, speed in enumerate(speeds)
    ]
    other = growth("link_bits_per_second", 0, host="n0", device="eth0", last=1e9)
    signs = node_signs([], [*links, other], trial=1, nodes_of_members={})
    assert len(signs) == named
    if named:
        assert str(signs[0]) == "n3: mlx5_0:1 runs at 100 Gbit/s, the others at 200 Gbit/s"


def test_a_card_with_fewer_pcie_lanes_than_the_others() -> None:
    cards = [
        growth("pcie_lanes", 0, host=f"n{n // 2}", device=f"GPU-{n}", last=8 if n == 5 else 16)
        for n in range(6)
    ]
    (sign,) = node_signs([], cards, trial=1, nodes_of_members={})
    assert (sign.hosts, "GPU-5" in sign.text) == (("n2",), True)


@pytest.mark.parametrize(("share", "busy", "named"), [
    (0.49, 0.5, 1), (0.51, 0.5, 0), (0.1, 0.19, 0), (0.1, 0.21, 1),
])  # fmt: skip
def test_a_disk_that_moves_less_in_a_busy_second(share: float, busy: float, named: int) -> None:
    rates = [1e9, 1e9, 1e9, share * 1e9]
    growths = []
    for number, rate in enumerate(rates):
        worked = (busy if number == 3 else 0.5) * HOUR
        host = f"n{number}"
        growths.append(growth("disk_read_bytes", rate * worked / 2, host=host))
        growths.append(growth("disk_written_bytes", rate * worked / 2, host=host))
        growths.append(growth("disk_busy_seconds", worked, host=host))
    signs = node_signs([], growths, trial=1, nodes_of_members={})
    assert [sign.hosts for sign in signs] == [("n3",)] * named


def test_growth_is_read_from_the_logs_of_recorders(tmp_path: Path) -> None:
    """A restarted recorder counts on; of two recorders of one device the larger counts."""
    columns = [("nvml", "GPU-0", "xid_errors", None), ("nvml", "GPU-0", "pcie_lanes", None)]

    def write(member: int, times: Sequence[float], first: float) -> Path:
        return write_log(
            tmp_path, host="n1", member=member, covers={}, columns=columns, times=times,
            values=lambda t: [first + (t - times[0]) // 2, 16],
        )  # fmt: skip

    write(0, seconds(0, 10), 3.0)
    path = write(0, seconds(100, 104), 0.0)
    write(1, seconds(0, 4), 0.0)
    by_quantity = {g.column.quantity: g for g in device_growths(tmp_path)}
    assert by_quantity["xid_errors"].growth == 5 + 2
    assert by_quantity["xid_errors"].seconds == 14
    assert (by_quantity["pcie_lanes"].last, by_quantity["pcie_lanes"].host) == (16, "n1")
    with path.open("a") as file:  # damage and a torn line
        file.write('{"event": "sample", "monotonic": 9, "values": [1]}\nnot JSON\n{"event": "samp')
    again = {g.column.quantity: g.growth for g in device_growths(tmp_path)}
    assert again["xid_errors"] == 5


def test_growth_of_columns_that_change(tmp_path: Path) -> None:
    head = {
        "event": "meters", "host": "n1", "boot": "b", "trial": 1, "member": 0,
        "period_seconds": 1.0, "covers": {}, "absent": {}, "wall": 0.0, "monotonic": 0.0,
    }  # fmt: skip
    lines: list[Any] = [
        head,
        {"event": "columns", "columns": [["host", "mc0", "link_errors", None]]},
        {"event": "sample", "wall": 1, "monotonic": 1.0, "values": [5]},
        {"event": "columns", "columns": [["host", "mc0", "link_errors", None],
                                         ["host", "mc1", "link_errors", None]]},
        {"event": "sample", "wall": 2, "monotonic": 2.0, "values": [7, None]},
        {"event": "sample", "wall": 3, "monotonic": 3.0, "values": [9, 100]},
    ]  # fmt: skip
    events.append(tmp_path / "n1-000.jsonl", lines)
    by_device = {g.column.device: g.growth for g in device_growths(tmp_path)}
    assert by_device["mc1"] == 0
    assert by_device["mc0"] == 4
