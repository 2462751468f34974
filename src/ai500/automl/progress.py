"""Where each worker of a search is, from the histories, for the live view. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ai500.automl.history import Candidate, Epoch, History, Line, Work
from ai500.automl.score import WorkCounter, operations_per_unit
from ai500.bagging.member_views import MemberView


@dataclass
class WorkerView:
    """One worker as the live view shows it."""

    round: int = 0
    model: str = ""
    epoch: int = 0
    """Epochs of the model that are done."""
    epochs: int = 0
    models: int = 0
    """Taken up so far."""
    best_error: float | None = None
    flops: float | None = None
    """Operations since its first batch / time, by its own clock; None: none yet."""


def worker_view(view: MemberView) -> WorkerView | None:
    """Return a worker's part of its view; None: it is no worker of a search, or not begun."""
    return view.details if isinstance(view.details, WorkerView) else None


class ProgressReader:
    """Follows the histories of a trial."""

    def __init__(self, members: Path) -> None:
        self._history = History(members)
        self._counted = WorkCounter()
        self._operations: dict[int, int] = {}
        self._first: dict[int, float] = {}
        self.workers: dict[int, WorkerView] = {}

    def refresh(self) -> Mapping[int, WorkerView]:
        """Every worker that has told anything."""
        for line in self._history.refresh():
            self._take(line, self.workers.setdefault(line.worker, WorkerView()))
        return self.workers

    def _take(self, line: Line, view: WorkerView) -> None:
        entry = line.entry
        if isinstance(entry, Candidate):
            view.models += entry.model != view.model
            view.model, view.round = entry.model, entry.round
            view.epoch, view.epochs = 0, entry.epochs
        elif isinstance(entry, Epoch):
            view.epoch = entry.epoch
            error = 1 - entry.accuracy
            view.best_error = error if view.best_error is None else min(error, view.best_error)
        elif isinstance(entry, Work) and entry.model in self._history.models:
            self._count(entry, line.worker, now=float(line.event["wall"]))

    def _count(self, work: Work, worker: int, *, now: float) -> None:
        candidate = self._history.models[work.model].candidate
        fresh = self._counted.new(work, candidate)
        done = self._operations.get(worker, 0) + fresh * operations_per_unit(candidate, work.phase)
        first = self._first.setdefault(worker, now - work.seconds)
        self._operations[worker] = done
        self.workers[worker].flops = done / (now - first) if now > first else None
