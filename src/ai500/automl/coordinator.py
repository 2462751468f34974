"""What rank 0 of a worker does for it: decides what is trained, keeps the history, looks ahead.

One thread beside the training writes a model's weights down and then prepares the next model but
one, so that an accelerator never waits for either (AIPerf §IV-C: the buffer of architectures).
"""

from __future__ import annotations

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
from ai500.automl.selection import kept
from ai500.automl.weights import WeightStore
from ai500.core.errors import AI500Error, DataError
from ai500.core.events import EventLog
from ai500.records import Task
from ai500.train import checkpoint

MAX_INITIAL_LOSSES = 3
"""A worker whose initial model was lost so often, with nothing trained by anybody, gives up."""
MAX_UNREADABLE_LOGGED = 10
"""Lines that the worker's own log names; the score counts all."""


class SharedHistory(History):
    """For two threads."""

    def __init__(self, members: Path) -> None:
        super().__init__(members)
        self._looking = threading.Lock()

    def refresh(self) -> list[Line]:
        """One at a time: a line is taken in once."""
        with self._looking:
            return super().refresh()


class Coordinator:
    """The worker's memory and its plans."""

    def __init__(self, task: Task, log: EventLog) -> None:
        assert task.search is not None
        folder = Path(task.folder)
        self.log = log
        self.history = SharedHistory(folder.parent)
        self.past = resume_state(self.history.refresh(), worker=task.member)
        self.seconds_left = max(0.0, task.search.minutes * 60 - self.past.seconds)
        self._task, self._folder = task, folder
        self._writer = Writer(folder, worker=task.member, attempt=self.past.attempts + 1)
        self._writing = threading.Lock()
        self._store = WeightStore(folder.parents[1], folder)
        self._candidates = Candidates(task, self.history, self._store)
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._put_away: Future[None] | None = None
        self._ahead: list[Future[Prepared]] = []
        self._last: tuple[str, Weights | None] = ("", None)
        self._current: str | None = None
        self._newest = max((one.round for one in self.past.open.values()), default=0)
        self._round = max([self.past.rounds, *self._named()])
        self._kept_most = task.search.kept_models
        self._told_unreadable: set[str] = set()

    def write(self, entry: Entry) -> None:
        """A line of the history; both threads have some."""
        with self._writing:
            self._writer.write(entry)

    def begin(self) -> None:
        """The first batch of this attempt: from here on the time counts."""
        self.write(Presence("begin"))
        self.log.emit(
            "resumed" if self.past.begun else "first_batch", search_seconds=self.seconds_left
        )

    def checkpoint(self, model: str) -> Path:
        """Of a model in training; its name is unlike that of any model before."""
        return self._folder / f"checkpoint-{model}.pt"

    def take(self) -> Prepared | None:
        """The next model to train: the one that was interrupted, or a new one; None: there is no
        other left to try."""
        prepared = self._interrupted()
        if prepared is None:
            try:
                prepared = self._next_that_fits()
            except SearchSpaceError as error:
                self.log.emit("search_space_exhausted", reason=str(error))
                return None
        self._tell_unreadable()
        self._current = prepared.candidate.model
        self.write(prepared.candidate)
        self.history.refresh()
        return prepared

    def look_ahead(self) -> None:
        """While a model trains: the next one; after each epoch anew, by what is known then."""
        done = [one for one in self._ahead if one.done()]
        # Each holds a model's weights: the newest that is ready and one that may be better.
        waiting = [one for one in self._ahead if not one.done() and not one.cancel()]
        self._ahead = [*done[-1:], *waiting]
        self._ahead.append(
            self._aside.submit(self._candidates.next, self._round + 1, training=self._current)
        )

    def ended(self, candidate: Candidate, state: State, reason: str, weights: Weights) -> None:
        """A model is done with; its weights, where it was judged, are kept for its children."""
        self.history.refresh()
        judged = bool(self.history.models[candidate.model].epochs) and state != "lost"
        self._last = (candidate.model, weights if judged else None)
        if self._put_away is not None:
            self._put_away.result()  # a full disk is told here
        self._put_away = self._aside.submit(self._file, candidate, state, reason, self._last[1])

    def close(self, reason: str) -> None:
        """After everything is on disk; a model that an earlier attempt left ends with the time."""
        for one in self._ahead:
            one.cancel()
        self._aside.shutdown(wait=True)
        if self._put_away is not None:
            self._put_away.result()
        for model, _ in self._unended():
            self._end(Ended(model, "out_of_time", self._store.saved(model), reason))
        self.write(Presence("end", reason))
        self.history.refresh()
        lines = self.history.unreadable
        for unreadable in lines[:MAX_UNREADABLE_LOGGED]:
            self.log.emit("history_unreadable", line=str(unreadable), lines=len(lines))

    @property
    def initial(self) -> Prepared:
        """What every search starts at."""
        return self._candidates.first()

    def weights_of(self, model: str) -> Weights | None:
        """Of a model of this worker that is kept."""
        path = self._store.saved(model)
        if path is None:
            return None
        found = self._store.load(path, self.history.models[model].architecture)
        self._tell_unreadable()
        return found

    def _interrupted(self) -> Prepared | None:
        """The last model of an earlier attempt, if it can go on; what can't is lost."""
        for model, candidate in self._unended():
            newest = candidate.round == self._newest
            if newest and not self.past.failed_repeatedly(model):
                if self._whole(self.checkpoint(model)):
                    return self._candidates.again(candidate)
                if candidate.round == 1:
                    return self._candidates.first()
            if (weights := self._store.saved(model)) is not None:
                self._end(Ended(model, "trained", weights, "told by a later attempt"))
            elif newest and self.past.failed_repeatedly(model):
                self._end(Ended(model, "lost", None, "its worker died of it again and again"))
            else:
                self._end(Ended(model, "lost", None, "its worker left no checkpoint of it"))
        return None

    def _whole(self, path: Path) -> bool:
        """Whether there is a checkpoint; one that can't be read is told, and deleted."""
        if not path.exists():
            return False
        try:
            checkpoint.read(path)
        except DataError as error:
            self.log.emit("checkpoint_unreadable", reason=str(error))
            path.unlink()
            return False
        return True

    def _tell_unreadable(self) -> None:
        """Weights that nobody can inherit: each file once."""
        for file, why in list(self._store.unreadable.items()):
            if file not in self._told_unreadable:
                self._told_unreadable.add(file)
                self.log.emit("weights_unreadable", file=file, reason=why)

    def _named(self) -> Iterator[int]:
        """Numbers of this worker's models that only files or lines without a model tell of."""
        worker = self._task.member
        yield from (number_of(one, worker=worker) for one in self.history.orphans(worker))
        for path in self._folder.glob("weights/*.pt"):
            yield number_of(path.stem, worker=worker)
        for path in self._folder.glob("checkpoint-*.pt"):
            model = path.stem.removeprefix("checkpoint-")
            yield number_of(model, worker=worker)
            if model not in self.past.open:
                path.unlink()  # nobody knows any more what it is of

    def _unended(self) -> Iterator[tuple[str, Candidate]]:
        while self.past.open:
            yield self.past.open.popitem()

    def _next_that_fits(self) -> Prepared:
        """Candidates that there is no memory for are told lost, each in a round of its own."""
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
        """As prepared while the last model trained; a first one, or one after a restart, now.

        Every one of them has weights: a child never begins at random ones.
        """
        if self._round == 1:
            return self._candidates.first()
        prepared = self._looked_ahead()
        if prepared is not None:
            return prepared
        if self._put_away is not None:
            self._put_away.result()  # the last model may be the only parent
        try:
            return self._candidates.next(self._round)
        except NoParentError:
            return self._begun_again()

    def _looked_ahead(self) -> Prepared | None:
        """What was prepared, if it still is new and has a parent; None: it has to be made now."""
        done = [one for one in self._ahead if one.done()]
        waited_for = [*done[-1:], *self._ahead[:1]][:1]
        try:
            found = [one.result() for one in waited_for]
        except (NoParentError, SearchSpaceError):
            found = []  # more is known by now
        for one in self._ahead:
            one.cancel()
        self._ahead.clear()
        self.history.refresh()
        tried = {model.candidate.digest for model in self._models()}
        if not found or found[0].candidate.digest in tried:
            return None  # another worker took the same one up meanwhile
        (prepared,) = found
        parent, weights = self._last
        if prepared.weights is not None:
            return prepared
        if weights is None or prepared.candidate.parent != parent:
            return None  # the model it was to be a child of is lost
        return self._candidates.inherit(prepared, self.history.models[parent], weights)

    def _begun_again(self) -> Prepared:
        """The initial model under a new name, where nobody has a model that can have children."""
        mine = [one for one in self._models() if one.worker == self._task.member]
        lost = [one for one in mine if one.state == "lost" and one.candidate.parent is None]
        if len(lost) >= MAX_INITIAL_LOSSES:
            why = lost[-1].ended.reason if lost[-1].ended is not None else ""
            raise AI500Error(
                f"worker {self._task.member}: the initial model could not be trained in "
                f"{len(lost)} rounds, and no other worker has a model yet: {why}. Set a smaller "
                "train.batch_size or train.base_learning_rate."
            )
        return self._candidates.first(self._round)

    def _file(
        self, candidate: Candidate, state: State, reason: str, weights: Weights | None
    ) -> None:
        """In the other thread: weights first, so that whoever reads the line finds them."""
        path = None if weights is None else self._store.save(candidate.model, weights)
        self._end(Ended(candidate.model, state, path, reason))
        self.history.refresh()
        models = self._models()
        mine = [model for model in models if model.worker == self._task.member]
        best = max(mine, key=lambda model: (model.accuracy or 0.0, model.id))
        keep = kept(models, best=self._kept_most)
        # The initial ones for when the best have no children left.
        initial = {model.id for model in mine if model.candidate.parent is None}
        self._store.keep(keep | initial | {best.id, candidate.model})

    def _models(self) -> list[Model]:
        """A list: the other thread may take in another model meanwhile."""
        return list(self.history.models.values())

    def _end(self, entry: Ended) -> None:
        self.write(entry)
        self.checkpoint(entry.model).unlink(missing_ok=True)
