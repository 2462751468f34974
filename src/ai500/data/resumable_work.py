"""Work cut into chunks: done by many processes, recorded as done, taken up again after a kill."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ai500.core import atomic
from ai500.core.errors import EnvironmentLacksError

Key = TypeVar("Key")
Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Called with what is done and the total, in the same unit, as the work goes on."""

Holes = list[tuple[int, str]]
"""Rows of a chunk that could not be made, and why."""


@dataclass(frozen=True)
class Chunk:
    """Rows first … last − 1 of a split."""

    split: str
    first: int
    last: int


def cut(split: str, count: int, *, rows_per_chunk: int) -> Iterator[Chunk]:
    """The chunks of a split, in order."""
    for first in range(0, count, rows_per_chunk):
        yield Chunk(split, first, min(count, first + rows_per_chunk))


@dataclass
class Journal:
    """The finished chunks, one line of JSON each, appended: a kill tears at most the last line."""

    path: Path
    done: dict[Chunk, Holes] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, *, chunks: Iterable[Chunk]) -> Journal:
        """Which of `chunks` a job before this one finished; a torn last line is cut off."""
        journal = cls(path)
        known = set(chunks)
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                split, first, last, holes = json.loads(line)
                if (chunk := Chunk(split, first, last)) in known:
                    journal.done[chunk] = [(row, why) for row, why in holes]
        atomic.write_text(path, "".join(_line(*entry) for entry in journal.done.items()))
        return journal

    def record(self, chunk: Chunk, holes: Holes) -> None:
        """Note a chunk whose rows are on the disk."""
        self.done[chunk] = holes
        with atomic.explaining_write_errors(self.path), self.path.open("a") as file:
            file.write(_line(chunk, holes))

    def holes(self, split: str) -> Holes:
        """All rows of a split that could not be made, in order."""
        found = [holes for chunk, holes in self.done.items() if chunk.split == split]
        return sorted(itertools.chain.from_iterable(found))


def _line(chunk: Chunk, holes: Holes) -> str:
    return json.dumps([chunk.split, chunk.first, chunk.last, holes]) + "\n"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine holds the lock, and hold it; a kill frees it."""
    with atomic.explaining_write_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def available_cores() -> int:
    """The cores this process may use: fewer than the machine's inside a job."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parallel(
    jobs: Iterable[tuple[Key, Callable[[], Result]]], *, workers: int
) -> Iterator[tuple[Key, Result]]:
    """Each job's key with its result, as they come; one worker works in this process."""
    if workers <= 1:
        yield from ((key, job()) for key, job in jobs)
        return
    waiting = iter(jobs)
    pending: dict[concurrent.futures.Future[Result], Key] = {}
    # Not fork: a copy of a process that runs threads (torch, a live view) may deadlock.
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _begin_worker
    )

    def submit(number: int) -> None:
        # Workers are started here and inherit the mask: from their first line on Ctrl-C is ours.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            wanted = itertools.islice(waiting, number)
            pending.update((pool.submit(job), key) for key, job in wanted)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        submit(2 * workers)
        while pending:
            finished, _ = concurrent.futures.wait(
                pending, return_when=concurrent.futures.FIRST_COMPLETED
            )
            submit(len(finished))
            for future in finished:
                yield pending.pop(future), future.result()
    except BrokenProcessPool as error:
        raise EnvironmentLacksError(
            "a worker process was killed, most likely because memory ran out. "
            f"Run the same command again with fewer than {workers} workers; what is done is kept."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """End when the parent ends, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
