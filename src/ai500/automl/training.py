"""One model of a search on one rank: the training loop of `train/`, told to the history."""

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
from ai500.parallel.engines import CheckpointAction
from ai500.parallel.engines.replicas import broadcast_action
from ai500.records import Search, Task
from ai500.train import loop
from ai500.train.checkpoint import Position
from ai500.train.loop import DivergedError
from ai500.train.member import Member
from ai500.train.worker import Interrupted

CHUNK_SECONDS = 2.0
"""The score over time is known no finer."""


def model_task(task: Task, candidate: Candidate, *, batch_size: int, seed: int) -> Task:
    """The worker's task as that of one model."""
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
    """Takes what the loop tells of a model and writes the history's lines; rank 0's."""

    candidate: Candidate
    accuracies: dict[int, float]
    """Epoch → on the validation set; with those of earlier attempts."""
    most_epochs: int
    """That the learning curve is followed to: of a round after warm-up."""
    write: Callable[[Entry], None]
    on_judged: Callable[[], None]
    """Called after each epoch that was judged."""
    log: EventLog
    device: torch.device
    told: list[Event] = field(default_factory=list)
    _epoch: int = -1
    _first: int = 0
    _last: int = 0
    _loss: float | None = None
    _since: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """The first batch is about to be read."""
        self._since = time.monotonic()

    def step(self, position: Position) -> None:
        """A step is done."""
        if position.epoch != self._epoch:
            self._epoch, self._first = position.epoch, position.step - 1
        self._last = position.step
        if time.monotonic() - self._since >= CHUNK_SECONDS:
            self.flush()

    def flush(self) -> None:
        """The steps since the last line, once the accelerator has done them."""
        if self._last > self._first:
            if self.device.type != "cpu":
                torch.accelerator.synchronize()
            self._work("train", self._epoch + 1, self._first, self._last - self._first)
            self._first = self._last

    def emit(self, event: str, **fields: Any) -> None:
        """As the loop's event log."""
        self.told.append({"event": event, **fields})
        if event == "interrupted":  # the rest is in the history
            self.log.emit(event, model=self.candidate.model, **fields)
        if event in ("epoch", "interrupted"):
            self.flush()
            self._loss = fields.get("loss")
        elif event == "quality":
            self._work("validate", fields["epoch"], 0, fields["images"])
            self._judge(fields["epoch"], accuracy=1.0 - fields["quality"])

    def _judge(self, epoch: int, *, accuracy: float) -> None:
        self.accuracies[epoch] = accuracy
        curve = [self.accuracies[one] for one in sorted(self.accuracies)]
        promised = predicted_accuracy(curve, epochs=self.most_epochs)
        self.write(Epoch(self.candidate.model, epoch, self._loss, accuracy, promised))
        self.on_judged()

    def _work(self, phase: Phase, epoch: int, first: int, count: int) -> None:
        now = time.monotonic()
        self.write(Work(self.candidate.model, phase, epoch, first, count, now - self._since))
        self._since = time.monotonic()


@dataclass(frozen=True)
class Limits:
    """When a model ends before its last epoch."""

    search: Search
    deadline: Callable[[], float]
    """On the monotonic clock."""
    asked_to_stop: Callable[[], bool]


def train(member: Member, log: ModelLog | None, limits: Limits) -> tuple[State, str]:
    """To the model's end, on every rank; what became of it, and why.

    `Interrupted` goes on to the caller where a person or the scheduler asked for it.
    """
    mesh = member.engine.mesh

    def over() -> bool:
        return limits.asked_to_stop() or time.monotonic() >= limits.deadline()

    def together() -> bool:
        wish = CheckpointAction.STOP if over() else CheckpointAction.CONTINUE
        return broadcast_action(wish, mesh) == CheckpointAction.STOP

    stopped_early = False

    def stop_early(epoch: int) -> bool:
        nonlocal stopped_early
        given_up = log is not None and has_stalled(
            [log.accuracies[number] for number in sorted(log.accuracies)],
            patience=limits.search.patience,
        )
        action = CheckpointAction.STOP if given_up else CheckpointAction.CONTINUE
        stopped_early = broadcast_action(action, mesh) == CheckpointAction.STOP
        return stopped_early

    member.stop_requested, member.on_epoch = together, stop_early
    if log is not None:
        member.on_step = log.step
    try:
        loop.train(member)
    except Interrupted:
        if broadcast_action(_asked(limits), mesh) == CheckpointAction.STOP:
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


def out_of_memory(images: int, *, rank: int, ranks: int) -> tuple[State, str]:
    """A model alone on its accelerator is lost; other ranks would wait for this one for ever."""
    if ranks > 1:
        raise AI500Error(
            f"rank {rank}: a model that trains {images} images a step needs more memory than the "
            "accelerator has. Set smaller automl.batch_sizes, or a smaller automl.max_growth, in "
            "a new run."
        )
    return "lost", OUT_OF_MEMORY


def _asked(limits: Limits) -> CheckpointAction:
    return CheckpointAction.STOP if limits.asked_to_stop() else CheckpointAction.CONTINUE
