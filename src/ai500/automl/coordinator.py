"""Coordinator of a worker on rank 0: choose models, write the history, prepare the next model.

A second thread writes a model's weights and prepares the next model during training, so that an
accelerator waits for neither (AIPerf §IV-C: the buffer of architectures).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ai500.automl.candidates import (
    Candidates,
    NoParentError,
    Prepared,
    SearchSpaceError,
    TooLargeError,
)
from ai500.automl.history import (
    Candidate,
    Ended,
    Entry,
    History,
    Line,
    Model,
    Presence,
    State,
    Writer,
    number_of,
    resume_state,
)
from ai500.automl.morphism import Weights
from ai500.automl.selection import models_to_keep
from ai500.automl.weights import WeightStore
from ai500.core.errors import AI500Error
from ai500.core.events import EventLog
from ai500.records import Task, checkpoint_file
from ai500.train.checkpoint import owner_of

MAX_INITIAL_LOSSES = 3
"""Losses of the initial model after which a worker gives up if no worker has another model."""
MAX_UNREADABLE_LOGGED = 10
"""Unreadable lines that the worker's log names; the score counts all."""


class SharedHistory(History):
    """History that two threads may refresh."""

    def __init__(self, members: Path) -> None:
        super().__init__(members)
        self._refreshing = threading.Lock()

    def refresh(self) -> list[Line]:
        """Read new lines, one thread at a time."""
        with self._refreshing:
            return super().refresh()


