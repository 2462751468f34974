"""The history of a search: the models that every worker trained, one append-only file per worker.

    members/007/history.jsonl

Only the worker writes it, and all workers read it: a plain network file system suffices, without
a server and without a lock (ADR 0006). An unreadable line is skipped and reported, and so are the
lines about a model whose own line is unreadable.

Work is recorded in ranges (steps of an epoch, samples of a validation); operations follow from the
ranges and the model's architecture. A range that a resumed worker repeats has the same numbers, so
that it counts once. Needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ai500.core import schema
from ai500.core.events import Event, EventLog, Follower
from ai500.core.schema import option
from ai500.records import Operations
from ai500.workloads.models.architecture import Architecture, Layer

HISTORY_FILE = "history.jsonl"
Phase = Literal["train", "validate"]
State = Literal["trained", "stopped_early", "out_of_time", "lost"]
EXHAUSTED = "the search space is exhausted"
"""Reason for the end of a worker that found no other model to try."""
FINISHED = "finished by request"
"""Reason for the end of a worker that `ai500 finish` ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Start of a model: its architecture, hyper-parameters and operations."""

    model: str
    """Name, unique in the trial, such as `002-0013`: worker and round; `002-0013-2`: the second
    hyper-parameter trial of that round's architecture."""
    parent: str | None
    round: int
    """Round of this worker, from 1: one architecture each."""
    trial: int = option(1, "hyper-parameter trial of the round's architecture", minimum=1)
    moves: tuple[str, ...] = ()
    """Descriptions of the morphisms from the parent."""
    digest: str
    architecture: tuple[Layer, ...]
    batch_size: int = option(1, "samples of a step over all accelerators", minimum=1)
    kernel: int | None = None
    """Kernel size of the whole model, as far as it is larger than the parent's; None: unchanged."""
    tuned: bool = False
    """True if TPE chose the hyper-parameters."""
    operations: Operations
    steps_per_epoch: int = option(1, "optimizer steps of an epoch", minimum=1)
    validation_samples: int = option(1, "samples of one validation", minimum=1)
    epochs: int = option(1, "largest number of epochs", minimum=1)

    def operations_per_unit(self, phase: Phase) -> int:
        """Compute the operations of an optimizer step [D12], or of one image's validation."""
        if phase == "validate":
            return self.operations.forward_per_sample
        return self.operations.per_step(self.batch_size)


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a few seconds: steps or validation samples `first` to `first + count` of an epoch."""

    model: str
    phase: Phase
    epoch: int = option(1, "epoch, from 1", minimum=1)
    first: int = option(0, "first step (train) or image (validate) of the epoch", minimum=0)
    count: int = option(0, "steps or samples", minimum=0)
    seconds: float = option(0.0, "duration until the line was written", minimum=0)


@dataclass(frozen=True, slots=True)
class Epoch:
    """End of a model's epoch, with its validation."""

    model: str
    epoch: int = option(1, "epoch, from 1", minimum=1)
    loss: float | None = None
    accuracy: float = option(0.0, "on the validation set, in [0, 1]", minimum=0, less_than=1 + 1e-9)
    predicted: float | None = None
    """Accuracy at the last epoch, predicted from the learning curve so far."""


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a model's training; its accuracies are in its epochs."""

    model: str
    state: State
    weights: str | None = None
    """File of the weights, relative to the trial's folder; None: not kept."""
    reason: str = ""
    counted_steps: int = option(0, "steps whose bytes were counted: the last attempt's", minimum=0)
    bytes_inside_node: int = option(0, "sent in these steps by all ranks, in a node", minimum=0)
    bytes_between_nodes: int = option(0, "the same, between nodes", minimum=0)


@dataclass(frozen=True, slots=True)
class Presence:
    """Start or end of a worker's attempt: the time between belongs to the search."""

    change: Literal["begin", "end"]
    reason: str = ""


