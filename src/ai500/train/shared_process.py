"""Members that share an accelerator, trained by one process that takes their steps in turn [D11].

Each is trained, evaluated, saved and recorded as if it were alone: only who takes its steps
differs. On a GPU a step is a recorded graph on a stream of the member's own, or one graph with the
weights of all; on other devices the steps run one after another as they are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from ai500.core.errors import AI500Error, EnvironmentLacksError, JobError
from ai500.inventory.node import record_after, record_before
from ai500.meters.recorder import Recorder, recorder_of
from ai500.records import Task
from ai500.train.barrier import TrialBarrier
from ai500.train.checkpoint import Position
from ai500.train.device_feed import fits, hold, resident
from ai500.train.loop import Member, Training, Wanted, prepare, train
from ai500.train.member import description, finish, lock_member, member_from_task
from ai500.train.step_strategies import Number, Way, choose
from ai500.train.worker import Interrupted, Rank, StopRequest

Result = TypeVar("Result")


@dataclass
class Group:
    """The members of this process, and what became of each."""

    members: list[Member]
    training: dict[Number, Training] = field(default_factory=dict)
    trained: list[Number] = field(default_factory=list)
    interrupted: list[Number] = field(default_factory=list)
    failed: dict[Number, AI500Error] = field(default_factory=dict)

    def begin(self, positions: Mapping[Number, Position]) -> None:
        """From where each stands."""
        for number, position in positions.items():
            self.training[number] = train(self.members[number], position)

    def run(self, way: Way) -> None:
        """Until each has ended, one way or another."""
        wanted = self.first(way)
        while wanted:
            wanted = self.then(way.take(wanted), way)

    def first(self, way: Way) -> dict[Number, Wanted]:
        """The members' first steps."""
        return self.then(dict.fromkeys(self.training), way)

    def then(self, losses: Mapping[Number, Tensor | None], way: Way) -> dict[Number, Wanted]:
        """The steps after those with these losses, of members that have not ended."""
        wanted: dict[Number, Wanted] = {}
        for number, loss in losses.items():
            with way.beside(number):
                found = self._next(number, loss)
            if found is not None:
                wanted[number] = found
        return wanted

    def _next(self, number: Number, loss: Tensor | None) -> Wanted | None:
        """The member's next step; None: it has ended. What ends one does not end the others."""
        try:
            while isinstance(found := self.training[number].send(loss), int):
                loss = None
            return found
        except StopIteration:
            self.trained.append(number)
        except Interrupted:
            self.interrupted.append(number)
        except AI500Error as error:
            self.failed[number] = error
        return None


def run_together(
    tasks: Sequence[Task],
    *,
    rank: Rank,
    device: str | torch.device,
    threads: int | None,
    stop: StopRequest,
) -> None:
    """Train all these members, and leave a record for each that came to its end."""
    device = torch.device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
    # A recorder each, as if they were alone: the first to get the node's lock samples for all.
    meters = [recorder_of(task, local_rank=0) for task in tasks]
    try:
        held = [lock_member(task) for task in tasks]
        for recorder in meters:
            recorder.start()
        group = Group(
            [member_from_task(task, rank=rank, device=device, stop=stop) for task in tasks]
        )
        group.begin(_prepared(group))
        feed_from_device(group.members)
        way = _chosen(group)
        record_before(description(tasks[0]))
        barrier = TrialBarrier(tasks[0], rank, told_by_all(group.members))
        barrier.begin()
        _mark(meters)
        group.run(way)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)  # what follows is not on the members' streams
        _mark(meters)
        if group.trained:  # one that was asked to stop has no time for this
            barrier.end()
            record_after(description(tasks[0]))
        for number in group.trained:
            _attempted(group, number, finish)
        del held  # until here nobody else trains these members
    finally:
        for recorder in meters:
            recorder.close()
    _tell_ends(group)


def _mark(meters: Sequence[Recorder]) -> None:
    for recorder in meters:
        recorder.mark()


def _prepared(group: Group) -> dict[Number, Position]:
    """Where each stands; one whose checkpoint is spoilt does not stop the others."""
    found = {}
    for number in range(len(group.members)):
        position = _attempted(group, number, prepare)
        if position is not None:
            found[number] = position
    return found


def _attempted(group: Group, number: Number, action: Callable[[Member], Result]) -> Result | None:
    try:
        return action(group.members[number])
    except AI500Error as error:
        group.failed[number] = error
        return None


def feed_from_device(members: Sequence[Member]) -> bool:
    """Let the members read from samples that stay on a GPU, if they fit there."""
    device, samples = members[0].feed.device, members[0].feed.samples
    if device.type != "cuda":
        return False
    counts = [member.counts for member in members]
    if not fits(samples, counts, device=device):
        return False
    once = functools.cache(functools.partial(hold, samples, counts, device=device))
    for member in members:
        member.feed = resident(member.feed, once)
    return True


def _chosen(group: Group) -> Way:
    """The fastest way on this device, told in every member's events."""
    members = {number: group.members[number] for number in group.training}
    try:
        choice = choose(members)
    except torch.OutOfMemoryError as error:
        raise EnvironmentLacksError(
            f"{len(members)} members don't fit on the accelerator together. Set a smaller "
            "ensemble.members_per_accelerator, or a smaller train.batch_size."
        ) from error
    told = {
        "members": [member.task.member for member in group.members],
        "strategy": choice.way.name,
        "milliseconds": choice.milliseconds,
        "not_tried": choice.not_tried,
    }
    told_by_all(group.members)("shared_process", **told)
    return choice.way


def told_by_all(members: Sequence[Member]) -> Callable[..., None]:
    """What concerns the process is an event of each of its members."""

    def emit(event: str, **fields: object) -> None:
        for member in members:
            member.emit(event, **fields)

    return emit


def _tell_ends(group: Group) -> None:
    """What went wrong with a member is in its own log; how the process ends depends on all."""
    for number, error in group.failed.items():
        member = group.members[number]
        if number == 0:
            print(f"error: {error}", file=sys.stderr)
            continue
        print(f"member {member.task.member} failed: {error}", file=sys.stderr)
        with member.folder.log.open("a", encoding="utf-8") as log:
            log.write(f"error: {error}\n")
    if group.failed:
        names = ", ".join(str(group.members[number].task.member) for number in group.failed)
        raise JobError(f"of the members that share this process {names} failed.")
    if group.interrupted:
        raise Interrupted
