"""Training steps as CUDA graphs: a single launch instead of a thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ai500.parallel.sharing import CAPTURABLE_PRECISIONS
from ai500.parallel.targets import Targets, tensors_of, with_tensors

Step = Callable[..., Tensor]
# Eager steps before a capture: libraries choose algorithms and allocators reach their size.
WARM_UP_CALLS = 3
# Precisions in which loss and gradients can be captured, if not the whole step: the backward pass
# reads the loss scale from device memory.
CAPTURABLE_GRADIENTS = (*CAPTURABLE_PRECISIONS, "mixed-fp16")


@contextmanager
def cudnn_autotuning() -> Iterator[None]:
    """Let cuDNN time its algorithms for the shapes inside, and keep the fastest.

    Captured steps have fixed shapes and pay for it once; elsewhere, such as in the last batch of a
    validation, it would cost more than it gains.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class Graphed:
    """A step that is captured after its warm-up calls and replayed from then on.

    The step takes tensors of fixed shapes, clears gradients itself (to None, so that they are
    allocated inside the graph) and reads what changes from step to step, such as the learning rate,
    from device memory. The next call overwrites its result. Without CUDA every call is eager.
    """

    def __init__(self, step: Step, *, warm_up_calls: int = WARM_UP_CALLS) -> None:
        self._step = step
        self._warm_up_calls = warm_up_calls
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._result = torch.empty(0)

    def __call__(self, *inputs: Tensor) -> Tensor:
        if inputs[0].device.type != "cuda":
            return self._step(*inputs)
        if self._warm_up_calls > 0:
            self._warm_up_calls -= 1
            return self._warm_up(inputs)
        if self._graph is None:
            self._graph = self._capture(inputs)
        for static, new in zip(self._inputs, inputs, strict=True):
            if static is not new:
                static.copy_(new, non_blocking=True)
        self._graph.replay()
        return self._result

    @property
    def captured(self) -> bool:
        """True once calls are replays."""
        return self._graph is not None

    def _warm_up(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Run eagerly on a side stream, as a capture requires."""
        if self._stream is None:  # one for all calls: streams do not share freed memory
            self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), cudnn_autotuning():
            result = self._step(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return result

    def _capture(self, inputs: tuple[Tensor, ...]) -> torch.cuda.CUDAGraph:
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        # thread_local: a prefetching thread may call CUDA during the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._result = self._step(*self._inputs)
        return graph


def gradients_capturable(module: nn.Module, *, precision: str) -> bool:
    """Return whether loss and gradients can be captured: the model's class declares
    `fixed_shapes = True` if its step has fixed shapes and never waits for the device."""
    return precision in CAPTURABLE_GRADIENTS and bool(getattr(module, "fixed_shapes", False))


class GradientGraph:
    """Loss and gradients of whole batches as one CUDA graph; a smaller batch runs eagerly.

    The optimizer stays outside and reads each gradient from `.grad` as usual.
    """

    def __init__(
        self, forward_backward: Step, parameters: list[nn.Parameter], *, batch_size: int
    ) -> None:
        self._eager = forward_backward
        self._graphed = Graphed(self._step)
        self._targets: Targets = None
        self._parameters = parameters
        self._gradients: list[Tensor | None] = []
        self._batch_size = batch_size

    def __call__(self, inputs: Tensor, targets: Targets) -> Tensor:
        if len(inputs) != self._batch_size:
            return self._eager(inputs, targets)
        self._targets = targets
        loss = self._graphed(inputs, *tensors_of(targets))
        if self._gradients:
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient
        elif self._graphed.captured:
            self._gradients = [parameter.grad for parameter in self._parameters]
        return loss.clone()

    def _step(self, inputs: Tensor, *targets: Tensor) -> Tensor:
        """Run a step on tensors alone, which a graph reads from fixed memory."""
        return self._eager(inputs, with_tensors(self._targets, iter(targets)))

    def capture(self, inputs: Tensor, targets: Targets) -> None:
        """Warm up and capture now, so that no timed step is slower than the others."""
        for _ in range(WARM_UP_CALLS + 1):
            for parameter in self._parameters:
                parameter.grad = None
            self(inputs, targets)
