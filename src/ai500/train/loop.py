"""The training loop of one rank of one member, from the first batch to the target epochs.

Written once for every framework: it needs no torch, and a `Trainable` is a member of any of them.

Read top to bottom: warm up, restore, then for each epoch its steps, its evaluation, its checkpoint.
The timed window begins with the read of the first training batch and ends with the last evaluation
(V2 §5.3.2, [D14]). The loop yields step requests and is sent their losses, so that a driver can run
the steps of one member eagerly (`train`) or those of several members side by side [D11].
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic, events, schema
from ai500.core.errors import AI500Error
from ai500.core.randomness import Stream, derive
from ai500.data.bootstrap import Counts, epoch_order
from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.records import Progress, Task
from ai500.records.checkpoint_file import Damaged
from ai500.records.run_folder import MemberFolder
from ai500.records.step_times import StepTimes, summarize
from ai500.train.learning_rate import learning_rate_of, scaled_peak
from ai500.train.position import Position
from ai500.train.worker import Interrupted
from ai500.workloads.protocol import Workload

# Often enough for a live view, seldom enough to cost nothing beside steps of milliseconds.
PROGRESS_SECONDS = 1.0

Loss = Any
"""A framework's scalar, on its device: `float` waits for it."""


class DivergedError(AI500Error):
    """The training loss is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """The next step of a member, for the driver to run."""

    batch: Any
    """The feed's batch: stored samples and the draws of their augmentation."""
    learning_rate: float
    seed: int
    """Seed of the framework's own generators during this step."""


TrainingSteps = Generator[StepRequest, Loss | None, None]
"""Step requests; the driver sends back the mean loss of each, which the next step may overwrite."""


class BatchFeed(Protocol):
    """Batches of a rank."""

    @property
    def rank(self) -> int:
        """Rank on the data axis."""

    @property
    def global_batch_size(self) -> int:
        """Images of one optimizer step on all ranks."""

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Any]:
        """Yield the epoch's batches from `first_step` on."""


class LossSum(Protocol):
    """Sum of losses on the device: reading each loss would make the host wait for every step."""

    def add(self, loss: Loss, *, weight: int) -> None:
        """Add a loss times its weight."""

    def take(self) -> float:
        """Return the sum and set it to zero."""


class StepClock(Protocol):
    """Times from the end of a step to the end of the next; the host waits for no step."""

    def mark(self) -> None:
        """Mark the end of a step on the device."""

    def interrupt(self) -> None:
        """Leave the time to the next mark out: it is not of a step alone."""

    def take(self) -> list[float]:
        """Return the seconds of the steps since the last call, and begin anew."""


class ValidationEvaluator(Protocol):
    """Predictions on the validation split."""

    def validation(self) -> NDArray[Any] | None:
        """Predict the whole validation split; None on ranks other than 0."""

    def validation_targets(self) -> dict[str, NDArray[Any]]:
        """Return the targets of the validation split by name."""


class CheckpointWriter(Protocol):
    """Writer of checkpoints."""

    def save(self, path: Path, trained: Any, position: Position) -> None:
        """Gather the state of all ranks and start writing it on rank 0."""

    def wait(self) -> None:
        """Wait until the last file is written."""


class Trainable(Protocol):
    """A member as the loop sees it, whichever framework holds its model."""

    task: Task
    folder: MemberFolder
    workload: Workload
    counts: Counts
    """Repeat count of each training sample in the member's bootstrap."""

    @property
    def feed(self) -> BatchFeed:
        """Batches of this rank."""

    @property
    def evaluator(self) -> ValidationEvaluator:
        """Predictions on the validation split."""

    @property
    def checkpoints(self) -> CheckpointWriter:
        """Writer of the member's checkpoint."""

    @property
    def checkpoint_file(self) -> Path:
        """File of the member's checkpoint."""

    @property
    def validation_file(self) -> Path | None:
        """File for the last validation predictions; None: no ensemble aggregates them."""

    @property
    def reports_progress(self) -> bool:
        """True on the rank that writes the file of the live view."""

    @property
    def stop_requested(self) -> Callable[[], bool]:
        """Return whether this rank has to stop after the current step."""

    @property
    def on_ready(self) -> Callable[[], None]:
        """Hook called once, immediately before the first batch is read."""

    @property
    def on_step(self) -> Callable[[Position], None]:
        """Hook called after every step."""

    @property
    def on_epoch(self) -> Callable[[int], bool]:
        """Hook called with the number of finished epochs; True ends the training early."""

    def emit(self, event: str, **fields: object) -> None:
        """Emit an event of this member."""

    def warm_up(self) -> None:
        """Run a step and a prediction without learning: compilation is not timed."""

    def restore(self) -> Position | None:
        """Load the checkpoint; None: there is none."""

    def begin_epoch(self) -> None:
        """Put the model into training mode."""

    def step(self, request: StepRequest) -> Loss:
        """Train on a batch; return the mean loss over this rank's share."""

    def loss_sum(self) -> LossSum:
        """Return an empty sum of losses."""

    def step_clock(self) -> StepClock | None:
        """Return a clock of the device's steps; None: this framework does not time them."""

    def mean_over_replicas(self, value: float) -> float:
        """Average a value over the data-parallel replicas; the same result on every rank."""

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action on every rank that has to take part in it."""

    def optimizer_sha256(self) -> str:
        """Hash the optimizer's settings, without the rate."""


