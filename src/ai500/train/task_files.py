"""A task's files: the member's data, its event log, its checkpoints' owner. Needs no torch."""

from __future__ import annotations

import os
from pathlib import Path

from ai500.core import events
from ai500.data.open_store import open_store
from ai500.data.store import Store
from ai500.parallel.data_duplicator import Staged
from ai500.records import Task
from ai500.records.checkpoint_file import Owner
from ai500.records.run_folder import MemberFolder
from ai500.train.worker import Rank


def staged_folder(task: Task) -> str | None:
    """Return the node's copy of the data, made by the controller or by this job; None: none."""
    return task.staged or os.environ.get("AI500_STAGED")


def open_data(task: Task) -> Staged | Store:
    """Open the node's copy of the samples, or the shared store."""
    staged = staged_folder(task)
    return Staged.open(Path(staged)) if staged else open_store(Path(task.store))


def event_log(task: Task, *, rank: Rank, device: object) -> events.EventLog | None:
    """Start the member's event log on rank 0; return None on the other ranks."""
    if rank.rank != 0:
        return None
    attempt = int(os.environ.get("AI500_ATTEMPT", "1"))
    path = MemberFolder(Path(task.folder)).events
    log = events.EventLog(path, trial=task.trial, member=task.member, attempt=attempt)
    log.emit("start", pid=os.getpid(), world_size=rank.world_size, device=str(device))
    return log


def checkpoint_owner(task: Task) -> Owner:
    """Return the owner of a task's checkpoints."""
    return {"trial": task.trial, "member": task.member, "seed": task.seed}