Entry: TypeAlias = Candidate | Work | Epoch | Ended | Presence
KINDS: dict[str, type[Entry]] = {
    "candidate": Candidate, "work": Work, "epoch": Epoch, "ended": Ended, "worker": Presence,
}  # fmt: skip
NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Line:
    """Entry of a history with its worker and attempt; `event` has its clocks."""

    worker: int
    attempt: int
    entry: Entry
    event: Event


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Unreadable line of a history."""

    worker: int
    line: int
    reason: str

    def __str__(self) -> str:
        return f"worker {self.worker}: line {self.line} of {HISTORY_FILE} is skipped: {self.reason}"


class Writer:
    """Writer of one worker's history; a crash in the middle of a line damages that line only."""

    def __init__(self, folder: Path, *, worker: int, attempt: int) -> None:
        self._log = EventLog(folder / HISTORY_FILE, worker=worker, attempt=attempt)

    def write(self, entry: Entry) -> None:
        """Append an entry durably, with the present time."""
        self._log.emit(NAMES[type(entry)], entry=schema.encode(entry))


class Reader:
    """Incremental reader of one worker's history."""

    def __init__(self, path: Path) -> None:
        self.worker = int(path.parent.name)
        self._follower = Follower(path)
        self._line = 0
        self._models: set[str] = set()
        self.unreadable: list[Unreadable] = []
        self.orphans: set[str] = set()
        """Names of models whose own line is missing or unreadable."""

    def new_lines(self) -> Iterator[Line]:
        """Yield complete lines that were appended since the last call."""
        for text in self._follower.new_lines():
            self._line += 1
            try:
                line = _line(text, worker=self.worker)
                self._check_model(line.entry)
                yield line
            except (schema.SchemaError, ValueError, RecursionError) as error:
                reason = str(error)[:120] if isinstance(error, schema.SchemaError) else "no JSON"
                self.unreadable.append(Unreadable(self.worker, self._line, reason))

    def _check_model(self, entry: Entry) -> None:
        """Refuse entries about a model without a candidate: they can't be counted."""
        if isinstance(entry, Candidate):
            self._models.add(entry.model)
        elif not isinstance(entry, Presence) and entry.model not in self._models:
            self.orphans.add(entry.model)
            raise schema.SchemaError("model", f"{entry.model[:20]!r} has no candidate before")


_HEAD: dict[str, tuple[type, ...]] = {
    "event": (str,), "wall": (float, int), "monotonic": (float, int), "host": (str,),
    "boot": (str,), "sequence": (int,), "worker": (int,), "attempt": (int,),
}  # fmt: skip
"""Keys of every line besides its entry, as `EventLog` writes them."""


def _line(text: bytes, *, worker: int) -> Line:
    event = json.loads(text.decode())
    if not isinstance(event, dict):
        raise schema.SchemaError("", "expected a table")
    entry = event.pop("entry", None)
    # Not by `schema`: a long search has a million lines, and this check takes half of their time.
    for key, kinds in _HEAD.items():
        value = event.get(key)
        if type(value) not in kinds or (type(value) is float and not math.isfinite(value)):
            raise schema.SchemaError(key, f"found {value!r}")
    if event["worker"] != worker:
        raise schema.SchemaError("worker", f"{event['worker']} in the file of worker {worker}")
    if event["event"] not in KINDS:
        raise schema.SchemaError("event", f"{event['event'][:20]!r} is not known")
    decoded = schema.decode(KINDS[event["event"]], entry, at=event["event"])
    return Line(worker, event["attempt"], decoded, event)


@dataclass
class Model:
    """One model, from all entries about it."""

    worker: int
    candidate: Candidate
    epochs: dict[int, Epoch] = field(default_factory=dict)
    """Epoch by number; of an epoch that a resumed worker repeated, the last one."""
    ended: Ended | None = None

    @property
    def id(self) -> str:
        """Name, unique in the trial."""
        return self.candidate.model

    @property
    def architecture(self) -> Architecture:
        """Architecture of its layers."""
        return Architecture(self.candidate.architecture)

    @property
    def accuracy(self) -> float | None:
        """Best accuracy of its epochs; None: no epoch is done yet."""
        # A copy: another thread may add an epoch meanwhile.
        return max((epoch.accuracy for epoch in list(self.epochs.values())), default=None)

    @property
    def predicted(self) -> float | None:
        """Predicted accuracy as of its last epoch; None: no epoch is done yet."""
        known = list(self.epochs)
        return self.epochs[max(known)].predicted if known else None

    @property
    def state(self) -> State | Literal["training"]:
        """State of its training."""
        return "training" if self.ended is None else self.ended.state