def train(member: Trainable) -> None:
    """Train to the target epochs, from the checkpoint where there is one."""
    position = prepare(member)
    member.on_ready()
    with contextlib.closing(training_steps(member, position)) as steps:
        request = advance(steps, None)
        while request is not None:
            request = advance(steps, member.step(request))


def advance(steps: TrainingSteps, loss: Loss | None) -> StepRequest | None:
    """Send the last step's loss; return the next request, or None when training has ended."""
    try:
        return steps.send(loss)
    except StopIteration:
        return None


def prepare(member: Trainable) -> Position:
    """Warm up and restore, before the timed window; return the position to train from.

    Warm-up reads no sample and leaves weights, running statistics, optimizer state and random
    streams as they were [D18].
    """
    # Before the restore: warm-up changes buffers, and fixes DDP's buckets, hence the order in
    # which gradients are summed. A resumed member has to sum them as it did before.
    member.warm_up()
    position = member.restore()
    if position is None:
        return Position(seed=member.task.seed)
    member.emit("resumed", epoch=position.epoch, step=position.step)
    return position


def report_damaged(member: Trainable, damaged: Damaged) -> None:
    """Report a checkpoint that is not used, in the member's log and its events."""
    print(
        f"warning: {damaged.path} is damaged: {damaged.reason}. Continuing from the checkpoint "
        "before it, or from the start.",
        file=sys.stderr,
    )
    member.emit("checkpoint_damaged", **damaged.as_event())


def has_logged(member: Trainable, epochs: int) -> bool:
    """Return True if the member's log has its first batch and each of its first epochs.

    A member that went on without them could not be scored: it begins again.
    """
    logged = list(events.read_checked(member.folder.events))
    epochs_logged = {event["epoch"] for event in logged if event["event"] == "epoch"}
    begun = any(event["event"] == "first_batch" for event in logged)
    if begun and epochs_logged.issuperset(range(1, epochs + 1)):
        return True
    print(
        f"warning: {member.folder.events} has lost events of the epochs before the checkpoint; "
        "training begins from the start.",
        file=sys.stderr,
    )
    member.emit("checkpoint_without_events", epoch=epochs)
    return False


def training_steps(member: Trainable, position: Position) -> TrainingSteps:
    """Yield the requests of all remaining steps; on exit the last checkpoint is on disk."""
    # In `finally`, because a driver may close the generator, and a step may raise.
    try:
        yield from _train_epochs(member, position)
    finally:
        member.checkpoints.wait()


def _train_epochs(member: Trainable, position: Position) -> TrainingSteps:
    task, hyper = member.task, member.task.hyperparameters
    peak = scaled_peak(hyper, global_batch_size=member.feed.global_batch_size)
    rate = learning_rate_of(hyper, peak=peak, steps_per_epoch=task.steps_per_epoch)
    if position.epoch == hyper.epochs:
        _evaluate_again(member)
    while position.epoch < hyper.epochs:
        samples_per_second, step_times = yield from _train_epoch(member, position, rate)
        # In a resumed epoch the part before the checkpoint is replica 0's, which wrote it.
        loss_sum = member.mean_over_replicas(position.loss_sum)
        # Once per epoch, because reading a loss makes the host wait for the accelerator.
        _check_finite(position.epoch, loss_sum)
        finished = position.epoch + 1
        member.emit(
            "epoch",
            epoch=finished,
            samples=position.samples,
            steps=position.step,
            loss=loss_sum / position.samples,
            learning_rate=rate(finished * task.steps_per_epoch - 1),
            optimizer_sha256=member.optimizer_sha256(),
            step_times=schema.encode(step_times),
        )
        if finished % hyper.evaluate_every_epochs == 0 or finished == hyper.epochs:
            _evaluate(member, finished)
        if finished == hyper.epochs:
            # The timed window ends here: the last checkpoint and the record are not timed.
            member.emit("end", epoch=finished)
        # A new position: step, samples and loss are sums over an epoch.
        position = Position(seed=task.seed, epoch=finished)
        member.checkpoints.save(member.checkpoint_file, member, position)
        _report_progress(member, position, samples_per_second=samples_per_second, loss=None)
        if member.on_epoch(finished):
            return


