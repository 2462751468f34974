"""Training of one model of a search on one rank: the loop of `train/`, logged in the history."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ai500.automl.history import Candidate, Entry, Epoch, Phase, State, Work
from ai500.automl.memory import OUT_OF_MEMORY, is_out_of_memory
from ai500.automl.selection import has_stalled, predicted_accuracy
from ai500.core.errors import AI500Error
from ai500.core.events import Event, EventLog
from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.parallel.engines.replicas import broadcast_action
from ai500.records import Search, Task
from ai500.train import loop
from ai500.train.loop import DivergedError
from ai500.train.member import Member
from ai500.train.position import Position
from ai500.train.worker import Interrupted

CHUNK_SECONDS = 2.0
"""Duration of a line of work: the resolution of the score over time."""


def model_task(task: Task, candidate: Candidate, *, batch_size: int, seed: int) -> Task:
    """Return the worker's task, adapted to one model."""
    return dataclasses.replace(
        task,
        seed=seed,
        steps_per_epoch=candidate.steps_per_epoch,
        hyperparameters=dataclasses.replace(
            task.hyperparameters, epochs=candidate.epochs, batch_size=batch_size
        ),
    )


@dataclass
class ModelLog:
    """Event log of the loop on rank 0 that writes a model's lines to the history."""

    candidate: Candidate
    accuracies: dict[int, float]
    """Epoch → accuracy on the validation set, earlier attempts included."""
    max_epochs: int
    """Epoch at which accuracy is predicted: the last one of a round after warm-up."""
    write: Callable[[Entry], None]
    on_validated: Callable[[], None]
    """Function that is called after each validation."""
    log: EventLog
    device: torch.device
    events: list[Event] = field(default_factory=list)
    """Events of the loop, for the worker's record."""
    steps: int = 0
    """Steps of this attempt."""
    _epoch: int = -1
    _first: int = 0
    _last: int = 0
    _loss: float | None = None
    _since: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Start the clock: the first batch is about to be read."""
        self._since = time.monotonic()

    def step(self, position: Position) -> None:
        """Count a finished step."""
        self.steps += 1
        if position.epoch != self._epoch:
            self._epoch, self._first = position.epoch, position.step - 1
        self._last = position.step
        if time.monotonic() - self._since >= CHUNK_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the steps since the last line, once the accelerator has finished them."""
        if self._last > self._first:
            if self.device.type != "cpu":
                torch.accelerator.synchronize()
            self._work("train", self._epoch + 1, self._first, self._last - self._first)
            self._first = self._last

    def emit(self, event: str, **fields: Any) -> None:
        """Translate an event of the loop into lines of the history."""
        self.events.append({"event": event, **fields})
        if event == "interrupted":  # the rest is in the history
            self.log.emit(event, model=self.candidate.model, **fields)
        if event in ("epoch", "interrupted"):
            self.flush()
            self._loss = fields.get("loss")
        elif event == "quality":
            self._work("validate", fields["epoch"], 0, fields["samples"])
            self._validated(fields["epoch"], accuracy=1.0 - fields["quality"])

    def _validated(self, epoch: int, *, accuracy: float) -> None:
        self.accuracies[epoch] = accuracy
        curve = [self.accuracies[number] for number in sorted(self.accuracies)]
        predicted = predicted_accuracy(curve, epochs=self.max_epochs)
        self.write(Epoch(self.candidate.model, epoch, self._loss, accuracy, predicted))
        self.on_validated()

    def _work(self, phase: Phase, epoch: int, first: int, count: int) -> None:
        now = time.monotonic()
        self.write(Work(self.candidate.model, phase, epoch, first, count, now - self._since))
        self._since = time.monotonic()


@dataclass(frozen=True)
class Limits:
    """Conditions that end a model before its last epoch."""

    search: Search
    deadline: Callable[[], float]
    """Function that returns the end of the search on the monotonic clock."""
    stop_requested: Callable[[], bool]


def train(member: Member, log: ModelLog | None, limits: Limits) -> tuple[State, str]:
    """Train a model to its end, on every rank. Return its final state and the reason.

    `Interrupted` is raised where a person or the scheduler requested the stop.
    """
    mesh = member.engine.mesh

    def rank_0_stops(stop: bool) -> bool:
        action = CheckpointAction.STOP if stop else CheckpointAction.CONTINUE
        return broadcast_action(action, mesh) == CheckpointAction.STOP

    def stop_agreed() -> bool:
        return rank_0_stops(limits.stop_requested() or time.monotonic() >= limits.deadline())

    stopped_early = False

    def stop_early(epoch: int) -> bool:
        nonlocal stopped_early
        stalled = log is not None and has_stalled(
            [log.accuracies[number] for number in sorted(log.accuracies)],
            patience=limits.search.patience,
        )
        stopped_early = rank_0_stops(stalled)
        return stopped_early

    member.stop_requested, member.on_epoch = stop_agreed, stop_early
    if log is not None:
        member.on_step = log.step
    try:
        loop.train(member)
    except Interrupted:
        if rank_0_stops(limits.stop_requested()):
            raise
        return "out_of_time", "the search's time is up"
    except DivergedError as error:
        return "lost", str(error).partition(". ")[0]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return out_of_memory(member.feed.global_batch_size, rank=mesh.rank, ranks=mesh.size)
    if stopped_early:
        return "stopped_early", f"no progress in {limits.search.patience} epochs"
    return "trained", ""


def out_of_memory(samples: int, *, rank: int, ranks: int) -> tuple[State, str]:
    """Return the state of a model that needs too much memory; with several ranks, raise.

    The other ranks would wait for this one forever.
    """
    if ranks > 1:
        raise AI500Error(
            f"rank {rank}: a model that trains {samples} samples a step needs more memory than the "
            "accelerator has.",
            key="automl.batch_sizes",
            value=samples,
            remedy="Start a new run with smaller automl.batch_sizes or automl.max_growth.",
        )
    return "lost", OUT_OF_MEMORY
