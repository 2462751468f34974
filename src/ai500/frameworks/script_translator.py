"""A script's events as events of the member: in order, within its task, with its progress."""

from __future__ import annotations

import math
import time
from pathlib import Path

from ai500.core import atomic, events, schema
from ai500.frameworks.script_events import ScriptEvent
from ai500.records import Progress, Task
from ai500.records.run_folder import MemberFolder


class Translator:
    """A script's events as events of the member, in order and within its task."""

    def __init__(self, task: Task, log: events.EventLog, *, drawn: int) -> None:
        self._task = task
        self._log = log
        self._drawn = drawn
        self._folder = MemberFolder(Path(task.folder))
        self._earlier = {
            event["epoch"]
            for event in events.read(self._folder.events)
            if event["event"] == "epoch"
        }
        self._since = 0.0
        self.started = False
        self.ended = False
        self.epoch = 0

    def take(self, event: ScriptEvent) -> None:
        """Log an event of the script; raise SchemaError where it does not fit the task."""
        if event.event in ("first_batch", "resumed"):
            self._begin(event)
            return
        if not self.started or self.ended:
            when = "after the end" if self.ended else "before first_batch (MLPerf: run_start)"
            raise schema.SchemaError("event", f"{event.event!r} {when}", event.event)
        epochs = self._task.hyperparameters.epochs
        if event.event == "end":
            self.ended = True
            self._log.emit("end", epoch=epochs)
            return
        assert event.epoch is not None
        if not 1 <= event.epoch <= epochs:
            raise schema.SchemaError("epoch", f"{event.epoch} is not 1 to {epochs}", event.epoch)
        if event.event == "quality":
            samples = event.samples or self._task.definition.validation_samples
            self._log.emit("quality", epoch=event.epoch, quality=event.quality, samples=samples)
        else:
            self._epoch(event, event.epoch)

    def interrupted(self) -> None:
        """Log that the script stopped with a checkpoint."""
        self._log.emit("interrupted", epoch=self.epoch, step=0)

    def _begin(self, event: ScriptEvent) -> None:
        if self.started:
            raise schema.SchemaError("event", f"{event.event!r} twice", event.event)
        self.started, self._since = True, time.monotonic()
        if not self._earlier:
            self._log.emit("first_batch")
            return
        self.epoch = max(self._earlier) if event.epoch is None else event.epoch
        self._log.emit("resumed", epoch=self.epoch, step=0)

    def _epoch(self, event: ScriptEvent, epoch: int) -> None:
        """Log an epoch; by default it was one pass over the bootstrap in batches of the task."""
        samples = event.samples or self._drawn
        batch = self._task.hyperparameters.batch_size * self._task.parallel_degree
        steps = event.steps or math.ceil(samples / batch)
        self.epoch = epoch
        self._log.emit("epoch", epoch=epoch, samples=samples, steps=steps, loss=event.loss)
        now = time.monotonic()
        progress = Progress(
            epoch=epoch,
            epochs=self._task.hyperparameters.epochs,
            step=0,
            steps_per_epoch=steps,
            loss=event.loss,
            samples_per_second=samples / max(now - self._since, 1e-9),
        )
        self._since = now
        atomic.replace_json(self._folder.progress, schema.encode(progress))
