"""The timed window of a member's worker: lock, description of the node, the trial's barrier.

Needs no torch: the workers of every framework use it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ai500.core import schema
from ai500.core.barrier import BarrierClient, connect
from ai500.core.errors import AI500Error
from ai500.core.heartbeat import beat, sign
from ai500.core.slot_locks import SlotLocks
from ai500.inventory.node import record_after, record_before
from ai500.meters.recorder import Recorder
from ai500.records import Task, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder
from ai500.train.worker import Interrupted, Rank

# A node that lost its power holds its lock on a network file system until the lease ends.
LOCK_SECONDS = 100.0
# The barrier server of a gang starts beside its members; an array's may be gone for good.
GANG_TIMEOUT_SECONDS = 120.0


@contextlib.contextmanager
def timed_window(
    task: Task,
    *,
    rank: Rank,
    meters: Recorder,
    emit: Callable[..., object],
    synchronize: Callable[[], None] = lambda: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Callable[[], None]]:
    """Describe the node before and after; yield the hook that starts the timed window.

    The hook waits until no other member trains on this one's slots. `synchronize` is a barrier of
    the member's own ranks, `stopped` a request to stop.
    """
    if rank.local_rank == 0:
        record_before(node_description(task))
    barrier = TrialBarrier(task, rank, emit, synchronize)
    slots = SlotLocks.from_environment(
        {slot.index for slot in task.slots} if rank.rank == 0 else ()
    )

    def ready() -> None:
        if not slots.acquire(stopped=stopped):
            raise Interrupted
        barrier.begin()
        meters.mark()

    try:
        yield ready
        meters.mark()
    finally:
        slots.release()  # what follows is not timed: the next member may train meanwhile
    barrier.end()
    if rank.local_rank == 0:
        record_after(node_description(task))


@dataclass(frozen=True)
class TrialBarrier:
    """The trial's barrier as a member meets it: clock offsets, and a common start of a gang [D6].

    Only rank 0 connects. Without a barrier server all calls return at once.
    """

    task: Task
    rank: Rank
    emit: Callable[..., object]
    synchronize: Callable[[], None] = lambda: None
    """Barrier of the member's own ranks."""

    def begin(self) -> None:
        """Meet the other members immediately before the first batch."""
        in_gang = "AI500_BARRIER" in os.environ
        client = self._connect(GANG_TIMEOUT_SECONDS if in_gang else 0.0)
        if client is not None:
            self._emit_clock(client)
            if in_gang:
                self.emit("barrier", missing=client.wait())
            client.close()
        if self.rank.world_size > 1:
            self.synchronize()

    def end(self) -> None:
        """Compare clocks again after the timed window, because clocks drift."""
        if (client := self._connect(0.0)) is not None:
            self._emit_clock(client)
            client.close()

    def _connect(self, timeout_seconds: float) -> BarrierClient | None:
        if self.rank.rank != 0:
            return None
        return connect(
            RunFolder(Path(self.task.run)).trial(self.task.trial).barrier,
            name=os.environ.get("AI500_BARRIER"),
            timeout_seconds=timeout_seconds,
        )

    def _emit_clock(self, client: BarrierClient) -> None:
        if (offset := client.clock()) is not None:
            self.emit("clock", **schema.encode(offset))


def node_description(task: Task) -> Path:
    """Return the file that describes this node as the member sees it."""
    trial = RunFolder(Path(task.run)).trial(task.trial)
    return trial.node_description(platform.node(), task.member)


def lock_member(task: Task) -> TextIO:
    """Lock the member: two workers would overwrite each other's checkpoint."""
    path, deadline = MemberFolder(Path(task.folder)).lock, time.monotonic() + LOCK_SECONDS
    while True:
        file = path.open("a", encoding="utf-8")
        if not run_folder.lock_within(file, seconds=max(0.0, deadline - time.monotonic())):
            raise AI500Error(f"member {task.member} is being trained by another process.")
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break  # else a copy that waited has replaced it meanwhile
    sign(file)
    os.utime(path)
    beat(file, path)
    return file
