"""A member's training step as a CUDA graph, captured once and replayed on the member's stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ai500.core.errors import DataError
from ai500.parallel.cuda_graph import WARM_UP_CALLS, cudnn_autotuning
from ai500.records.fields import OFFSETS
from ai500.train.feed import Batch
from ai500.train.loop import StepRequest
from ai500.train.member import Member
from ai500.train.optimizers import LARS
from ai500.train.step import compute_gradients, training_step, update_weights


def capturable(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether its update can be part of a graph: Adam and LAMB count steps on the host."""
    return isinstance(optimizer, torch.optim.SGD | LARS)


def require_fixed_shapes(batch: Batch) -> None:
    """Raise `DataError` for a ragged field: a graph has the shapes that it was captured with."""
    for name in batch.fields:
        if name.endswith(OFFSETS):
            raise DataError(
                f"the field {name.removesuffix(OFFSETS)!r} is ragged: a step on it can't be "
                "captured in a CUDA graph.",
                key=name.removesuffix(OFFSETS),
                remedy="Set ensemble.sharing = 'processes'.",
            )


class StaticInputs:
    """The fixed memory that a captured step reads: its batch and its learning rate."""

    def __init__(self, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
        require_fixed_shapes(batch)
        fields = {name: values.clone() for name, values in batch.fields.items()}
        self.batch = Batch(fields, batch.draws.clone())
        self._optimizer = optimizer
        self._rate = torch.zeros((), device=batch.draws.device)
        self._written: float | None = None

    def write(self, request: StepRequest) -> None:
        """Copy a request in for the next replay."""
        for name, values in self.batch.fields.items():
            values.copy_(request.batch.fields[name], non_blocking=True)
        self.batch.draws.copy_(request.batch.draws, non_blocking=True)
        if request.learning_rate != self._written:
            self._rate.fill_(request.learning_rate)
            self._written = request.learning_rate
        # Checkpoints, events and updates outside the graph read the rate as a number.
        for group in self._optimizer.param_groups:
            group["lr"] = request.learning_rate

    @contextmanager
    def rate_on_device(self) -> Iterator[None]:
        """Let the optimizer read its rate from device memory while a step is captured."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate
        try:
            yield
        finally:
            for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
                group["lr"] = rate


def capture(
    step: Callable[[], list[Tensor]], stream: torch.cuda.Stream | None
) -> tuple[Callable[[], None], list[Tensor]]:
    """Warm up, then capture `step` in a CUDA graph. Return the replay function and its static
    outputs. Without a stream (no CUDA) a replay calls `step` again."""
    if stream is None:
        outputs = step()
        return partial(_call_again, step, outputs), outputs
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        with cudnn_autotuning():
            for _ in range(WARM_UP_CALLS):
                step()
        # thread_local: threads that read data may call CUDA during the capture.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            outputs = step()
    torch.cuda.synchronize()
    return graph.replay, outputs


def _call_again(step: Callable[[], list[Tensor]], outputs: list[Tensor]) -> None:
    for static, new in zip(outputs, step(), strict=True):
        static.copy_(new)


class GraphedStep:
    """A member's step, captured once; the update runs outside the graph where it has to."""

    def __init__(self, member: Member, batch: Batch, stream: torch.cuda.Stream | None) -> None:
        self.member = member
        inputs = StaticInputs(batch, member.optimizer)
        self._inputs = inputs
        self._updates = capturable(member.optimizer)
        captured = training_step if self._updates else compute_gradients
        with preserve_state([member]), inputs.rate_on_device():
            self._replay, self._losses = capture(lambda: [captured(member, inputs.batch)], stream)
            # A graph writes gradients to the same memory in each replay.
            in_graph = [] if stream is None else member.engine.parameters()
            self._gradients = [(parameter, parameter.grad) for parameter in in_graph]
        member.cudnn_autotuned |= stream is not None

    def __call__(self, request: StepRequest) -> Tensor:
        """Replay the step on the current stream; the next replay overwrites the loss."""
        self._inputs.write(request)
        self._replay()
        if not self._updates:
            for parameter, gradient in self._gradients:
                parameter.grad = gradient
            update_weights(self.member)
        return self._losses[0]


@contextmanager
def preserve_state(members: Sequence[Member]) -> Iterator[None]:
    """Restore weights, running statistics and optimizer state on exit, in the same memory: a
    captured step knows them by address."""
    _synchronize()
    before = {
        id(tensor): tensor.detach().clone() for member in members for tensor in _state(member)
    }
    groups = [(group, dict(group)) for member in members for group in member.optimizer.param_groups]
    _synchronize()
    try:
        yield
    finally:
        _synchronize()
        for tensor in (tensor for member in members for tensor in _state(member)):
            # Momentum that was first allocated inside starts at zero.
            saved = before.get(id(tensor))
            tensor.detach().copy_(torch.zeros_like(tensor) if saved is None else saved)
        for group, saved_group in groups:
            group.clear()
            group.update(saved_group)
        _synchronize()


def _synchronize() -> None:
    """Wait for all streams: they do not wait for each other."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _state(member: Member) -> Iterator[Tensor]:
    module = member.engine.module
    yield from module.parameters()
    yield from module.buffers()
    for state in member.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