class History:
    """Models of all workers, as of the last `refresh`."""

    def __init__(self, members: Path) -> None:
        """Read the histories below `members`, the folder of the workers' folders."""
        self._members = members
        self._readers: dict[Path, Reader] = {}
        self.models: dict[str, Model] = {}

    def refresh(self) -> list[Line]:
        """Read and return the lines that were appended since, also by new workers."""
        for path in sorted(self._members.glob(f"*/{HISTORY_FILE}")):
            if path not in self._readers and path.parent.name.isdecimal():
                self._readers[path] = Reader(path)
        lines = [line for reader in self._readers.values() for line in reader.new_lines()]
        for line in lines:
            self._add(line)
        return lines

    @property
    def unreadable(self) -> list[Unreadable]:
        """Lines that were skipped."""
        return [line for reader in self._readers.values() for line in reader.unreadable]

    def orphans(self, worker: int) -> set[str]:
        """Return the names of a worker's models whose own line is missing or unreadable."""
        readers = [reader for reader in self._readers.values() if reader.worker == worker]
        return {model for reader in readers for model in reader.orphans}

    def _add(self, line: Line) -> None:
        entry = line.entry
        if isinstance(entry, Candidate):
            # A worker that resumes a model repeats its candidate.
            self.models.setdefault(entry.model, Model(line.worker, entry))
        elif isinstance(entry, Epoch | Ended):
            model = self.models[entry.model]
            if model.worker == line.worker and isinstance(entry, Epoch):
                model.epochs[entry.epoch] = entry
            elif model.worker == line.worker and isinstance(entry, Ended):
                model.ended = entry


MAX_STARTS = 3
"""Starts without any work after which a model is given up."""


@dataclass
class ResumeState:
    """State of one worker after all its earlier attempts, read from its own history."""

    attempts: int = 0
    """Number of earlier attempts, counted by the history: a requeued job keeps its number."""
    begun: bool = False
    """True if an attempt reached its first batch."""
    rounds: int = 0
    """Highest round of its models: names are never reused."""
    seconds: float = 0.0
    """Seconds searched: from each attempt's first batch to its last line."""
    open: dict[str, Candidate] = field(default_factory=dict)
    """Models without an end, in the order of their starts."""
    starts: dict[str, int] = field(default_factory=dict)
    """Starts of each model since its last work."""

    def failed_repeatedly(self, model: str) -> bool:
        """Return True once a model was started MAX_STARTS times without any work."""
        return self.starts.get(model, 0) >= MAX_STARTS


def number_of(model: str, *, worker: int) -> int:
    """Return the round in the name of a worker's model; 0: another name."""
    first, _, rest = model.partition("-")
    number, _, _ = rest.partition("-")
    return int(number) if first == f"{worker:03d}" and number.isdecimal() else 0


def model_name(*, worker: int, round_number: int, trial: int = 1) -> str:
    """Return the name of a model, which `number_of` reads."""
    name = f"{worker:03d}-{round_number:04d}"
    return name if trial == 1 else f"{name}-{trial}"


def resume_state(lines: Iterable[Line], *, worker: int) -> ResumeState:
    """Read a worker's state from the lines of its earlier attempts."""
    state, begun = ResumeState(), None
    for line in lines:
        if line.worker != worker:
            continue
        entry, now = line.entry, float(line.event["monotonic"])
        if line.attempt != state.attempts:  # a killed attempt wrote no end: stop its clock
            state.attempts, begun = line.attempt, None
        if isinstance(entry, Presence) and entry.change == "begin":
            state.begun = True
            begun = now  # each attempt has a clock of its own: only differences count
        if begun is not None:
            state.seconds += max(0.0, now - begun)
            begun = now
        if isinstance(entry, Presence) and entry.change == "end":
            begun = None
        elif isinstance(entry, Candidate):
            state.rounds = max(state.rounds, entry.round)
            state.open.setdefault(entry.model, entry)
            state.starts[entry.model] = state.starts.get(entry.model, 0) + 1
        elif isinstance(entry, Work):
            state.starts[entry.model] = 0
        elif isinstance(entry, Ended):
            state.open.pop(entry.model, None)
    return state
