"""The history of a search: what every worker trained, one append-only file per worker.

    members/007/history.jsonl

Nobody but the worker writes it, everybody reads it: a plain network file system suffices, without
a server and without a lock (ADR 0006). A line that can't be read is passed over and reported, and
so is whatever is told of a model whose own line can't be read.

Work is told in ranges (steps of an epoch, images of a validation), and counted from them by the
operations of the model's architecture. A range that a resumed worker repeats is known by its
numbers, so that nothing counts twice. Needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ai500.core import schema
from ai500.core.events import Event, EventLog
from ai500.core.schema import option
from ai500.records import Operations
from ai500.workloads.models.architecture import Architecture, Layer

HISTORY_FILE = "history.jsonl"
Phase = Literal["train", "validate"]
State = Literal["trained", "stopped_early", "out_of_time", "lost"]
EXHAUSTED = "the search space is exhausted"
"""Why a worker ended that found no other model to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model is taken up: what it is and what one step of it costs."""

    model: str
    """Unique in the trial, such as `002-0013`: worker and number."""
    parent: str | None
    round: int
    """Of this worker, from 1."""
    moves: tuple[str, ...] = ()
    """Morphisms from the parent, in words."""
    digest: str
    architecture: tuple[Layer, ...]
    batch_size: int = option(1, "images of a step over all accelerators", minimum=1)
    kernel: int | None = None
    """Kernel size of the blocks that were added; None: nothing was."""
    tuned: bool = False
    """Hyper-parameters by TPE, not the class's own."""
    operations: Operations
    steps_per_epoch: int = option(1, "optimizer steps of an epoch", minimum=1)
    validation_images: int = option(1, "of one validation", minimum=1)
    epochs: int = option(1, "at most", minimum=1)


@dataclass(frozen=True, slots=True)
class Work:
    """A few seconds of one epoch: steps or validation images `first` to `first + count`."""

    model: str
    phase: Phase
    epoch: int = option(1, "from 1", minimum=1)
    first: int = option(0, "steps (train) or images (validate) of the epoch before", minimum=0)
    count: int = option(0, "steps or images", minimum=0)
    seconds: float = option(0.0, "that it took, until the line was written", minimum=0)


@dataclass(frozen=True, slots=True)
class Epoch:
    """A model's epoch is done and judged."""

    model: str
    epoch: int = option(1, "from 1", minimum=1)
    loss: float | None = None
    accuracy: float = option(0.0, "on the validation set, in [0, 1]", minimum=0, less_than=1 + 1e-9)
    predicted: float | None = None
    """What the learning curve so far promises at the last epoch."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A model is done with; its accuracies are those of its epochs."""

    model: str
    state: State
    weights: str | None = None
    """File with the weights, relative to the trial's folder; None: not kept."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Presence:
    """A worker came or went: the time between counts as the search's."""

    what: Literal["begin", "end"]
    reason: str = ""


Entry: TypeAlias = Candidate | Work | Epoch | Ended | Presence
KINDS: dict[str, type[Entry]] = {
    "candidate": Candidate, "work": Work, "epoch": Epoch, "ended": Ended, "worker": Presence,
}  # fmt: skip
NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Line:
    """An entry with who wrote it and when; `event` has its clocks, as events have them."""

    worker: int
    attempt: int
    entry: Entry
    event: Event


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line of a history that nobody can read."""

    worker: int
    line: int
    why: str

    def __str__(self) -> str:
        return f"worker {self.worker}: line {self.line} of {HISTORY_FILE} is skipped: {self.why}"


class Writer:
    """One worker's history; whoever dies in the middle of a line spoils that line alone."""

    def __init__(self, folder: Path, *, worker: int, attempt: int) -> None:
        self._log = EventLog(folder / HISTORY_FILE, worker=worker, attempt=attempt)

    def write(self, entry: Entry) -> None:
        """Append it durably; the line's time is now."""
        self._log.emit(NAMES[type(entry)], entry=schema.encode(entry))


class Reader:
    """One worker's history from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self.worker = int(path.parent.name)
        self._path = path
        self._offset = self._line = 0
        self._models: set[str] = set()
        self.unreadable: list[Unreadable] = []
        self.orphans: set[str] = set()
        """Models that are told of, and no readable line says what they are."""

    def new(self) -> Iterator[Line]:
        """Whole lines that were not seen before."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for text in whole.split(b"\n")[:-1]:
            self._line += 1
            try:
                line = _line(text, worker=self.worker)
                self._check_model(line.entry)
                yield line
            except (schema.SchemaError, ValueError, RecursionError) as error:
                why = str(error)[:120] if isinstance(error, schema.SchemaError) else "no JSON"
                self.unreadable.append(Unreadable(self.worker, self._line, why))

    def _check_model(self, entry: Entry) -> None:
        """What is told of a model that nobody described can't be counted."""
        if isinstance(entry, Candidate):
            self._models.add(entry.model)
        elif not isinstance(entry, Presence) and entry.model not in self._models:
            self.orphans.add(entry.model)
            raise schema.SchemaError("model", f"{entry.model[:20]!r} was not taken up before")


_HEAD: dict[str, tuple[type, ...]] = {
    "event": (str,), "wall": (float, int), "monotonic": (float, int), "host": (str,),
    "boot": (str,), "sequence": (int,), "worker": (int,), "attempt": (int,),
}  # fmt: skip
"""What every line has besides its entry, as `EventLog` writes it."""


