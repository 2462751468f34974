"""Clocks compared and members that wait for each other, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ai500.core.barrier import BarrierClient, connect
from ai500.jobs.barrier import BarrierServer
from ai500.records.run_folder import TrialFolder


@pytest.fixture
def trial(tmp_path: Path) -> TrialFolder:
    return TrialFolder(tmp_path / "trials" / "01")


Come = Callable[[], BarrierClient]


@pytest.fixture
def come(trial: TrialFolder) -> Iterator[Come]:
    """Visits the meeting point `a`; hangs up after the test."""
    visitors: list[BarrierClient] = []

    def visitor() -> BarrierClient:
        found = connect(trial.barrier, name="a", timeout_seconds=5)
        assert found is not None
        visitors.append(found)
        return found

    yield visitor
    for one in visitors:
        one.close()


def test_a_clock_s_offset_is_known_to_half_the_quickest_exchange(
    trial: TrialFolder, come: Come
) -> None:
    point = BarrierServer(trial, name="a")
    offset = come().clock()
    assert offset is not None
    # One host: the true offset is 0, and must lie within what is claimed.
    assert abs(offset.offset_seconds) <= offset.uncertainty_seconds < 0.5
    assert offset.reference == socket.gethostname()
    point.close()


def test_members_start_when_the_last_one_is_ready(trial: TrialFolder, come: Come) -> None:
    point = BarrierServer(trial, name="a", expected=3, seconds=60)
    started: dict[int, float] = {}

    def arrive(member: int) -> None:
        assert come().wait() == 0
        started[member] = time.monotonic()

    threads = [threading.Thread(target=arrive, args=(member,)) for member in (0, 1)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert not started
    last = time.monotonic()
    arrive(2)
    for thread in threads:
        thread.join(10)
    assert sorted(started) == [0, 1, 2]
    assert min(started.values()) >= last
    point.close()


def test_nobody_waits_for_a_member_that_failed_or_comes_in_a_later_wave(
    trial: TrialFolder, come: Come
) -> None:
    point = BarrierServer(trial, name="a", expected=2, seconds=60)
    come().leave()
    assert come().wait() == 0
    assert come().wait() == 0
    point.close()


def test_the_longest_wait_ends_and_tells_how_many_lack(trial: TrialFolder, come: Come) -> None:
    point = BarrierServer(trial, name="a", expected=3, seconds=0.2)
    assert come().wait() == 2
    point.close()


def test_an_older_meeting_point_is_not_mistaken_for_this_one(trial: TrialFolder) -> None:
    older = BarrierServer(trial, name="7.0")
    assert connect(trial.barrier, name="7.1", timeout_seconds=0.3) is None
    older.close()
    point = BarrierServer(trial, name="7.1")
    visitor = connect(trial.barrier, name="7.1", timeout_seconds=0)
    assert visitor is not None
    visitor.close()
    point.close()


@pytest.mark.parametrize(
    "line", [b"\xff\n", b"[]\n", b"{}\n", b'{"token": "guess", "request": "wait"}\n']
)
def test_a_stranger_gets_no_answer(trial: TrialFolder, line: bytes) -> None:
    point = BarrierServer(trial, name="a", expected=1, seconds=60)
    port = json.loads(trial.barrier.read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(line)
        assert connection.recv(100) == b""
    assert trial.barrier.stat().st_mode & 0o077 == 0
    point.close()


def test_without_a_meeting_point_there_is_nobody_to_visit(trial: TrialFolder) -> None:
    assert connect(trial.barrier, name=None, timeout_seconds=0) is None
