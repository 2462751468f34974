"""The lock of a worker that another copy of its member waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ai500.core import heartbeat
from ai500.core.heartbeat import wait_while_beating
from ai500.records.run_folder import lock_within

WORKER = """\
import sys, time
from pathlib import Path
from ai500.core.heartbeat import beat
from ai500.records.run_folder import lock_within
path = Path(sys.argv[1])
file = path.open("a")
assert lock_within(file, seconds=1)
beat(file, path, seconds=0.05)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 0.02)


def worker(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(lock)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def is_held(lock: Path) -> bool:
    with lock.open("a") as file:
        return not lock_within(file, seconds=0)


def waiting(lock: Path, *, ended: threading.Event, silence: float) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: wait_while_beating(
            lock, is_held=lambda: is_held(lock), ended=ended.is_set, silence_seconds=silence
        )
    )
    thread.start()
    return thread


def test_a_copy_waits_while_the_worker_beats_and_goes_on_when_it_ends(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with worker(lock) as old:
        copy = waiting(lock, ended=threading.Event(), silence=60)
        copy.join(0.5)
        assert copy.is_alive()
        old.communicate("")
    copy.join(10)
    assert not copy.is_alive()
    assert lock.exists()


def test_a_copy_ends_its_wait_when_the_member_is_trained(tmp_path: Path) -> None:
    lock, trained = tmp_path / ".lock", threading.Event()
    with worker(lock) as old:
        copy = waiting(lock, ended=trained, silence=60)
        trained.set()
        copy.join(10)
        assert not copy.is_alive()
        old.communicate("")


def test_a_silent_lock_is_taken_over_and_its_worker_ends_when_it_wakes(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with worker(lock) as old:
        os.kill(old.pid, 19)
        copy = waiting(lock, ended=threading.Event(), silence=0.3)
        copy.join(10)
        assert not copy.is_alive()
        with lock.open("a") as file:
            assert lock_within(file, seconds=0)
            os.kill(old.pid, 18)
            assert old.wait(10) == heartbeat.TAKEN_OVER_EXIT_CODE
        assert old.stderr is not None
        assert "taken over this member" in old.stderr.read()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lock_that_is_dropped_is_free_at_once(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    file = lock.open("a")
    assert lock_within(file, seconds=0)
    heartbeat.beat(file, lock, seconds=60)
    assert is_held(lock)
    del file
    assert not is_held(lock)


def test_a_beat_stops_with_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    file = lock.open("a")
    heartbeat.beat(file, lock, seconds=0.02)
    file.close()
    time.sleep(0.1)
    touched = lock.stat().st_mtime_ns
    time.sleep(0.1)
    assert lock.stat().st_mtime_ns == touched
