"""Live view of the members: their events copied to the run's log, their progress shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ai500.core import events, schema
from ai500.core.errors import InputError
from ai500.core.reading import read_json
from ai500.jobs.schedulers import PREPARING
from ai500.records import JobState, Progress
from ai500.records.run_folder import MemberFolder, RunFolder, TrialFolder, known_member

SUSPENDED = ("SUSPENDED", "STOPPED")
"""Slurm's words for a running job whose processes are stopped."""
MAX_MEMBERS_PER_POLL = 256
"""Members whose files are read in one poll; those of a larger ensemble take turns."""
END_POLL_SECONDS = 0.2


@dataclass
class MemberView:
    """State and progress of a member."""

    member: int
    state: JobState = "pending"
    attempt: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps_per_epoch: int = 0
    loss: float | None = None
    quality: float | None = None
    samples_per_second: float | None = None
    sample_noun: str = "sample"
    """Word for a sample of the workload."""
    reason: str | None = None
    """Reason why it is pending, in the scheduler's words, or why it failed."""
    launched: float | None = None
    """Wall-clock time at which the controller saw this attempt's job run."""
    started: float | None = None
    """Wall-clock time at which `started_attempt` began to train."""
    started_attempt: int = 0
    epochs_at_start: float = 0.0
    """Epochs that were done then."""
    details: object | None = None
    """View of a program whose members do more than train epochs, such as a search's rounds."""
    deadline: float | None = None
    """Wall-clock time at which this attempt's time is up; None: it trains a number of epochs."""

    @property
    def shown_state(self) -> str:
        """State for a person: a running job may be suspended, or wait for its slots."""
        if self.is_preparing:
            return "preparing"
        return "suspended" if self.state == "running" and self.reason in SUSPENDED else self.state

    @property
    def is_preparing(self) -> bool:
        """True while the job runs beside the one whose slots its member will train on."""
        has_begun = self.started is not None and self.started_attempt >= self.attempt
        return self.state == "running" and self.reason == PREPARING and not has_begun

    @property
    def epochs_done(self) -> float:
        """Epochs done, with the fraction of the epoch in progress."""
        return self.epoch + (self.step / self.steps_per_epoch if self.steps_per_epoch else 0.0)

    @property
    def preparation_seconds(self) -> float | None:
        """Seconds from the launch of this attempt to its first batch; None: not known."""
        if self.launched is None or self.started is None or self.started_attempt < self.attempt:
            return None
        return max(0.0, self.started - self.launched)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, else at the pace since this attempt began; None: unknown."""
        if self.state != "running" or self.started is None or self.started_attempt < self.attempt:
            return None  # no pace: the time between two attempts was no training
        if self.deadline is not None:
            return max(0.0, self.deadline - time.time())
        if self.details is not None:
            return None  # its epochs are those of the present model
        trained = self.epochs_done - self.epochs_at_start
        if trained <= 0 or not self.epochs:
            return None
        return (self.epochs - self.epochs_done) * (time.time() - self.started) / trained


def seconds_to_completion(views: Sequence[MemberView]) -> float | None:
    """Estimate when all members are done, later waves included, at the present pace.

    Return None while a running member has no pace yet, or while pending ones wait in a queue.
    """
    preparing = [view for view in views if view.is_preparing]
    running = [view for view in views if view.state == "running" and not view.is_preparing]
    pending = [view for view in views if view.state == "pending"]
    left = [seconds for view in running if (seconds := view.seconds_left) is not None]
    if not running or len(left) < len(running) or any(view.reason for view in pending):
        return None
    waiting = [*preparing, *pending]
    if not waiting:
        return max(left)
    epochs = [view.epochs - view.epochs_done for view in running]
    # A member that evaluates after its last epoch has no pace; its place goes to a waiting one.
    pace = sum(count / seconds for count, seconds in zip(epochs, left, strict=True) if seconds > 0)
    if not pace:
        return None
    later = sum(running[0].epochs - view.epochs_done for view in waiting)
    return (sum(epochs) + later) / pace


@dataclass(frozen=True)
class TrialProgress:
    """Progress of a trial and its estimated end; every view shows this estimate."""

    fraction: float
    """Share of the trial's work that is done, from 0 to 1."""
    elapsed_seconds: float | None
    """Time since the first member began; None: none has."""
    seconds_left: float | None
    """Estimate; None: no pace is known yet."""


