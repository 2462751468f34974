"""The lock of a worker that another copy of its member waits for."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ai500.core import heartbeat
from ai500.core.heartbeat import is_held, wait_while_beating
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


COPY = """\
import sys, time
from pathlib import Path
from ai500.core import heartbeat
from ai500.records.run_folder import lock_within
heartbeat.WATCH_SECONDS = 0.02
path, trained = Path(sys.argv[1]), Path(sys.argv[2])
heartbeat.wait_while_beating(path, ended=trained.exists, silence_seconds=float(sys.argv[3]))
if trained.exists():
    sys.exit("trained")
file = path.open("a")
assert lock_within(file, seconds=1), "two copies"
heartbeat.sign(file)
heartbeat.beat(file, path, seconds=0.05)
print("trains", flush=True)
time.sleep(1.5)
trained.touch()
"""


def copies(lock: Path, *, silence: float, count: int = 4) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", COPY, str(lock), str(lock.with_name("record")), str(silence)],
            env=os.environ | {"AI500_ATTEMPT": str(attempt)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for attempt in range(2, 2 + count)
    ]  # fmt: skip


def waiting(lock: Path, *, ended: threading.Event, silence: float) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: wait_while_beating(lock, ended=ended.is_set, silence_seconds=silence)
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


@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "released"])
def test_of_several_copies_that_wait_one_trains_and_the_others_wait_for_it(
    tmp_path: Path, is_silent: bool
) -> None:
    lock = tmp_path / ".lock"
    with worker(lock) as old:
        if is_silent:
            os.kill(old.pid, signal.SIGSTOP)
        waiting_copies = copies(lock, silence=0.3 if is_silent else 60)
        if not is_silent:
            time.sleep(0.5)
            old.communicate("")
        outputs = [copy.communicate(timeout=30) for copy in waiting_copies]
        old.kill()
    assert sorted(printed for printed, _ in outputs) == ["", "", "", "trains\n"]
    assert sorted(error for _, error in outputs) == ["", *["trained\n"] * 3]


def test_a_worker_whose_file_system_is_away_goes_on(tmp_path: Path) -> None:
    folder, away = tmp_path / "member", tmp_path / "away"
    folder.mkdir()
    with worker(folder / ".lock") as held:
        folder.rename(away)
        time.sleep(0.5)  # ten beats
        away.rename(folder)
        assert held.poll() is None
        held.communicate("")
    assert held.returncode == 0


def test_a_released_lock_is_not_claimed_while_another_copy_replaces_it(tmp_path: Path) -> None:
    """Both would have it: the other one, which saw silence, and the one that saw it free."""
    lock = tmp_path / ".lock"
    lock.write_bytes(b"6 1\n")
    os.utime(lock, (1, 1))  # a kernel's clock for files is coarse
    silent = heartbeat._state_of(lock)
    with heartbeat.turn_of(lock).open("ab") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        assert not heartbeat.claim(lock)
    assert heartbeat._state_of(lock) == silent
    assert heartbeat.claim(lock)
    assert not heartbeat._take_over(lock, silent=silent), "a claim is no silence"


def race(lock: Path, *, count: int) -> list[bool]:
    """Let several copies replace the same silent lock at once; return which did."""
    silent, start = heartbeat._state_of(lock), threading.Barrier(count)

    def copy(_: int) -> bool:
        start.wait()
        return heartbeat._take_over(lock, silent=silent)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(copy, range(count)))


def test_copies_that_see_silence_at_once_replace_the_lock_once(tmp_path: Path) -> None:
    for number in range(50):
        lock = tmp_path / f"{number}.lock"
        lock.write_bytes(b"6 1\n")
        assert sorted(race(lock, count=4)) == [False, False, False, True]
        assert heartbeat.replaced_by(lock).read_bytes() == b"6 1\n"
        assert lock.read_bytes().startswith(heartbeat.CLAIM)


def test_a_copy_on_a_full_disk_does_not_wait_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".lock"
    lock.write_bytes(heartbeat.CLAIM + b"6 1\n")  # of a copy that was killed

    def write(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full", str(path))

    monkeypatch.setattr(Path, "write_bytes", write)
    ended = threading.Event()
    copy = waiting(lock, ended=ended, silence=0.1)
    copy.join(10)
    waits = copy.is_alive()
    ended.set()
    copy.join()
    assert not waits


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
