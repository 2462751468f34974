"""Resumable work: cut into chunks, done by many processes, journalled, resumed after a kill."""

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
from ai500.core.processes import usable_cores

Key = TypeVar("Key")
Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Callback of the work done and the total, in the same unit."""

Holes = list[tuple[int, str]]
"""Rows of a chunk that could not be made, each with the reason."""

# Files of a folder that is being written: its plan, its finished chunks, its lock.
PLAN = "building.json"
JOURNAL = "building.jsonl"
LOCK = "building.lock"


@dataclass(frozen=True)
class Chunk:
    """Rows first … last − 1 of a split."""

    split: str
    first: int
    last: int


def cut(split: str, count: int, *, rows_per_chunk: int) -> Iterator[Chunk]:
    """Yield the chunks of a split, in order."""
    for first in range(0, count, rows_per_chunk):
        yield Chunk(split, first, min(count, first + rows_per_chunk))


@dataclass
class Journal:
    """The finished chunks, one line of JSON each, appended: a kill tears at most the last line."""

    path: Path
    done: dict[Chunk, Holes] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, *, chunks: Iterable[Chunk] | None = None) -> Journal:
        """Read which chunks an earlier job finished; a torn last line is cut off.

        Chunks that are not among `chunks` are forgotten; None: any chunk counts.
        """
        journal = cls(path)
        known = None if chunks is None else set(chunks)
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                split, first, last, holes = json.loads(line)
                chunk = Chunk(split, first, last)
                if known is None or chunk in known:
                    journal.done[chunk] = [(row, why) for row, why in holes]
        atomic.write_text(path, "".join(_line(*entry) for entry in journal.done.items()))
        return journal

    def record(self, chunk: Chunk, holes: Holes) -> None:
        """Append a chunk whose rows are on the disk."""
        self.done[chunk] = holes
        with atomic.explaining_write_errors(self.path), self.path.open("a") as file:
            file.write(_line(chunk, holes))

    def holes(self, split: str) -> Holes:
        """Return all rows of a split that could not be made, in order."""
        chunks = [holes for chunk, holes in self.done.items() if chunk.split == split]
        return sorted(itertools.chain.from_iterable(chunks))


def _line(chunk: Chunk, holes: Holes) -> str:
    return json.dumps([chunk.split, chunk.first, chunk.last, holes]) + "\n"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among this machine's processes; a kill releases it."""
    with atomic.explaining_write_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(usable_cores())


def in_parallel(
    jobs: Iterable[tuple[Key, Callable[[], Result]]], *, workers: int
) -> Iterator[tuple[Key, Result]]:
    """Yield each job's key with its result as it completes; one worker means this process."""
    if workers <= 1:
        yield from ((key, job()) for key, job in jobs)
        return
    _require_processes(3 + 2 * workers)  # the pool's threads and tracker; each worker and its watch
    waiting = iter(jobs)
    pending: dict[concurrent.futures.Future[Result], Key] = {}
    # Not fork: a copy of a process that runs threads (torch, a live view) may deadlock.
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _begin_worker
    )

    def submit(number: int) -> None:
        # Workers start here and inherit the mask: only this process handles Ctrl-C.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            batch = itertools.islice(waiting, number)
            pending.update((pool.submit(job), key) for key, job in batch)
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
            "a worker process was killed or could not begin, most likely because memory ran out or "
            "the limit on processes (`ulimit -u`) is reached.",
            key="workers",
            value=workers,
            remedy=f"Run the same command again with fewer than {workers} workers: it resumes.",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _require_processes(number: int) -> None:
    """Raise RuntimeError if so many can't be started: the pool would wait for ever for its own.

    A thread counts as a process for `ulimit -u`.
    """
    begun, end = [], threading.Event()
    try:
        for _ in range(number):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            begun.append(thread)
    finally:
        end.set()
        for thread in begun:
            thread.join()


def _begin_worker() -> None:
    """Exit when the parent process ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    try:
        threading.Thread(target=watch, daemon=True).start()
    except RuntimeError:  # the limit on processes: the parent reports it
        os._exit(1)