def _line(text: bytes, *, worker: int) -> Line:
    event = json.loads(text.decode())
    if not isinstance(event, dict):
        raise schema.SchemaError("", "expected a table")
    entry = event.pop("entry", None)
    # By hand: a long search has a million lines, and this is half of the time they take.
    for key, kinds in _HEAD.items():
        value = event.get(key)
        if type(value) not in kinds or (type(value) is float and not math.isfinite(value)):
            raise schema.SchemaError(key, f"found {value!r}")
    if event["worker"] != worker:
        raise schema.SchemaError("worker", f"{event['worker']} in the file of worker {worker}")
    if event["event"] not in KINDS:
        raise schema.SchemaError("event", f"{event['event'][:20]!r} is not known")
    found = schema.decode(KINDS[event["event"]], entry, at=event["event"])
    return Line(worker, event["attempt"], found, event)


@dataclass
class Model:
    """All that the history tells of one model."""

    worker: int
    candidate: Candidate
    epochs: dict[int, Epoch] = field(default_factory=dict)
    """A resumed worker may tell an epoch again: the last word counts."""
    ended: Ended | None = None

    @property
    def id(self) -> str:
        """Unique in the trial."""
        return self.candidate.model

    @property
    def architecture(self) -> Architecture:
        """Its layers."""
        return Architecture(self.candidate.architecture)

    @property
    def accuracy(self) -> float | None:
        """The best of its epochs; None: none is done yet."""
        # A list: another thread may take in an epoch meanwhile.
        return max((one.accuracy for one in list(self.epochs.values())), default=None)

    @property
    def predicted(self) -> float | None:
        """By its learning curve, as of its last epoch."""
        known = list(self.epochs)
        return self.epochs[max(known)].predicted if known else None

    @property
    def state(self) -> State | Literal["training"]:
        """What became of it."""
        return "training" if self.ended is None else self.ended.state


class History:
    """All workers' models, as far as the files told by the last `look`."""

    def __init__(self, members: Path) -> None:
        """`members`: the folder with the workers' folders."""
        self._members = members
        self._readers: dict[Path, Reader] = {}
        self.models: dict[str, Model] = {}

    def refresh(self) -> list[Line]:
        """Take in what was appended since, also by workers that came late."""
        for path in sorted(self._members.glob(f"*/{HISTORY_FILE}")):
            if path not in self._readers and path.parent.name.isdecimal():
                self._readers[path] = Reader(path)
        fresh = [line for reader in self._readers.values() for line in reader.new()]
        for line in fresh:
            self._take(line)
        return fresh

    @property
    def unreadable(self) -> list[Unreadable]:
        """Lines that were passed over."""
        return [one for reader in self._readers.values() for one in reader.unreadable]

    def orphans(self, worker: int) -> set[str]:
        """Models of a worker that are told of without the line that says what they are."""
        mine = [reader for reader in self._readers.values() if reader.worker == worker]
        return {model for reader in mine for model in reader.orphans}

    def _take(self, line: Line) -> None:
        entry = line.entry
        if isinstance(entry, Candidate):
            # Told again by a worker that takes its model up again: nothing new.
            self.models.setdefault(entry.model, Model(line.worker, entry))
        elif isinstance(entry, Epoch | Ended):
            model = self.models[entry.model]
            if model.worker == line.worker and isinstance(entry, Epoch):
                model.epochs[entry.epoch] = entry
            elif model.worker == line.worker and isinstance(entry, Ended):
                model.ended = entry


MAX_STARTS = 3
"""A model that was taken up so often without a step's work is given up."""


@dataclass
class ResumeState:
    """Of one worker, in all its attempts."""

    attempts: int = 0
    """How often it was started: the history's own number, a requeued job keeps its old one."""
    begun: bool = False
    """Whether any attempt came to its first batch."""
    rounds: int = 0
    """The last one that has a name: a name is never given twice."""
    seconds: float = 0.0
    """That it has searched: from each attempt's first batch to the last thing it told."""
    open: dict[str, Candidate] = field(default_factory=dict)
    """Models that were taken up and have not ended, in their order."""
    starts: dict[str, int] = field(default_factory=dict)
    """How often each was taken up since it last did some work."""

    def failed_repeatedly(self, model: str) -> bool:
        """Whether it kills whoever takes it up."""
        return self.starts.get(model, 0) >= MAX_STARTS


def number_of(model: str, *, worker: int) -> int:
    """The round in the name of a worker's model; 0: it is no such name."""
    first, _, number = model.partition("-")
    return int(number) if first == f"{worker:03d}" and number.isdecimal() else 0


def resume_state(lines: Iterable[Line], *, worker: int) -> ResumeState:
    """From all that the worker told before."""
    past, begun = ResumeState(), None
    for line in lines:
        if line.worker != worker:
            continue
        entry, now = line.entry, float(line.event["monotonic"])
        if line.attempt != past.attempts:  # a killed attempt told no end: nothing counts until now
            past.attempts, begun = line.attempt, None
        if isinstance(entry, Presence) and entry.what == "begin":
            past.begun = True
            begun = now  # each attempt has a clock of its own: only differences count
        if begun is not None:
            past.seconds += max(0.0, now - begun)
            begun = now
        if isinstance(entry, Presence) and entry.what == "end":
            begun = None
        elif isinstance(entry, Candidate):
            past.rounds = max(past.rounds, entry.round)
            past.open.setdefault(entry.model, entry)
            past.starts[entry.model] = past.starts.get(entry.model, 0) + 1
        elif isinstance(entry, Work):
            past.starts[entry.model] = 0
        elif isinstance(entry, Ended):
            past.open.pop(entry.model, None)
    return past
