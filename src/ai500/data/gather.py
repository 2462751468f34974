"""Samples read by several threads into memory of the caller's: the work is done without the
interpreter's lock, which the training thread needs."""

from __future__ import annotations

import concurrent.futures
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.data.resumable_work import available_cores

MOST_THREADS = 16
PIECE_BYTES = 1 << 22
"""What one thread gathers at a time: little enough to share out, enough to be worth a thread."""

Job = Callable[[], object]


class Empty(Protocol):
    """Where images are put: `np.empty`, or memory that an accelerator can copy from."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> NDArray[Any]:
        """An array of this shape whose values do not matter."""


def gather(rows: NDArray[Any], indices: NDArray[np.int64], out: NDArray[Any]) -> None:
    """`rows[indices]`, which must be inside, into `out`; by several threads where it is much."""
    if not len(indices):
        return
    pieces = list(_pieces(rows, indices, out))
    if len(pieces) == 1:
        pieces[0]()
    else:
        read_together(pieces)


def _pieces(rows: NDArray[Any], indices: NDArray[np.int64], out: NDArray[Any]) -> Iterator[Job]:
    """Several rows in a piece, or a part of one."""
    together, part = PIECE_BYTES // rows[0].nbytes, PIECE_BYTES // rows.itemsize
    if together:
        for first in range(0, len(indices), together):
            some = slice(first, first + together)
            # "clip" writes to `out` itself; "raise" would go through a buffer of its own.
            yield partial(np.take, rows, indices[some], 0, out[some], "clip")
        return
    for row, number in enumerate(indices.tolist()):
        source, target = rows[number].reshape(-1), out[row].reshape(-1)
        for first in range(0, len(source), part):
            some = slice(first, first + part)
            yield partial(np.copyto, target[some], source[some])


def read_together(jobs: Iterable[Job]) -> None:
    """Run jobs in threads; an error is raised once no job runs any more."""
    waiting = deque(jobs)

    def work() -> None:
        while True:
            try:
                job = waiting.popleft()
            except IndexError:
                return
            try:
                job()
            except BaseException:
                waiting.clear()
                raise

    pool, size = _threads(os.getpid())
    futures = [pool.submit(work) for _ in range(min(size, len(waiting)))]
    concurrent.futures.wait(futures)
    for future in futures:
        future.result()


@cache
def _threads(process: int) -> tuple[concurrent.futures.ThreadPoolExecutor, int]:
    """Those of this process: a fork has none."""
    size = min(MOST_THREADS, available_cores())
    return concurrent.futures.ThreadPoolExecutor(size), size