def trial_progress(views: Sequence[MemberView], *, epochs: int) -> TrialProgress:
    """Estimate the progress of a trial whose members train so many epochs, or until a deadline."""
    began = [view.started for view in views if view.started is not None]
    elapsed = max(0.0, time.time() - min(began)) if began else None
    left = seconds_to_completion(views)
    if any(view.details is not None for view in views):  # a search ends at its deadline
        known = elapsed is not None and left is not None and elapsed + left > 0
        fraction = elapsed / (elapsed + left) if known else 0.0  # type: ignore[operator]
    else:
        done = sum(epochs if view.state == "done" else view.epochs_done for view in views)
        fraction = done / (epochs * len(views)) if views and epochs else 0.0
    return TrialProgress(min(1.0, fraction), elapsed, left)


DetailsReader = Callable[[], Mapping[int, object]]
"""Reads the program's own views of a trial's members, by member."""


class Collector:
    """Copier of the members' events to the run's log, each once, and to the live view."""

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
        self._ended: set[int] = set()
        self._turn = 0
        self._read_details = read_details
        self._number = trial

    @cached_property
    def _taken(self) -> dict[int, int]:
        """Last event of each member that an earlier collector copied; a view alone needs none."""
        taken = dict.fromkeys(self._members, 0)
        for event in events.read_checked(self._run.events):
            if event.get("trial") == self._number and "member_sequence" in event:
                member = known_member(event.get("member"), self._members, path=self._run.events)
                taken[member] = max(taken[member], event["member_sequence"])
        return taken

    def collect(self, views: Mapping[int, MemberView], members: Iterable[int]) -> bool:
        """Copy new events to the log and the views. Return True if there were any."""
        new: list[events.Event] = []
        for member in members:
            for event in self._follower(member).new():
                show(views[member], event)
                if event["event"] == "end":
                    self._ended.add(member)
                if event["sequence"] > self._taken[member]:
                    self._taken[member] = event["sequence"]
                    new.append({**event, "member_sequence": event["sequence"]})
            show_progress(views[member], self._trial.member(member))
        self._show_details(views)
        if new:
            events.append(self._run.events, new)
        return bool(new)

    def await_ends(
        self, views: Mapping[int, MemberView], members: Iterable[int], *, seconds: float
    ) -> None:
        """Collect until these members' logs show their end, or the time is over.

        On a shared file system a log may grow later than the record beside it appears.
        """
        deadline = time.monotonic() + seconds
        while late := [member for member in members if member not in self._ended]:
            self.collect(views, late)
            if self._ended.issuperset(late) or time.monotonic() > deadline:
                return
            time.sleep(END_POLL_SECONDS)

    def in_turn(self, members: Sequence[int]) -> Sequence[int]:
        """Return the next members to poll: a poll's cost does not grow with the ensemble."""
        if len(members) <= MAX_MEMBERS_PER_POLL:
            return members
        first = self._turn % len(members)
        self._turn = first + MAX_MEMBERS_PER_POLL
        return [*members, *members][first : first + MAX_MEMBERS_PER_POLL]

    def _follower(self, member: int) -> events.Follower:
        if member not in self._followers:
            self._followers[member] = events.Follower(self._trial.member(member).events)
        return self._followers[member]

    def show_all(self, views: Mapping[int, MemberView]) -> None:
        """Read all events of the members into the views; write nothing."""
        for member in self._members:
            folder = self._trial.member(member)
            for event in events.read_checked(folder.events):
                show(views[member], event)
            show_progress(views[member], folder)
        self._show_details(views)

    def _show_details(self, views: Mapping[int, MemberView]) -> None:
        for member, details in self._read_details().items():
            if member in views:
                views[member].details = details


def show(view: MemberView, event: events.Event) -> None:
    """Update a view by an event."""
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
        view.epoch, view.step, view.loss = event["epoch"], 0, event.get("loss")
    elif kind == "quality":
        view.quality = event["quality"]
    elif kind == "end" and "epoch" in event:
        view.epoch = view.epochs = event["epoch"]


def show_progress(view: MemberView, folder: MemberFolder) -> None:
    """Update a view by the worker's last progress file."""
    try:
        progress = schema.decode(Progress, read_json(folder.progress))
    except (OSError, InputError):
        return
    view.epoch, view.epochs = progress.epoch, progress.epochs
    view.step, view.steps_per_epoch = progress.step, progress.steps_per_epoch
    view.loss = view.loss if progress.loss is None else progress.loss
    if progress.samples_per_second is not None:
        view.samples_per_second = progress.samples_per_second
