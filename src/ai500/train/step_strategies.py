"""Ways to take the steps of members that share a process, and a short trial of them [D11]."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ai500.train.batched import Stacked, why_not
from ai500.train.feed import Batch
from ai500.train.graphed_step import Inputs, Replayed, forgotten, recordable, recorded
from ai500.train.loop import Member, Wanted, some_batch, take_step
from ai500.train.memory import free_bytes

Number = int
"""Of a member among those of its process."""
TRIED_TIMES, ROUNDS = 3, 4
ROOM = 1.5
"""Batched weights are recorded where so much more memory is free than the members' graphs took."""


class Way(Protocol):
    """How the steps of several members are taken."""

    @property
    def name(self) -> str:
        """In words."""

    def beside(self, number: Number) -> AbstractContextManager[object]:
        """Around all else that the member does between its steps."""

    def take(self, wanted: Mapping[Number, Wanted]) -> dict[Number, Tensor]:
        """One step of each of these members; their losses."""


@dataclass(frozen=True)
class InTurn:
    """One after another, each as it is."""

    members: Mapping[Number, Member]
    name: str = "one after another"

    def beside(self, number: Number) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def take(self, wanted: Mapping[Number, Wanted]) -> dict[Number, Tensor]:
        """Whoever wants one."""
        return {number: take_step(self.members[number], one) for number, one in wanted.items()}


@dataclass(frozen=True)
class OnStreams:
    """Each member's recorded step on its stream: its own, or the same for all."""

    steps: Mapping[Number, Replayed]
    streams: Mapping[Number, torch.cuda.Stream | None]
    name: str

    def beside(self, number: Number) -> AbstractContextManager[object]:
        """The member's stream, so that evaluation and checkpoints come after its steps."""
        stream = self.streams[number]
        return nullcontext() if stream is None else torch.cuda.stream(stream)

    def take(self, wanted: Mapping[Number, Wanted]) -> dict[Number, Tensor]:
        """Nobody waits for anybody."""
        losses = {}
        for number, one in wanted.items():
            with self.beside(number):
                losses[number] = self.steps[number](one)
        return losses


class Batched:
    """One recorded step for all, with batched weights; by themselves where not all want one."""

    name = "batched weights"

    def __init__(self, stacked: Stacked, alone: OnStreams, batches: Mapping[Number, Batch]) -> None:
        self._members = {number: step.member for number, step in alone.steps.items()}
        self._alone = alone
        self._stacked = stacked
        members = list(self._members.values())
        self._inputs = {n: Inputs(batches[n], one.optimizer) for n, one in self._members.items()}
        self._whole = all(recordable(one.optimizer) for one in members)
        with ExitStack() as during:
            during.enter_context(forgotten(members))
            for inputs in self._inputs.values():
                during.enter_context(inputs.rate_on_device())
            stream = next(iter(alone.streams.values()))
            self._replay, self._losses = recorded(self._step, stream)

    def beside(self, number: Number) -> AbstractContextManager[object]:
        """The one stream of all."""
        return self._alone.beside(number)

    def take(self, wanted: Mapping[Number, Wanted]) -> dict[Number, Tensor]:
        """All at once."""
        if len(wanted) < len(self._inputs):
            return self._alone.take(wanted)
        with self.beside(next(iter(wanted))):
            for number, one in wanted.items():
                self._inputs[number].write(one)
            self._replay()
            if not self._whole:
                self._update()
        return dict(zip(self._inputs, self._losses, strict=True))

    def _step(self) -> list[Tensor]:
        inputs, labels = [], []
        for number, member in self._members.items():
            held = self._inputs[number]
            some, theirs = member.workload.train_inputs(
                member.problem_class, held.images, held.labels, held.draws
            )
            inputs.append(some)
            labels.append(theirs)
        losses = self._losses_of(inputs, labels)
        self._stacked.clear_gradients()
        torch.stack(losses).sum().backward()
        if self._whole:
            self._update()
        return [loss.detach() for loss in losses]

    def _losses_of(self, inputs: list[Tensor], labels: list[Tensor]) -> list[Tensor]:
        members = list(self._members.values())
        with members[0].numerics.forward():
            outputs = self._stacked.outputs(inputs)
            return [
                one.workload.loss(found, true, hyperparameters=one.task.hyperparameters)
                for one, found, true in zip(members, outputs, labels, strict=True)
            ]

    def _update(self) -> None:
        self._stacked.hand_out_gradients()
        for member in self._members.values():
            member.numerics.step(member.optimizer)


@dataclass(frozen=True)
class Choice:
    """The way that is taken, and what a round of steps took in each way that was tried."""

    way: Way
    milliseconds: dict[str, float] = field(default_factory=dict)
    not_tried: dict[str, str] = field(default_factory=dict)


def choose(members: Mapping[Number, Member]) -> Choice:
    """The fastest way on the members' device; nothing is learnt meanwhile."""
    if not members or (device := _device(members)).type != "cuda":
        return Choice(InTurn(members))
    ways, not_tried = all_ways(members, batched=False)
    wanted = {number: Wanted(some_batch(member), 0.0, 0) for number, member in members.items()}
    with forgotten(list(members.values())):
        found = {way.name: milliseconds(partial(way.take, wanted), device) for way in ways}
    best = min(ways, key=lambda way: found[way.name])
    return Choice(best, found, not_tried)


def all_ways(
    members: Mapping[Number, Member], *, batched: bool = True
) -> tuple[list[Way], dict[str, str]]:
    """Every way to record, and why others are not among them."""
    device, modules = _device(members), [one.engine.module for one in members.values()]
    accumulates = any(one.task.hyperparameters.accumulation > 1 for one in members.values())
    reason = "gradients are accumulated" if accumulates else why_not(modules)
    if not batched:
        reason = "slower than graphs on streams wherever it was measured, and it rounds otherwise"
    # Before anything is recorded: it moves the weights.
    stacked = None if reason else Stacked(modules)
    batches = {number: some_batch(member) for number, member in members.items()}
    cuda = device.type == "cuda"
    own = {number: torch.cuda.Stream(device) if cuda else None for number in members}
    before = free_bytes(device)
    steps = {n: Replayed(member, batches[n], own[n]) for n, member in members.items()}
    after = free_bytes(device)
    queue = OnStreams(steps, dict.fromkeys(members, own[next(iter(own))]), "graphs in one queue")
    ways: list[Way] = [OnStreams(steps, own, "graphs on streams"), queue]
    if stacked is not None and after < ROOM * (before - after):
        reason = "the device's memory is taken by the other graphs"
    elif stacked is not None:
        ways.append(Batched(stacked, queue, batches))
    return ways, {Batched.name: reason} if reason else {}


def _device(members: Mapping[Number, Member]) -> torch.device:
    return next(iter(members.values())).feed.device


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """Of one call, the median of some times that several in a row took to their end."""
    taken = []
    for _ in range(1 + TRIED_TIMES):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        torch.accelerator.synchronize(device)
        taken.append(1e3 * (time.perf_counter() - began) / ROUNDS)
    return round(sorted(taken[1:])[TRIED_TIMES // 2], 3)
