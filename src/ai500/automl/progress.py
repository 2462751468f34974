"""Progress of a search's workers for the live view, from their histories. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ai500.automl.history import Candidate, Epoch, History, Line, Work
from ai500.automl.score import WorkCounter
from ai500.automl.worker_view import WorkerView


class ProgressReader:
    """Incremental reader of the workers' progress in a trial."""

    def __init__(self, members: Path) -> None:
        self._history = History(members)
        self._counter = WorkCounter()
        self._operations: dict[int, int] = {}
        self._first: dict[int, float] = {}
        self.workers: dict[int, WorkerView] = {}

    def refresh(self) -> Mapping[int, WorkerView]:
        """Read new lines; return the progress of every worker that has written any."""
        for line in self._history.refresh():
            self._add(line, self.workers.setdefault(line.worker, WorkerView()))
        return self.workers

    def _add(self, line: Line, view: WorkerView) -> None:
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
        new = self._counter.count(work, candidate)
        done = self._operations.get(worker, 0) + new * candidate.operations_per_unit(work.phase)
        first = self._first.setdefault(worker, now - work.seconds)
        self._operations[worker] = done
        self.workers[worker].flops = done / (now - first) if now > first else None
