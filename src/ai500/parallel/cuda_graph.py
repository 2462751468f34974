"""A training step as one CUDA graph: a single launch instead of a thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Step = Callable[..., Tensor]
CALLS_BEFORE = 3
"""Steps that run as they are: libraries choose their algorithms, allocators settle."""


were_tried = False
"""Whether cuDNN chose by trial in this process: `train/provenance.py` tells it."""


@contextmanager
def algorithms_tried() -> Iterator[None]:
    """cuDNN times its algorithms and keeps the fastest for shapes that it meets in here.

    Steps that are recorded have fixed shapes and pay once; elsewhere, such as in a validation's
    last batch, trying would cost more than it gains.
    """
    global were_tried
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = were_tried = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class Graphed:
    """Each call is one step: the first few run as they are, later ones replay what was recorded.

    The step takes tensors of fixed shapes, clears gradients itself (to None, so that they are
    allocated inside the graph) and keeps what changes from step to step, such as the rate, in
    tensors on the device. What it returns is overwritten by the next call. On a device without
    graphs every call runs as it is.
    """

    def __init__(self, step: Step, *, calls_before: int = CALLS_BEFORE) -> None:
        self._step = step
        self._calls_before = calls_before
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._result = torch.empty(0)

    def __call__(self, *inputs: Tensor) -> Tensor:
        if inputs[0].device.type != "cuda":
            return self._step(*inputs)
        if self._calls_before > 0:
            self._calls_before -= 1
            return self._beside(inputs)
        if self._graph is None:
            self._record(inputs)
        assert self._graph is not None
        for static, new in zip(self._inputs, inputs, strict=True):
            if static is not new:
                static.copy_(new, non_blocking=True)
        self._graph.replay()
        return self._result

    @property
    def recorded(self) -> bool:
        """Whether calls are replays by now."""
        return self._graph is not None

    def _beside(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """On a stream of its own, as recording asks for."""
        if self._stream is None:  # one for all calls: freed memory is not shared between streams
            self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), algorithms_tried():
            result = self._step(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return result

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = tuple(one.clone() for one in inputs)
        graph = torch.cuda.CUDAGraph()
        # Another thread may read ahead meanwhile: only what this one does is recorded.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._result = self._step(*self._inputs)
        self._graph = graph
