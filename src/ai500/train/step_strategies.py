"""Strategies to run the steps of members that share a process, and a timed choice of one [D11]."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ai500.train.graphed_step import GraphedStep, preserve_state
from ai500.train.loop import StepRequest
from ai500.train.member import Member
from ai500.train.step import eager_step, warm_up_batch

MemberIndex = int
"""Position of a member among those of its process."""
# A strategy's time is the median of REPETITIONS measurements of ROUNDS rounds each: about a second
# for eight members of ResNet-50, and steady enough to tell a few per cent.
REPETITIONS, ROUNDS = 3, 4


class StepStrategy(Protocol):
    """Execution of the steps of several members."""

    @property
    def name(self) -> str:
        """Name in events and reports."""

    def context(self, index: MemberIndex) -> AbstractContextManager[object]:
        """Context for the member's non-step work (evaluation, checkpoints)."""

    def step(self, requests: Mapping[MemberIndex, StepRequest]) -> dict[MemberIndex, Tensor]:
        """Run one step of each of these members; return their losses."""


@dataclass(frozen=True)
class Sequential:
    """Eager steps, one member after another."""

    members: Mapping[MemberIndex, Member]
    name: str = "sequential"

    def context(self, index: MemberIndex) -> AbstractContextManager[object]:
        """Return an empty context: all work is on the default stream."""
        return nullcontext()

    def step(self, requests: Mapping[MemberIndex, StepRequest]) -> dict[MemberIndex, Tensor]:
        """Run the steps in order."""
        return {
            index: eager_step(self.members[index], request) for index, request in requests.items()
        }


@dataclass(frozen=True)
class GraphStreams:
    """Captured steps, each replayed on its member's stream: one per member, or one for all."""

    steps: Mapping[MemberIndex, GraphedStep]
    streams: Mapping[MemberIndex, torch.cuda.Stream | None]
    name: str

    def context(self, index: MemberIndex) -> AbstractContextManager[object]:
        """Enter the member's stream, so that evaluation and checkpoints follow its steps."""
        stream = self.streams[index]
        return nullcontext() if stream is None else torch.cuda.stream(stream)

    def step(self, requests: Mapping[MemberIndex, StepRequest]) -> dict[MemberIndex, Tensor]:
        """Launch all replays; the host waits for none of them."""
        losses = {}
        for index, request in requests.items():
            with self.context(index):
                losses[index] = self.steps[index](request)
        return losses


@dataclass(frozen=True)
class Choice:
    """The chosen strategy, and the milliseconds of a round of steps in each that was timed."""

    strategy: StepStrategy
    milliseconds: dict[str, float] = field(default_factory=dict)


def choose(members: Mapping[MemberIndex, Member]) -> Choice:
    """Choose the fastest strategy on the members' device; weights do not change."""
    if not members or (device := _device(members)).type != "cuda":
        return Choice(Sequential(members))
    strategies = graph_strategies(members)
    requests = {
        index: StepRequest(warm_up_batch(member), learning_rate=0.0, seed=0)
        for index, member in members.items()
    }
    with preserve_state(list(members.values())):
        milliseconds = {
            strategy.name: time_milliseconds(partial(strategy.step, requests), device)
            for strategy in strategies
        }
    fastest = min(strategies, key=lambda strategy: milliseconds[strategy.name])
    return Choice(fastest, milliseconds)


def graph_strategies(members: Mapping[MemberIndex, Member]) -> list[GraphStreams]:
    """Capture each member's step; return the strategies that replay these graphs."""
    device = _device(members)
    cuda = device.type == "cuda"
    streams = {index: torch.cuda.Stream(device) if cuda else None for index in members}
    steps = {
        index: GraphedStep(member, warm_up_batch(member), streams[index])
        for index, member in members.items()
    }
    first_stream = dict.fromkeys(members, next(iter(streams.values())))
    return [
        GraphStreams(steps, streams, "graphs on streams"),
        GraphStreams(steps, first_stream, "graphs in one queue"),
    ]


def _device(members: Mapping[MemberIndex, Member]) -> torch.device:
    return next(iter(members.values())).feed.device


def time_milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """Time a call on the device: the median over repetitions of its mean in ROUNDS calls."""
    milliseconds = []
    for _ in range(1 + REPETITIONS):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        torch.accelerator.synchronize(device)
        milliseconds.append(1e3 * (time.perf_counter() - began) / ROUNDS)
    return round(sorted(milliseconds[1:])[REPETITIONS // 2], 3)  # the first one warms up
