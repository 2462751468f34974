"""Reads samples in several threads into the caller's memory.

The threads release the interpreter's lock while they copy: the training thread needs it.
"""

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

MAX_THREADS = 16
# Bytes that a thread gathers at a time: small enough to balance, large enough to pay for a thread.
PIECE_BYTES = 1 << 22
# Samples that all threads together may have in memory; one sample per thread may exceed it.
FLIGHT_BYTES = 1 << 30

Job = Callable[[], object]


class Empty(Protocol):
    """Allocator of the arrays: `np.empty`, or pinned memory."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> NDArray[Any]:
        """Return an uninitialized array."""


def gather(rows: NDArray[Any], indices: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Copy `rows[indices]` into `out`, in several threads where it is much.

    The caller has checked the indices.
    """
    if not len(indices):
        return
    pieces = list(_pieces(rows, indices, out))
    if len(pieces) == 1:
        pieces[0]()
    else:
        run_in_threads(pieces)


def _pieces(rows: NDArray[Any], indices: NDArray[np.int64], out: NDArray[Any]) -> Iterator[Job]:
    """Yield jobs that copy several rows each, or parts of one large row."""
    rows_per_piece, items_per_piece = PIECE_BYTES // rows[0].nbytes, PIECE_BYTES // rows.itemsize
    if rows_per_piece:
        for first in range(0, len(indices), rows_per_piece):
            piece = slice(first, first + rows_per_piece)
            # "clip" writes into `out` directly; "raise" copies through a buffer.
            yield partial(np.take, rows, indices[piece], 0, out[piece], "clip")
        return
    for row, number in enumerate(indices.tolist()):
        source, target = rows[number].reshape(-1), out[row].reshape(-1)
        for first in range(0, len(source), items_per_piece):
            piece = slice(first, first + items_per_piece)
            yield partial(np.copyto, target[piece], source[piece])


def gather_spans(
    rows: NDArray[Any],
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Copy rows from starts[i] on into out[offsets[i] : offsets[i + 1]], for each i, in threads
    where it is much. The caller has checked the bounds."""
    spans_per_piece = max(1, PIECE_BYTES * len(starts) // max(1, out.nbytes))
    pieces = [
        partial(_copy_spans, rows, starts[piece], offsets[piece.start : piece.stop + 1], out)
        for first in range(0, len(starts), spans_per_piece)
        for piece in [slice(first, first + spans_per_piece)]
    ]
    if len(pieces) == 1:
        pieces[0]()
    else:
        run_in_threads(pieces)


def _copy_spans(
    rows: NDArray[Any],
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    bounds = offsets.tolist()
    for start, first, last in zip(starts.tolist(), bounds, bounds[1:], strict=False):
        out[first:last] = rows[start : start + last - first]


def run_in_threads(jobs: Iterable[Job]) -> None:
    """Run jobs in threads and wait for all; raise the first error after the last one ended."""
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
    """Return this process's pool and its size; a forked process has no threads, so its own."""
    size = min(MAX_THREADS, available_cores())
    return concurrent.futures.ThreadPoolExecutor(size), size