class Coordinator:
    """State of a worker, and its choice of models."""

    def __init__(self, task: Task, log: EventLog) -> None:
        assert task.search is not None
        folder = Path(task.folder)
        self.log = log
        self.history = SharedHistory(folder.parent)
        self.earlier = resume_state(self.history.refresh(), worker=task.member)
        self.seconds_left = max(0.0, task.search.minutes * 60 - self.earlier.seconds)
        self._task, self._folder = task, folder
        self._writer = Writer(folder, worker=task.member, attempt=self.earlier.attempts + 1)
        self._writing = threading.Lock()
        self._store = WeightStore(folder.parents[1], folder)
        self._candidates = Candidates(task, self.history, self._store)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._saving: Future[None] | None = None
        self._preparing: list[Future[Prepared]] = []
        self._last: tuple[str, Weights | None] = ("", None)
        self._current: str | None = None
        self._newest = max((candidate.round for candidate in self.earlier.open.values()), default=0)
        self._round = max([self.earlier.rounds, *self._rounds_of_files()])
        self._kept_models = task.search.kept_models
        self._logged_unreadable: set[str] = set()

    def write(self, entry: Entry) -> None:
        """Write a line of the history; both threads do."""
        with self._writing:
            self._writer.write(entry)

    def begin(self) -> None:
        """Record the first batch of this attempt, at which its time starts."""
        self.write(Presence("begin"))
        self.log.emit(
            "resumed" if self.earlier.begun else "first_batch", search_seconds=self.seconds_left
        )

    def checkpoint(self, model: str) -> Path:
        """Return the checkpoint file of a model; names are never reused."""
        return self._folder / f"checkpoint-{model}.pt"

    def next_model(self) -> Prepared | None:
        """Return the next model to train, an interrupted one first; None: there is none."""
        prepared = self._interrupted()
        if prepared is None:
            try:
                prepared = self._new_model()
            except SearchSpaceError as error:
                self.log.emit("search_space_exhausted", reason=str(error))
                return None
        self._log_unreadable()
        self._current = prepared.candidate.model
        self.write(prepared.candidate)
        self.history.refresh()
        return prepared

    def prepare_next(self) -> None:
        """Prepare a next model in a background thread, from the history as it is now."""
        done = [future for future in self._preparing if future.done()]
        # Each holds a model's weights: keep the newest that is ready and those in preparation.
        waiting = [f for f in self._preparing if not f.done() and not f.cancel()]
        self._preparing = [*done[-1:], *waiting]
        self._preparing.append(
            self._executor.submit(self._candidates.next, self._round + 1, training=self._current)
        )

    def finish_model(
        self, candidate: Candidate, state: State, reason: str, weights: Weights
    ) -> None:
        """End a model; weights of a validated one are kept for its children."""
        self.history.refresh()
        validated = bool(self.history.models[candidate.model].epochs) and state != "lost"
        self._last = (candidate.model, weights if validated else None)
        if self._saving is not None:
            self._saving.result()  # raises if the disk is full
        self._saving = self._executor.submit(self._save, candidate, state, reason, self._last[1])

    def close(self, reason: str) -> None:
        """Write everything to disk; end models that an earlier attempt left open."""
        for future in self._preparing:
            future.cancel()
        self._executor.shutdown(wait=True)
        if self._saving is not None:
            self._saving.result()
        for model, _ in self._take_open():
            self._end(Ended(model, "out_of_time", self._store.saved(model), reason))
        self.write(Presence("end", reason))
        self.history.refresh()
        lines = self.history.unreadable
        for unreadable in lines[:MAX_UNREADABLE_LOGGED]:
            self.log.emit("history_unreadable", line=str(unreadable), lines=len(lines))

    @property
    def initial(self) -> Prepared:
        """Initial model of every search."""
        return self._candidates.first()

    def weights_of(self, model: str) -> Weights | None:
        """Read the weights of this worker's model; None: not kept, or unreadable."""
        path = self._store.saved(model)
        if path is None:
            return None
        weights = self._store.load(path, self.history.models[model].architecture)
        self._log_unreadable()
        return weights

    def _interrupted(self) -> Prepared | None:
        """Return the last open model of an earlier attempt if it can resume; end the others."""
        for model, candidate in self._take_open():
            newest = candidate.round == self._newest
            if newest and not self.earlier.failed_repeatedly(model):
                resumed = self._candidates.resumed(candidate)
                if self._has_checkpoint(model, resumed):
                    return resumed
                if candidate.round == 1:
                    return self._candidates.first()
            if (weights := self._store.saved(model)) is not None:
                self._end(Ended(model, "trained", weights, "recorded by a later attempt"))
            elif newest and self.earlier.failed_repeatedly(model):
                self._end(
                    Ended(model, "lost", None, "its worker failed repeatedly while training it")
                )
            else:
                self._end(Ended(model, "lost", None, "its worker left no checkpoint"))
        return None

    def _has_checkpoint(self, model: str, prepared: Prepared) -> bool:
        """Return True if a model has a good checkpoint; log and delete damaged ones."""
        task = dataclasses.replace(self._task, seed=prepared.seed)
        sealed, damaged = checkpoint_file.newest(self.checkpoint(model), owner=owner_of(task))
        for each in damaged:
            self.log.emit("checkpoint_damaged", **each.as_event())
        checkpoint_file.discard(damaged)
        return sealed is not None

    def _log_unreadable(self) -> None:
        """Log files of weights that can't be inherited, each once."""
        for file, reason in list(self._store.unreadable.items()):
            if file not in self._logged_unreadable:
                self._logged_unreadable.add(file)
                self.log.emit("weights_unreadable", file=file, reason=reason)

    def _rounds_of_files(self) -> Iterator[int]:
        """Yield rounds of this worker's models that only files or orphaned lines mention."""
        worker = self._task.member
        yield from (number_of(model, worker=worker) for model in self.history.orphans(worker))
        for path in self._folder.glob("weights/*.pt"):
            yield number_of(path.stem, worker=worker)
        for path in self._folder.glob("checkpoint-*.pt"):
            model = path.stem.removeprefix("checkpoint-")
            yield number_of(model, worker=worker)
            if model not in self.earlier.open:
                checkpoint_file.remove(path)  # no candidate describes it

    def _take_open(self) -> Iterator[tuple[str, Candidate]]:
        while self.earlier.open:
            yield self.earlier.open.popitem()

    def _new_model(self) -> Prepared:
        """Return a new model; record candidates that need too much memory as lost."""
        while True:
            self._round += 1
            try:
                return self._next()
            except TooLargeError as error:
                self.write(error.candidate)
                self._end(Ended(error.candidate.model, "lost", None, str(error)))
                self.log.emit("out_of_memory", model=error.candidate.model, reason=str(error))
                self.history.refresh()

    def _next(self) -> Prepared:
        """Return the model that was prepared during training, or prepare one now.

        Every child has inherited weights, never random ones.
        """
        if self._round == 1:
            return self._candidates.first()
        prepared = self._take_prepared()
        if prepared is not None:
            return prepared
        if self._saving is not None:
            self._saving.result()  # the last model may be the only parent
        try:
            return self._candidates.next(self._round)
        except NoParentError:
            return self._initial_again()

    def _take_prepared(self) -> Prepared | None:
        """Return the prepared model; None: there is none, or it is no longer new, or an orphan."""
        done = [future for future in self._preparing if future.done()]
        newest = next(iter([*done[-1:], *self._preparing[:1]]), None)
        try:
            prepared = None if newest is None else newest.result()
        except (NoParentError, SearchSpaceError):
            prepared = None  # the history has grown since
        for future in self._preparing:
            future.cancel()
        self._preparing.clear()
        self.history.refresh()
        tried = {model.candidate.digest for model in self._models()}
        if prepared is None or prepared.candidate.digest in tried:
            return None  # another worker trains the same architecture
        parent, weights = self._last
        if prepared.weights is not None:
            return prepared
        if weights is None or prepared.candidate.parent != parent:
            return None  # its parent was lost
        return self._candidates.inherit(prepared, self.history.models[parent], weights)

    def _initial_again(self) -> Prepared:
        """Return the initial model under a new name, for want of a model with children."""
        own = [model for model in self._models() if model.worker == self._task.member]
        lost = [model for model in own if model.state == "lost" and model.candidate.parent is None]
        if len(lost) >= MAX_INITIAL_LOSSES:
            reason = lost[-1].ended.reason if lost[-1].ended is not None else ""
            raise AI500Error(
                f"worker {self._task.member}: the initial model could not be trained in "
                f"{len(lost)} rounds, and no other worker has a model yet: {reason}.",
                key="train.batch_size",
                value=len(lost),
                remedy="Set a smaller train.batch_size or train.base_learning_rate.",
            )
        return self._candidates.first(self._round)

    def _save(
        self, candidate: Candidate, state: State, reason: str, weights: Weights | None
    ) -> None:
        """Write weights, then the line that names them, in the second thread."""
        path = None if weights is None else self._store.save(candidate.model, weights)
        self._end(Ended(candidate.model, state, path, reason))
        self.history.refresh()
        models = self._models()
        own = [model for model in models if model.worker == self._task.member]
        best = max(own, key=lambda model: (model.accuracy or 0.0, model.id))
        keep = models_to_keep(models, best=self._kept_models)
        # The initial models, in case the best have no new children.
        initial = {model.id for model in own if model.candidate.parent is None}
        self._store.keep(keep | initial | {best.id, candidate.model})

    def _models(self) -> list[Model]:
        """Return a copy: the other thread may add a model meanwhile."""
        return list(self.history.models.values())

    def _end(self, entry: Ended) -> None:
        self.write(entry)
        checkpoint_file.remove(self.checkpoint(entry.model))
