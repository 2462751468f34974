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


Connect = Callable[[], BarrierClient]


@pytest.fixture
def connected(trial: TrialFolder) -> Iterator[Connect]:
    """Connect to the barrier server `a`; disconnect after the test."""
    clients: list[BarrierClient] = []

    def new_client() -> BarrierClient:
        client = connect(trial.barrier, name="a", timeout_seconds=5)
        assert client is not None
        clients.append(client)
        return client

    yield new_client
    for client in clients:
        client.close()


def test_a_clock_s_offset_is_known_to_half_the_quickest_exchange(
    trial: TrialFolder, connected: Connect
) -> None:
    server = BarrierServer(trial, name="a")
    offset = connected().clock()
    assert offset is not None
    # One host: the true offset is 0, and must lie within what is claimed.
    assert abs(offset.offset_seconds) <= offset.uncertainty_seconds < 0.5
    assert offset.reference == socket.gethostname()
    server.close()


def test_members_start_when_the_last_one_is_ready(trial: TrialFolder, connected: Connect) -> None:
    server = BarrierServer(trial, name="a", expected=3, seconds=60)
    started: dict[int, float] = {}

    def arrive(member: int) -> None:
        assert connected().wait() == 0
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
    server.close()


def test_the_barrier_does_not_wait_for_members_that_failed_or_come_in_a_later_wave(
    trial: TrialFolder, connected: Connect
) -> None:
    server = BarrierServer(trial, name="a", expected=2, seconds=60)
    connected().leave()
    assert connected().wait() == 0
    assert connected().wait() == 0
    server.close()


def test_the_wait_times_out_and_counts_missing(trial: TrialFolder, connected: Connect) -> None:
    server = BarrierServer(trial, name="a", expected=3, seconds=0.2)
    assert connected().wait() == 2
    server.close()


def test_an_older_barrier_server_is_ignored(trial: TrialFolder) -> None:
    older = BarrierServer(trial, name="7.0")
    assert connect(trial.barrier, name="7.1", timeout_seconds=0.3) is None
    older.close()
    server = BarrierServer(trial, name="7.1")
    client = connect(trial.barrier, name="7.1", timeout_seconds=0)
    assert client is not None
    client.close()
    server.close()


@pytest.mark.parametrize(
    "line", [b"\xff\n", b"[]\n", b"{}\n", b'{"token": "guess", "request": "wait"}\n']
)
def test_a_client_without_the_secret_gets_no_answer(trial: TrialFolder, line: bytes) -> None:
    server = BarrierServer(trial, name="a", expected=1, seconds=60)
    port = json.loads(trial.barrier.read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(line)
        assert connection.recv(100) == b""
    assert trial.barrier.stat().st_mode & 0o077 == 0
    server.close()


def test_without_a_barrier_server_there_is_no_client(trial: TrialFolder) -> None:
    assert connect(trial.barrier, name=None, timeout_seconds=0) is None
