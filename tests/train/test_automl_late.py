"""A worker that comes late, or comes back, to a real search goes on from what the others found."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ai500.automl.history import HISTORY_FILE, Candidate, Ended, Line, Presence, resume_state
from ai500.automl.score import search_timeline
from ai500.records.run_folder import RunFolder, lock_within
from tests.support.commands import Start, wait_for
from tests.support.searches import check, read_history, settings

SECONDS = 40.0
"""That each worker searches; one of two misses some of the other's."""


@contextlib.contextmanager
def kept_out(member: Path) -> Iterator[None]:
    """A worker waits for its folder's lock, as where a dead node still holds it."""
    with (member / ".lock").open("a", encoding="utf-8") as file:
        assert lock_within(file, seconds=20)
        yield


def folder_of(run: Path, worker: int) -> Path:
    return RunFolder(run).trial(1).member(worker).path


def comes_late(run: Path) -> None:
    """Worker 1 has done nothing when worker 0 has trained three models."""
    with kept_out(folder_of(run, 1)):
        ended(run, "000-0003")


def comes_back(run: Path) -> None:
    """Worker 1 is killed in its second round, and back when worker 0 has trained another model."""
    begun = wait_for(folder_of(run, 1) / "events.jsonl", "start")
    ended(run, "001-0001")
    os.kill(begun["pid"], signal.SIGKILL)
    with kept_out(folder_of(run, 1)):
        ended(run, "000-0002")


def ended(run: Path, model: str) -> None:
    history = folder_of(run, int(model[:3])) / HISTORY_FILE
    wait_for(history, "ended", where=lambda event: event["entry"]["model"] == model)


def monotonic(line: Line) -> float:
    return float(line.event["monotonic"])


def joined_at(lines: list[Line]) -> float:
    """The first batch of worker 1's last attempt."""
    begins = [
        monotonic(line)
        for line in lines
        if line.worker == 1 and isinstance(line.entry, Presence) and line.entry.change == "begin"
    ]
    return max(begins)


@pytest.mark.long
@pytest.mark.serial  # whether the score rises depends on a second core
@pytest.mark.parametrize(("how", "attempts"), [(comes_late, 1), (comes_back, 2)])
def test_a_worker_joins_a_search_that_goes_on(
    how: Callable[[Path], None], attempts: int, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    again = ["--set", "scheduler.max_retries=1"]
    command = start("run", "--out", run, *settings(tiny_store, seconds=SECONDS), *again)
    wait_for(RunFolder(run).events, "job_submitted", where=lambda event: event["member"] == 1)
    how(run)
    assert command.wait() == 0, command.err
    check(run, workers=2)  # every operation counts once
    history, lines = read_history(run)
    past = resume_state(lines, worker=1)
    assert past.attempts == attempts
    assert SECONDS <= past.seconds < SECONDS + 10  # in all its attempts
    joined = joined_at(lines)
    before = [line for line in lines if monotonic(line) < joined]
    known = {line.entry.digest for line in before if isinstance(line.entry, Candidate)}
    had_ended = {line.entry.model for line in before if isinstance(line.entry, Ended)}
    assert {"000-0001", "000-0002"} <= had_ended
    own = [line.entry for line in lines if line.worker == 1 and monotonic(line) > joined]
    children = [entry for entry in own if isinstance(entry, Candidate) and entry.parent is not None]
    assert len(children) >= 2
    assert known.isdisjoint(child.digest for child in children)  # nothing is tried again
    assert any(child.parent[:3] == "000" for child in children if child.parent is not None)
    search = search_timeline(lines, history, monotonic)
    alone_until = joined - search.first
    both_until = max(chunk.end for chunk in search.chunks if chunk.worker == 0)
    assert both_until > alone_until + 3
    assert search.curve.flops(both_until) > search.curve.flops(alone_until)
