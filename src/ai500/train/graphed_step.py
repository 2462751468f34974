"""One member's whole step, from stored images to new weights, as a CUDA graph on its own stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ai500.parallel.cuda_graph import CALLS_BEFORE, algorithms_tried
from ai500.train.feed import Batch
from ai500.train.loop import Member, Wanted
from ai500.train.optimizers import LARS


def recordable(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step is the same every time: Adam and LAMB count theirs on the host."""
    return isinstance(optimizer, torch.optim.SGD | LARS)


class Inputs:
    """What a recorded step reads: a batch and a rate, always in the same places."""

    def __init__(self, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
        self.images, self.labels = batch.images.clone(), batch.labels.clone()
        self.draws = batch.draws.clone()
        self._optimizer = optimizer
        self._rate = torch.zeros((), device=batch.images.device)
        self._written: float | None = None

    def write(self, wanted: Wanted) -> None:
        """For the next replay; the optimizer's groups say the rate as a number, as always."""
        self.images.copy_(wanted.batch.images, non_blocking=True)
        self.labels.copy_(wanted.batch.labels, non_blocking=True)
        self.draws.copy_(wanted.batch.draws, non_blocking=True)
        if wanted.rate != self._written:
            self._rate.fill_(wanted.rate)
            self._written = wanted.rate
        for group in self._optimizer.param_groups:
            group["lr"] = wanted.rate

    @contextmanager
    def rate_on_device(self) -> Iterator[None]:
        """While a step is recorded, the optimizer finds its rate in memory."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate
        try:
            yield
        finally:
            for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
                group["lr"] = rate


def recorded(
    step: Callable[[], list[Tensor]], stream: torch.cuda.Stream | None
) -> tuple[Callable[[], None], list[Tensor]]:
    """A few calls that run as they are, then one that is recorded: how to repeat it, on whatever
    stream is current then, and what it gives, which each repetition overwrites. Without a stream
    there are no graphs either, and a repetition is another call."""
    if stream is None:
        results = step()
        return partial(_repeat, step, results), results
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        with algorithms_tried():
            for _ in range(CALLS_BEFORE):
                step()
        # Threads that read data go on meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            results = step()
    torch.cuda.synchronize()
    return graph.replay, results


def _repeat(step: Callable[[], list[Tensor]], results: list[Tensor]) -> None:
    for old, new in zip(results, step(), strict=True):
        old.copy_(new)


class Replayed:
    """A member's step, recorded once."""

    def __init__(self, member: Member, batch: Batch, stream: torch.cuda.Stream | None) -> None:
        self.member = member
        self.inputs = Inputs(batch, member.optimizer)
        self._whole = recordable(member.optimizer)
        with forgotten([member]), self.inputs.rate_on_device():
            self._replay, self._losses = recorded(self._step, stream)
            # Always in these places, if it is a graph that makes them.
            made = [] if stream is None else member.engine.parameters()
            self._gradients = [(one, one.grad) for one in made]

    def __call__(self, wanted: Wanted) -> Tensor:
        """The step, on the current stream; its loss is overwritten by the next."""
        self.inputs.write(wanted)
        self._replay()
        if not self._whole:
            for parameter, gradient in self._gradients:
                parameter.grad = gradient
            self.member.numerics.step(self.member.optimizer)
        return self._losses[0]

    def _step(self) -> list[Tensor]:
        member, held = self.member, self.inputs
        inputs, labels = member.workload.train_inputs(
            member.problem_class, held.images, held.labels, held.draws
        )
        member.optimizer.zero_grad(set_to_none=True)
        loss = member.engine.forward_backward(inputs, labels)
        if self._whole:
            member.numerics.step(member.optimizer)
        return [loss]


@contextmanager
def forgotten(members: Sequence[Member]) -> Iterator[None]:
    """Steps taken inside leave no trace: weights, statistics and the optimizers' memory are put
    back where they are, because a recorded step knows them by their place."""
    _wait_for_device()
    before = {id(one): one.detach().clone() for member in members for one in _memory(member)}
    groups = [(group, dict(group)) for one in members for group in one.optimizer.param_groups]
    _wait_for_device()
    try:
        yield
    finally:
        _wait_for_device()
        for one in (one for member in members for one in _memory(member)):
            # A velocity that was not there before begins at zero.
            one.detach().copy_(before[id(one)] if id(one) in before else torch.zeros_like(one))
        for group, known in groups:
            group.clear()
            group.update(known)
        _wait_for_device()


def _wait_for_device() -> None:
    """Streams don't wait for each other by themselves."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _memory(member: Member) -> Iterator[Tensor]:
    module = member.engine.module
    yield from module.parameters()
    yield from module.buffers()
    for state in member.optimizer.state.values():
        yield from (one for one in state.values() if isinstance(one, Tensor))
