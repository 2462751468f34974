"""The training of one rank of one member, from the first batch to the target epochs.

Read top to bottom: restore, then for each epoch its steps, its evaluation, its checkpoint. The
window that is timed begins with the read of the first training batch and ends with the last
evaluation (SPEC §5, [D14]). Training asks for each step and is told its loss, so that who drives
it may take the steps of several members in turn [D11].
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from ai500.core import atomic, schema
from ai500.core.errors import AI500Error
from ai500.core.randomness import Stream, derive
from ai500.data.bootstrap import Counts, epoch_order
from ai500.parallel.engines import CheckpointAction, Engine
from ai500.records import Operations, ProblemClass, Progress, Task
from ai500.records.run_folder import MemberFolder
from ai500.train import checkpoint
from ai500.train.evaluate import Evaluator
from ai500.train.feed import Batch, Feed
from ai500.train.learning_rate import planned, scaled_peak
from ai500.train.optimizers import settings_sha256
from ai500.train.precision.numerics import Numerics
from ai500.train.worker import Interrupted
from ai500.workloads.protocol import Workload

PROGRESS_SECONDS = 1.0


class DivergedError(AI500Error):
    """The loss is no number any more."""


class Listener(Protocol):
    """Who is told what happens: the member's event log, or a search's history."""

    def emit(self, event: str, **fields: Any) -> object:
        """Take note of it."""


@dataclass
class Member:
    """What one rank trains, and where it writes."""

    task: Task
    folder: MemberFolder
    workload: Workload
    problem_class: ProblemClass
    engine: Engine
    numerics: Numerics
    optimizer: torch.optim.Optimizer
    feed: Feed
    evaluator: Evaluator
    counts: Counts
    events: Listener | None
    """Rank 0's; None on the others."""
    stop_requested: Callable[[], bool]
    operations: Operations | None = None
    """Of the whole model, counted by rank 0 before it trains."""
    on_ready: Callable[[], None] = lambda: None
    """Called once, when all is ready for the first batch."""
    on_step: Callable[[checkpoint.Position], None] = lambda _: None
    """Called after every step."""
    checkpoints: checkpoint.Writer = field(default_factory=checkpoint.Writer)

    def emit(self, event: str, **fields: object) -> None:
        """An event of this member, told once (by rank 0)."""
        if self.events is not None:
            self.events.emit(event, **fields)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A member's next step."""

    batch: Batch
    rate: float
    seed: int
    """Of torch's own generators in this step."""


Training = Generator[Wanted | int, Tensor | None, None]
"""Gives each step that it wants, to be sent its mean loss, and the number of each epoch that has
ended, to be sent nothing. The loss may be overwritten by the next step."""


def epochs(member: Member) -> Iterator[int]:
    """Train to the target epochs, from a checkpoint where there is one; each epoch as it ends."""
    position = prepare(member)
    member.on_ready()
    with contextlib.closing(train(member, position)) as training:
        loss: Tensor | None = None
        while True:
            try:
                wanted = training.send(loss)
            except StopIteration:
                return
            if isinstance(wanted, int):
                yield wanted
                loss = None
            else:
                loss = take_step(member, wanted)


def prepare(member: Member) -> checkpoint.Position:
    """All that comes before the first batch; where training stands."""
    task = member.task
    _warm_up_engine(member)
    position = checkpoint.restore(
        member.folder.checkpoint,
        engine=member.engine,
        optimizer=member.optimizer,
        numerics=member.numerics,
        seed=task.seed,
    )
    if position is None:
        return checkpoint.Position(seed=task.seed)
    member.emit("resumed", epoch=position.epoch, step=position.step)
    return position


def train(member: Member, position: checkpoint.Position) -> Training:
    """The rest of the target epochs; when it ends, however that is, its checkpoint is on disk."""
    try:
        yield from _train(member, position)
    finally:
        member.checkpoints.wait()


