"""Items made by a thread while the caller uses the ones before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")
THREAD_NAME = "ai500-read-ahead"
_END = object()


def read_ahead(items: Iterable[Item], *, queued: int) -> Generator[Item, None, None]:
    """Yield the items in order while a thread makes the next ones; it raises their errors.

    `queued` items wait at most; one more may be in the making.
    """
    ready: queue.Queue[tuple[Item | object, BaseException | None]] = queue.Queue(queued)
    stopped = threading.Event()

    def read() -> None:
        try:
            for item in items:
                ready.put((item, None))
                if stopped.is_set():
                    return
            ready.put((_END, None))
        except BaseException as error:  # handed to the caller, which raises it
            ready.put((_END, error))

    thread = threading.Thread(target=read, name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        # The thread may be blocked on a full queue: drain it until the thread ends.
        while thread.is_alive():
            try:
                ready.get(timeout=0.05)
            except queue.Empty:
                continue
