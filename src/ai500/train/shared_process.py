"""Members that share an accelerator, trained by one process that interleaves their steps [D11].

Each member is trained, evaluated, saved and recorded as if it had a process of its own; only the
driver of its steps differs. On a GPU a step is a captured graph on the member's stream; on other
devices steps run eagerly, one member after another.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from ai500.core.errors import AI500Error, EnvironmentLacksError, JobError
from ai500.inventory.node import record_after, record_before
from ai500.records import Task
from ai500.train.device_feed import ResidentFeed, fits, load
from ai500.train.loop import StepRequest, TrainingSteps, advance, prepare, training_steps
from ai500.train.member import Member, member_from_task
from ai500.train.member_process import finish, worker_context
from ai500.train.position import Position
from ai500.train.step_strategies import MemberIndex, StepStrategy, choose
from ai500.train.timed_window import TrialBarrier, node_description
from ai500.train.worker import Interrupted, Rank, StopRequest

Result = TypeVar("Result")


@dataclass
class MemberGroup:
    """The members of this process, and how the training of each ended."""

    members: list[Member]
    steps: dict[MemberIndex, TrainingSteps] = field(default_factory=dict)
    trained: list[MemberIndex] = field(default_factory=list)
    interrupted: list[MemberIndex] = field(default_factory=list)
    failed: dict[MemberIndex, AI500Error] = field(default_factory=dict)

    def start(self, positions: Mapping[MemberIndex, Position]) -> None:
        """Start the training loop of each member at its position."""
        for index, position in positions.items():
            self.steps[index] = training_steps(self.members[index], position)

    def run(self, strategy: StepStrategy) -> None:
        """Train until every member has ended."""
        requests = self.first_requests(strategy)
        while requests:
            requests = self.next_requests(strategy.step(requests), strategy)

    def first_requests(self, strategy: StepStrategy) -> dict[MemberIndex, StepRequest]:
        """Return the first step request of each member."""
        return self.next_requests(dict.fromkeys(self.steps), strategy)

    def next_requests(
        self, losses: Mapping[MemberIndex, Tensor | None], strategy: StepStrategy
    ) -> dict[MemberIndex, StepRequest]:
        """Send these losses; return the next request of each member that has not ended."""
        requests: dict[MemberIndex, StepRequest] = {}
        for index, loss in losses.items():
            with strategy.context(index):
                request = self._advance(index, loss)
            if request is not None:
                requests[index] = request
        return requests

    def _advance(self, index: MemberIndex, loss: Tensor | None) -> StepRequest | None:
        """Return a member's next request, or None when it has ended. The others continue."""
        try:
            request = advance(self.steps[index], loss)
        except Interrupted:
            self.interrupted.append(index)
            return None
        except AI500Error as error:
            self.failed[index] = error
            return None
        if request is None:
            self.trained.append(index)
        return request

    def attempt(self, index: MemberIndex, action: Callable[[Member], Result]) -> Result | None:
        """Apply `action` to a member; an error fails this member alone."""
        try:
            return action(self.members[index])
        except AI500Error as error:
            self.failed[index] = error
            return None

    def emit(self, event: str, **fields: object) -> None:
        """Emit an event of the process into the log of each of its members."""
        for member in self.members:
            member.emit(event, **fields)


def run(
    tasks: Sequence[Task],
    *,
    rank: Rank,
    device: str | torch.device,
    threads: int | None,
    stop: StopRequest,
) -> None:
    """Train these members, and write a record for each that reached its target epochs."""
    device = torch.device(device)
    with contextlib.ExitStack() as contexts:
        # A recorder per member, as in processes of their own: the one that gets the node's lock
        # samples for all.
        meters = [
            contexts.enter_context(worker_context(task, rank=rank, device=device, threads=threads))
            for task in tasks
        ]
        group = MemberGroup(
            [member_from_task(task, rank=rank, device=device, stop=stop) for task in tasks]
        )
        group.start(_prepare(group))
        feed_from_device(group.members)
        strategy = _choose_strategy(group)
        # A description of each member: a process that is killed may resume without the first one.
        record_before(*map(node_description, tasks))
        barrier = TrialBarrier(tasks[0], rank, group.emit)
        barrier.begin()
        for recorder in meters:
            recorder.mark()
        group.run(strategy)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)  # what follows is not on the members' streams
        for recorder in meters:
            recorder.mark()
        if group.trained:  # a process that has to stop has no time for this
            barrier.end()
            record_after(*(node_description(tasks[index]) for index in group.trained))
        for index in group.trained:
            group.attempt(index, finish)
    _report_end(group)


def _prepare(group: MemberGroup) -> dict[MemberIndex, Position]:
    """Warm up and restore each member; return the positions of those that can train."""
    positions = {index: group.attempt(index, prepare) for index in range(len(group.members))}
    return {index: position for index, position in positions.items() if position is not None}


def feed_from_device(members: Sequence[Member]) -> bool:
    """Keep the training samples in GPU memory if they fit; return whether they do."""
    device, samples = members[0].feed.device, members[0].feed.samples
    if device.type != "cuda":
        return False
    counts = [member.counts for member in members]
    if not fits(samples, counts, device=device):
        return False
    load_once = functools.cache(functools.partial(load, samples, counts, device=device))
    for member in members:
        member.feed = ResidentFeed(**member.feed.settings(), load=load_once)
    return True


def _choose_strategy(group: MemberGroup) -> StepStrategy:
    """Choose the fastest strategy on this device, and log it for every member."""
    members = {index: group.members[index] for index in group.steps}
    try:
        choice = choose(members)
    except torch.OutOfMemoryError as error:
        raise EnvironmentLacksError(
            f"{len(members)} members don't fit on the accelerator together.",
            key="ensemble.members_per_accelerator",
            value=len(members),
            remedy="Set a smaller ensemble.members_per_accelerator, or a smaller train.batch_size.",
        ) from error
    group.emit(
        "shared_process",
        members=[member.task.member for member in group.members],
        strategy=choice.strategy.name,
        milliseconds=choice.milliseconds,
    )
    return choice.strategy


def _report_end(group: MemberGroup) -> None:
    """Print errors to the members' logs; raise if any member failed or was interrupted."""
    for index, error in group.failed.items():
        member = group.members[index]
        if index == 0:  # this process's own log is member 0's
            print(f"error: {error}", file=sys.stderr)
            continue
        print(f"member {member.task.member} failed: {error}", file=sys.stderr)
        with member.folder.log.open("a", encoding="utf-8") as log:
            log.write(f"error: {error}\n")
    if group.failed:
        names = ", ".join(str(group.members[index].task.member) for index in group.failed)
        raise JobError(f"of the members that share this process {names} failed.")
    if group.interrupted:
        raise Interrupted