def _train_epoch(
    member: Trainable, position: Position, rate: Callable[[int], float]
) -> Generator[StepRequest, Loss | None, tuple[float, StepTimes | None]]:
    """Yield the rest of an epoch's steps, moving `position`.

    Return samples per second and the step times; None: they were not measured.
    """
    task = member.task
    order = _epoch_order(member, position.epoch)
    member.begin_epoch()
    if position.epoch == 0 and position.step == 0:
        # The timed window begins here, before the first sample is read.
        member.emit("first_batch", optimizer_sha256=member.optimizer_sha256())
    losses, step_clock = member.loss_sum(), member.step_clock()
    clock, samples_before = _Clock(), position.samples
    global_batch = member.feed.global_batch_size
    for batch in member.feed.epoch(position.epoch, order, first_step=position.step):
        learning_rate = rate(position.epoch * task.steps_per_epoch + position.step)
        loss = yield StepRequest(batch, learning_rate, _step_seed(member, position))
        assert loss is not None
        losses.add(loss, weight=global_batch)
        if step_clock is not None:
            step_clock.mark()
        position.step += 1
        position.samples += global_batch
        member.on_step(position)

        # Rank 0 decides; engines whose ranks all hold state broadcast its decision.
        action = CheckpointAction.CONTINUE
        if clock.due("checkpoint", seconds=task.checkpoint_seconds):
            action = CheckpointAction.SAVE
        if member.stop_requested():
            action = CheckpointAction.STOP
        action = member.agree(action)
        if action != CheckpointAction.CONTINUE:
            position.loss_sum += losses.take()
            member.checkpoints.save(member.checkpoint_file, member, position)
            if step_clock is not None:
                step_clock.interrupt()
        if action == CheckpointAction.STOP:
            member.checkpoints.wait()
            member.emit("interrupted", epoch=position.epoch, step=position.step)
            raise Interrupted
        if clock.due("progress", seconds=PROGRESS_SECONDS):
            speed = (position.samples - samples_before) / clock.seconds
            _report_progress(member, position, samples_per_second=speed, loss=float(loss))
    position.loss_sum += losses.take()
    speed = (position.samples - samples_before) / clock.seconds
    # After the losses, for which the host waits: the marks of all steps have been reached.
    return speed, None if step_clock is None else summarize(step_clock.take())


def _epoch_order(member: Trainable, epoch: int) -> NDArray[np.int64]:
    """Shuffle the epoch's samples, cut to whole global batches: every step has the same shape."""
    order = epoch_order(
        member.counts, seed=member.task.seed, member=member.task.member, epoch=epoch
    )
    return order[: member.task.steps_per_epoch * member.feed.global_batch_size]


def _step_seed(member: Trainable, position: Position) -> int:
    """Derive the seed of a step from its position: a resumed step draws the same numbers."""
    task, rank = member.task, member.feed.rank
    return derive(task.seed, Stream.STEP, task.member, position.epoch, position.step, rank)


def _check_finite(epoch: int, loss_sum: float) -> None:
    if not math.isfinite(loss_sum):
        raise DivergedError(
            f"training diverged in epoch {epoch + 1}: the loss is {loss_sum}. "
            "Set a smaller train.base_learning_rate or a longer train.warmup_epochs."
        )


def _evaluate(member: Trainable, epoch: int) -> None:
    """Measure quality on the validation split; keep the last predictions for the ensemble."""
    predictions = member.evaluator.validation()
    if predictions is None:
        return
    quality = member.workload.quality(predictions, member.evaluator.validation_targets())
    if epoch == member.task.hyperparameters.epochs and member.validation_file is not None:
        atomic.write_array(member.validation_file, predictions)
    member.emit("quality", epoch=epoch, quality=quality, samples=len(predictions))


def _evaluate_again(member: Trainable) -> None:
    """Predict the validation split again with the final weights, untimed.

    A member that resumes here has no record yet: a crash, or its user, removed it, and the
    predictions may be damaged.
    """
    predictions = member.evaluator.validation()
    if predictions is None or member.validation_file is None:
        return
    atomic.write_array(member.validation_file, predictions)
    quality = member.workload.quality(predictions, member.evaluator.validation_targets())
    logged = [e["quality"] for e in events.read(member.folder.events) if e["event"] == "quality"]
    if logged[-1:] != [quality]:  # kernels of another machine may round otherwise
        epochs = member.task.hyperparameters.epochs
        member.emit("quality", epoch=epochs, quality=quality, samples=len(predictions))


def _report_progress(
    member: Trainable,
    position: Position,
    *,
    samples_per_second: float | None,
    loss: float | None,
) -> None:
    """Replace the small file that the live view reads; progress is not logged."""
    if not member.reports_progress:
        return
    progress = Progress(
        epoch=position.epoch,
        epochs=member.task.hyperparameters.epochs,
        step=position.step,
        steps_per_epoch=member.task.steps_per_epoch,
        loss=loss if loss is not None and math.isfinite(loss) else None,
        samples_per_second=samples_per_second,
    )
    atomic.replace_json(member.folder.progress, schema.encode(progress))


class _Clock:
    """Seconds since its creation, and periodic timers."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the clock was created."""
        return time.monotonic() - self._start

    def due(self, timer: str, *, seconds: float) -> bool:
        """Return True once per `seconds`."""
        now = time.monotonic()
        if now - self._last.setdefault(timer, self._start) < seconds:
            return False
        self._last[timer] = now
        return True
