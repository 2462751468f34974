"""A member waits for the slots of the one before it, which may end in any way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ai500.core.slot_locks import VARIABLE, SlotLocks
from tests.support.commands import SOURCE

HOLDER = """
import sys, time
from pathlib import Path
from ai500.core.slot_locks import SlotLocks
locks = SlotLocks(Path(sys.argv[1]), {0})
assert locks.acquire(stopped=lambda: False)
print("held", flush=True)
time.sleep(300)
"""


Make = Callable[..., SlotLocks]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make locks of one folder; release them at the end."""
    made: list[SlotLocks] = []

    def of(*slots: int) -> SlotLocks:
        made.append(SlotLocks(tmp_path, slots))
        return made[-1]

    yield of
    for locks in made:
        locks.release()


def never() -> bool:
    return False


def at_once() -> bool:
    return True


def test_the_next_member_waits_until_the_slots_are_released(make: Make) -> None:
    first, second = make(0, 1), make(2, 1)
    assert first.acquire(stopped=never)
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(second.acquire(stopped=never)))
    thread.start()
    time.sleep(0.2)
    assert not waited
    first.release()
    thread.join(timeout=10)
    assert waited == [True]
    assert make(0).acquire(stopped=at_once)
    second.release()
    assert make(1, 2).acquire(stopped=at_once)


def test_a_stopped_member_leaves_and_holds_nothing(make: Make) -> None:
    first, second = make(1), make(0, 1)
    assert first.acquire(stopped=never)
    assert not second.acquire(stopped=at_once)
    assert make(0).acquire(stopped=at_once)


def test_the_kernel_releases_the_slots_of_a_killed_member(make: Make, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    waiting = make(0)
    assert not waiting.acquire(stopped=at_once)
    holder.kill()
    assert waiting.acquire(stopped=never)
    holder.communicate()


def test_members_wait_only_where_the_scheduler_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = (SlotLocks.from_environment({0}) for _ in range(2))
    assert first.acquire(stopped=at_once) and second.acquire(stopped=at_once)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    first, second = (SlotLocks.from_environment({0}) for _ in range(2))
    assert first.acquire(stopped=at_once)
    assert not second.acquire(stopped=at_once)
    first.release()