def _train(member: Member, position: checkpoint.Position) -> Training:
    task, hyper = member.task, member.task.hyperparameters
    rate = _learning_rate(task, global_batch_size=member.feed.global_batch_size)
    while position.epoch < hyper.epochs:
        order = _order(member, position.epoch)
        images_per_second = yield from _train_epoch(member, position, order, rate)
        loss_sum = _over_replicas(member, position.loss_sum)
        _check_finite(position.epoch, loss_sum)
        finished = position.epoch + 1
        member.emit(
            "epoch",
            epoch=finished,
            images=position.images,
            steps=position.step,
            loss=loss_sum / position.images,
            learning_rate=rate(finished * task.steps_per_epoch - 1),
            optimizer_sha256=settings_sha256(member.optimizer),
        )
        if finished % hyper.evaluate_every_epochs == 0 or finished == hyper.epochs:
            _evaluate(member, finished)
        if finished == hyper.epochs:
            member.emit("end", epoch=finished)
        position = checkpoint.Position(seed=task.seed, epoch=finished)
        _save(member, position)
        _report_progress(member, position, images_per_second=images_per_second, loss=None)
        yield finished


def take_step(member: Member, wanted: Wanted) -> Tensor:
    """One optimizer step of one member by itself; its mean loss."""
    batch = wanted.batch
    _seed_generators(wanted.seed, member.feed.device)
    inputs, labels = member.workload.train_inputs(
        member.problem_class, batch.images, batch.labels, batch.draws
    )
    for group in member.optimizer.param_groups:
        group["lr"] = wanted.rate
    member.optimizer.zero_grad(set_to_none=True)
    loss = member.engine.forward_backward(inputs, labels)
    member.numerics.step(member.optimizer)
    return loss


def some_batch(member: Member) -> Batch:
    """Some samples of the member, as many as a step takes: repeated where it drew fewer."""
    indices = np.resize(np.flatnonzero(member.counts), member.feed.batch_size)
    images, labels = member.feed.samples.rows(indices)
    device = member.feed.device
    draws = torch.full((len(indices), member.workload.draws_per_image), 0.5, device=device)
    return Batch(torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device), draws)


def _warm_up_engine(member: Member) -> None:
    """Some samples of the member through the engine, before anything is timed or restored."""
    some = some_batch(member)
    inputs, targets = member.workload.train_inputs(
        member.problem_class, some.images, some.labels, some.draws
    )
    member.engine.warm_up(inputs, targets)
    member.evaluator.warm_up()


def _train_epoch(
    member: Member,
    position: checkpoint.Position,
    order: NDArray[np.int64],
    rate: Callable[[int], float],
) -> Generator[Wanted, Tensor | None, float]:
    """The rest of one epoch's steps, at so many images per second; `position` moves with each."""
    task = member.task
    member.engine.module.train()
    if position.epoch == 0 and position.step == 0:
        member.emit("first_batch", optimizer_sha256=settings_sha256(member.optimizer))
    loss_sum = torch.zeros((), dtype=torch.float64, device=member.feed.device)
    clock, trained_before = _Clock(), position.images
    global_batch = member.feed.global_batch_size
    for batch in member.feed.epoch(position.epoch, order, first_step=position.step):
        learning_rate = rate(position.epoch * task.steps_per_epoch + position.step)
        loss = yield Wanted(batch, learning_rate, _step_seed(member, position))
        assert loss is not None
        loss_sum += loss.double() * global_batch
        position.step += 1
        position.images += global_batch
        member.on_step(position)
        due = clock.every(task.checkpoint_seconds, "checkpoint")
        wish = (
            CheckpointAction.STOP
            if member.stop_requested()
            else CheckpointAction.SAVE
            if due
            else CheckpointAction.CONTINUE
        )
        wish = member.engine.agree(wish)
        if wish != CheckpointAction.CONTINUE:
            position.loss_sum += float(loss_sum)
            loss_sum.zero_()
            _save(member, position)
            if wish == CheckpointAction.STOP:
                member.checkpoints.wait()
                member.emit("interrupted", epoch=position.epoch, step=position.step)
                raise Interrupted
        if clock.every(PROGRESS_SECONDS, "progress"):
            speed = (position.images - trained_before) / clock.seconds
            _report_progress(member, position, images_per_second=speed, loss=float(loss))
    position.loss_sum += float(loss_sum)
    return (position.images - trained_before) / clock.seconds


