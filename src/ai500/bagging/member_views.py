"""The members as a person follows them: their events taken over, their progress shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ai500.core import events, schema
from ai500.records import JobState, Progress
from ai500.records.run_folder import MemberFolder, RunFolder, TrialFolder

LOOKS_AT_ONCE = 256
"""So many members' files are opened in one look; a larger ensemble takes turns."""


@dataclass
class MemberView:
    """A member as the live view shows it."""

    member: int
    state: JobState = "pending"
    attempt: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps_per_epoch: int = 0
    loss: float | None = None
    quality: float | None = None
    images_per_second: float | None = None
    reason: str | None = None
    """Why it waits, in the scheduler's words."""
    started: float | None = None
    """When an attempt began to train, which one, and how many epochs were done then."""
    started_attempt: int = 0
    epochs_at_start: float = 0.0
    details: object | None = None
    """View of a program whose members do more than train epochs, such as a search's rounds."""
    deadline: float | None = None
    """Wall-clock time at which this attempt's time is up; None: it trains a number of epochs."""

    @property
    def epochs_done(self) -> float:
        """With the part of the epoch in progress."""
        return self.epoch + (self.step / self.steps_per_epoch if self.steps_per_epoch else 0.0)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, else at the pace since this attempt began; None: unknown."""
        if self.state != "running" or self.started is None or self.started_attempt < self.attempt:
            return None  # the time between two attempts was no training
        if self.deadline is not None:
            return max(0.0, self.deadline - time.time())
        if self.details is not None:
            return None  # its epochs are those of the present model
        trained = self.epochs_done - self.epochs_at_start
        if trained <= 0 or not self.epochs:
            return None
        return (self.epochs - self.epochs_done) * (time.time() - self.started) / trained


def seconds_to_the_end(views: Sequence[MemberView]) -> float | None:
    """Until all members are done, later waves too, at the pace of those that train now.

    None while one of them has no pace yet, or a cluster's queue decides when the others begin.
    """
    running = [view for view in views if view.state == "running"]
    waiting = [view for view in views if view.state == "pending"]
    left = [seconds for view in running if (seconds := view.seconds_left) is not None]
    if not running or len(left) < len(running) or any(view.reason for view in waiting):
        return None
    if not waiting or min(left) <= 0:
        return None if waiting else max(left)
    epochs = [view.epochs - view.epochs_done for view in running]
    pace = sum(some / seconds for some, seconds in zip(epochs, left, strict=True))
    later = sum(running[0].epochs - view.epochs_done for view in waiting)
    return (sum(epochs) + later) / pace


DetailsReader = Callable[[], Mapping[int, object]]
"""Reads the program's own views of a trial's members, by member."""


class Collector:
    """Takes the members' events over into the run's log, each once."""

    def __init__(
        self,
        run: RunFolder,
        *,
        trial: int,
        members: Sequence[int],
        read_details: DetailsReader = dict,
    ) -> None:
        self._run = run
        self._trial: TrialFolder = run.trial(trial)
        self._members = members
        self._followers: dict[int, events.Follower] = {}
        self._turn = 0
        self._read_details = read_details
        self._taken = dict.fromkeys(members, 0)
        for event in events.read(run.events):
            if event.get("trial") == trial and "member_sequence" in event:
                member = event["member"]
                self._taken[member] = max(self._taken[member], event["member_sequence"])

    def collect(self, views: Mapping[int, MemberView], members: Iterable[int]) -> bool:
        """New events of these members into the log and the views; whether there were any."""
        fresh: list[events.Event] = []
        for member in members:
            for event in self._follower(member).new():
                show(views[member], event)
                if event["sequence"] > self._taken[member]:
                    self._taken[member] = event["sequence"]
                    fresh.append({**event, "member_sequence": event["sequence"]})
            show_progress(views[member], self._trial.member(member))
        self._show_details(views)
        if fresh:
            events.append(self._run.events, fresh)
        return bool(fresh)

    def in_turn(self, members: Sequence[int]) -> Sequence[int]:
        """Of a large ensemble the next few: a look costs the same however many there are."""
        if len(members) <= LOOKS_AT_ONCE:
            return members
        first = self._turn % len(members)
        self._turn = first + LOOKS_AT_ONCE
        return [*members, *members][first : first + LOOKS_AT_ONCE]

    def _follower(self, member: int) -> events.Follower:
        if member not in self._followers:
            self._followers[member] = events.Follower(self._trial.member(member).events)
        return self._followers[member]

    def show_all(self, views: Mapping[int, MemberView]) -> None:
        """Everything the members told so far into the views; nothing is written."""
        for member in self._members:
            folder = self._trial.member(member)
            for event in events.read(folder.events):
                show(views[member], event)
            show_progress(views[member], folder)
        self._show_details(views)

    def _show_details(self, views: Mapping[int, MemberView]) -> None:
        for member, details in self._read_details().items():
            if member in views:
                views[member].details = details


def show(view: MemberView, event: events.Event) -> None:
    """An event's part in the live view."""
    kind = event["event"]
    view.attempt = max(view.attempt, event.get("attempt", 0))
    if kind in ("first_batch", "resumed"):
        view.started, view.started_attempt = event["wall"], event.get("attempt", 0)
        if "search_seconds" in event:
            view.deadline = event["wall"] + event["search_seconds"]
        view.epochs_at_start = event.get("epoch", 0) + (
            event.get("step", 0) / view.steps_per_epoch if view.steps_per_epoch else 0.0
        )
    elif kind in ("interrupted", "start"):
        view.deadline = None  # the time between two attempts does not count
    elif kind == "epoch":
        view.epoch, view.step, view.loss = event["epoch"], 0, event["loss"]
    elif kind == "quality":
        view.quality = event["quality"]


def show_progress(view: MemberView, folder: MemberFolder) -> None:
    """The worker's own last word on where it is."""
    try:
        told = schema.decode(Progress, json.loads(folder.progress.read_text(encoding="utf-8")))
    except (OSError, ValueError, schema.SchemaError):
        return
    view.epoch, view.epochs = told.epoch, told.epochs
    view.step, view.steps_per_epoch = told.step, told.steps_per_epoch
    view.loss = view.loss if told.loss is None else told.loss
    if told.images_per_second is not None:
        view.images_per_second = told.images_per_second
