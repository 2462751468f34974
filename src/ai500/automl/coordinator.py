"""Coordinator of a worker on rank 0: choose models, write the history, fill the buffer.

During training other threads write the last model's weights, search architectures for the buffer
and give the newest of them its weights, so that an accelerator waits for neither (AIPerf §IV-C).
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ai500.automl.buffer import ArchitectureBuffer
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
from ai500.train.task_files import checkpoint_owner

MAX_INITIAL_LOSSES = 3
"""Losses of the initial model after which a worker gives up if no worker has another model."""
MAX_UNREADABLE_LOGGED = 10
"""Unreadable lines that the worker's log names; the score counts all."""


class SharedHistory(History):
    """History that several threads may refresh."""

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
        self._search = task.search
        self._buffer = ArchitectureBuffer(folder / "buffer", size=self._search.buffer_size)
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._searchers = ThreadPoolExecutor(
            self._search.search_threads, thread_name_prefix="search"
        )
        self._saving: Future[None] | None = None
        self._preparing: list[Future[Prepared]] = []
        self._filling: list[Future[None]] = []
        self._last: tuple[str, Weights | None] = ("", None)
        self._current: str | None = None
        self._base: Prepared | None = None
        """Architecture of the present round before hyper-parameters; None: it has no trials."""
        self._newest = max(
            self.earlier.open.values(), key=lambda started: (started.round, started.trial),
            default=None,
        )  # fmt: skip
        self._round = max([self.earlier.rounds, *self._rounds_of_files()])
        self._logged_unreadable: set[str] = set()

    def write(self, entry: Entry) -> None:
        """Write a line of the history; the saving thread does so, too."""
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
        """Prepare the next round and fill the buffer in other threads, from the history so far."""
        done = [future for future in self._preparing if future.done()]
        # Each holds a model's weights: keep the newest that is ready and those in preparation.
        waiting = [f for f in self._preparing if not f.done() and not f.cancel()]
        self._preparing = [*done[-1:], *waiting]
        number, training = self._round + 1, self._current
        self._preparing.append(self._searchers.submit(self._prepare, number, training))
        if not any(future.running() for future in self._filling):
            for future in self._filling:
                future.cancel()
            # The architecture of the next round takes one place.
            missing = range(len(self._buffer) + 1, self._search.buffer_size)
            self._filling = [
                self._searchers.submit(self._fill, number, spare, training) for spare in missing
            ]

    def _prepare(self, number: int, training: str | None) -> Prepared:
        """Search the next round's architecture, with its weights unless its parent still trains."""
        prepared = self._candidates.next(number, training=training)
        self._buffer.add(prepared.buffered())
        return prepared

    def _cancel_searches(self) -> None:
        """Cancel searches that have not begun."""
        for preparing in self._preparing:
            preparing.cancel()
        for filling in self._filling:
            filling.cancel()

    def _fill(self, number: int, spare: int, training: str | None) -> None:
        """Search another architecture for the buffer, for rounds whose own can't be trained."""
        with contextlib.suppress(NoParentError, SearchSpaceError):
            prepared = self._candidates.search(number, spare=spare, training=training)
            self._buffer.add(prepared.buffered())

    def finish_model(self, candidate: Candidate, ended: Ended, weights: Weights) -> None:
        """End a model; weights of a validated one are kept for its children."""
        self.history.refresh()
        validated = bool(self.history.models[candidate.model].epochs) and ended.state != "lost"
        self._last = (candidate.model, weights if validated else None)
        if self._saving is not None:
            self._saving.result()  # raises if the disk is full
        self._saving = self._saver.submit(self._save, candidate, ended, self._last[1])

    def close(self, reason: str) -> None:
        """Write everything to disk; end models that an earlier attempt left open."""
        self._cancel_searches()
        self._searchers.shutdown(wait=True)
        self._saver.shutdown(wait=True)
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
    def validated(self) -> bool:
        """True once a model of this worker was validated."""
        return any(m.worker == self._task.member and m.epochs for m in self._models())

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
            newest = candidate == self._newest
            if newest and not self.earlier.failed_repeatedly(model):
                resumed = self._candidates.resumed(candidate)
                if self._has_checkpoint(model, resumed):
                    self._base = self._interrupted_round(candidate)
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

    def _interrupted_round(self, candidate: Candidate) -> Prepared | None:
        """Return the architecture of an interrupted round, for its other trials; None: not kept."""
        buffered = self._buffer.current()
        if buffered is None or buffered.round != candidate.round or not candidate.tuned:
            return None
        return self._inherited(self._candidates.from_buffer(buffered, candidate.round))

    def _has_checkpoint(self, model: str, prepared: Prepared) -> bool:
        """Return True if a model has a good checkpoint; log and delete damaged ones."""
        task = dataclasses.replace(self._task, seed=prepared.seed)
        sealed, damaged = checkpoint_file.newest(
            self.checkpoint(model), owner=checkpoint_owner(task)
        )
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
            try:
                return self._next_trial() or self._next_round()
            except TooLargeError as error:
                self.write(error.candidate)
                self._end(Ended(error.candidate.model, "lost", None, str(error)))
                self.log.emit("out_of_memory", model=error.candidate.model, reason=str(error))
                self.history.refresh()

    def _next_trial(self) -> Prepared | None:
        """Return the present architecture with other hyper-parameters; None: it had its trials."""
        return None if self._base is None else self._candidates.trial(self._base)

    def _next_round(self) -> Prepared:
        """Return the first model of another architecture.

        Every child has inherited weights, never random ones.
        """
        self._base = None
        self._round += 1
        prepared = self._new_architecture()
        if prepared.candidate.parent is None or not self._search.tunes(self._round):
            return prepared
        self._base = prepared
        first = self._candidates.trial(prepared)
        assert first is not None  # no trial of this round is in the history yet
        return first

    def _new_architecture(self) -> Prepared:
        """Return the architecture that was prepared during training, else search one now."""
        if self._round == 1:
            return self._candidates.first()
        prepared = self._take_prepared() or self._take_buffered()
        if prepared is None:
            if self._saving is not None:
                self._saving.result()  # the last model may be the only parent
            try:
                prepared = self._candidates.next(self._round)
            except NoParentError:
                return self._initial_again()
        self._buffer.take(prepared.buffered())
        return prepared

    def _take_prepared(self) -> Prepared | None:
        """Return the prepared model; None: there is none, or it is no longer new, or an orphan."""
        done = [future for future in self._preparing if future.done()]
        newest = next(iter([*done[-1:], *self._preparing[:1]]), None)
        try:
            prepared = None if newest is None else newest.result()
        except (NoParentError, SearchSpaceError):
            prepared = None  # the history has grown since
        self._cancel_searches()
        self._preparing.clear()
        self.history.refresh()
        if prepared is None or prepared.candidate.digest in self._tried():
            return None  # another worker trains the same architecture
        return prepared if prepared.weights is not None else self._inherited(prepared)

    def _take_buffered(self) -> Prepared | None:
        """Return the newest architecture of the buffer that is new and has a parent's weights."""
        for buffered in self._buffer.newest_first():
            prepared = self._candidates.from_buffer(buffered, self._round)
            inherited = None if buffered.digest in self._tried() else self._inherited(prepared)
            if inherited is not None:
                return inherited
            self._buffer.discard(buffered)
        return None

    def _inherited(self, prepared: Prepared) -> Prepared | None:
        """Give a child its parent's weights; None: there are none, or they can't be read."""
        parent = self.history.models.get(str(prepared.candidate.parent))
        if parent is None:
            return None
        last, weights = self._last
        if parent.id != last:
            weights = self._candidates.weights_of(parent)
        return None if weights is None else self._candidates.inherit(prepared, parent, weights)

    def _tried(self) -> set[str]:
        """Return the digests of all workers' models."""
        return {model.candidate.digest for model in self._models()}

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

    def _save(self, candidate: Candidate, ended: Ended, weights: Weights | None) -> None:
        """Write weights, then the line that names them, in the saving thread."""
        path = None if weights is None else self._store.save(candidate.model, weights)
        self._end(dataclasses.replace(ended, weights=path))
        self.history.refresh()
        models = self._models()
        own = [model for model in models if model.worker == self._task.member]
        best = max(own, key=lambda model: (model.accuracy or 0.0, model.id))
        keep = models_to_keep(models, best=self._search.kept_models)
        # The initial models, in case the best have no new children.
        initial = {model.id for model in own if model.candidate.parent is None}
        self._store.keep(keep | initial | {best.id, candidate.model})

    def _models(self) -> list[Model]:
        """Return a copy: the other thread may add a model meanwhile."""
        return list(self.history.models.values())

    def _end(self, entry: Ended) -> None:
        self.write(entry)
        checkpoint_file.remove(self.checkpoint(entry.model))