def _step_seed(member: Member, position: checkpoint.Position) -> int:
    """Dropout and the like draw from torch's own generators: seeded by the position, so that a
    resumed step draws what it would have drawn."""
    task, rank = member.task, member.feed.rank
    return derive(task.seed, Stream.STEP, task.member, position.epoch, position.step, rank)


def _seed_generators(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def _over_replicas(member: Member, loss_sum: float) -> float:
    """The mean of what the replicas saw, each of its own images; the same on every rank.

    In an epoch that was resumed, the part before is the first replica's: it wrote the checkpoint.
    """
    data = member.engine.mesh.data
    mean = torch.tensor(loss_sum / data.size, dtype=torch.float64)
    if data.size > 1:
        dist.all_reduce(mean, group=data.group)
    return float(mean)


def _check_finite(epoch: int, loss_sum: float) -> None:
    if not math.isfinite(loss_sum):
        raise DivergedError(
            f"training diverged in epoch {epoch + 1}: the loss is {loss_sum}. "
            "Set a smaller train.base_learning_rate or a longer train.warmup_epochs."
        )


def _evaluate(member: Member, epoch: int) -> None:
    """Quality on the validation split; the last one's predictions are kept for the ensemble."""
    predictions = member.evaluator.validation()
    if predictions is None:
        return
    labels = member.evaluator.validation_labels()
    quality = member.workload.quality(predictions, labels)
    if epoch == member.task.hyperparameters.epochs and member.task.search is None:
        atomic.write_array(member.folder.validation, predictions)
    member.emit("quality", epoch=epoch, quality=quality, images=len(labels))


def _order(member: Member, epoch: int) -> NDArray[np.int64]:
    """The epoch's samples, cut to whole global batches so that each step has the same shape."""
    order = epoch_order(
        member.counts, seed=member.task.seed, member=member.task.member, epoch=epoch
    )
    return order[: member.task.steps_per_epoch * member.feed.global_batch_size]


def _learning_rate(task: Task, *, global_batch_size: int) -> Callable[[int], float]:
    hyper = task.hyperparameters
    peak = scaled_peak(
        hyper.base_learning_rate,
        global_batch_size=global_batch_size,
        reference_batch_size=hyper.reference_batch_size,
    )
    return planned(hyper, peak=peak, steps_per_epoch=task.steps_per_epoch)


def _save(member: Member, position: checkpoint.Position) -> None:
    member.checkpoints.save(
        member.folder.checkpoint,
        engine=member.engine,
        optimizer=member.optimizer,
        numerics=member.numerics,
        position=position,
    )


def _report_progress(
    member: Member,
    position: checkpoint.Position,
    *,
    images_per_second: float | None,
    loss: float | None,
) -> None:
    """A small file for the live view: overwritten, not logged, so that it costs nothing to keep."""
    if member.events is None:
        return
    told = Progress(
        epoch=position.epoch,
        epochs=member.task.hyperparameters.epochs,
        step=position.step,
        steps_per_epoch=member.task.steps_per_epoch,
        loss=loss if loss is not None and math.isfinite(loss) else None,
        images_per_second=images_per_second,
    )
    atomic.replace_json(member.folder.progress, schema.encode(told))


class _Clock:
    """Tells how long it has run, and when something periodic is due."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Since the clock was made."""
        return time.monotonic() - self._start

    def every(self, seconds: float, what: str) -> bool:
        """True once per `seconds`."""
        now = time.monotonic()
        if now - self._last.setdefault(what, self._start) < seconds:
            return False
        self._last[what] = now
        return True
