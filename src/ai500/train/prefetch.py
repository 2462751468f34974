"""Batches read and copied to the accelerator while it trains on the previous ones.

A thread reads each batch directly into one of a few pinned buffers and copies it on a stream of its
own. The training stream waits for that copy alone, and the buffer is reused once the copy is done.
Nothing is allocated or copied in between: at 6 GB/s either costs more than the read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.store import Samples
from ai500.train.read_ahead import read_ahead

# Double buffering: one is filled while the other is copied from.
HOST_BUFFERS = 2
# Batches queued on the accelerator; one more may be in flight.
QUEUED_BATCHES = 2

BatchRequest = tuple[NDArray[np.int64], Tensor]
"""Sample indices of a batch, and an extra tensor that travels with it."""
DeviceBatch = tuple[dict[str, Tensor], Tensor]
"""Fields by name and the request's extra tensor, on the device."""


def prefetch(
    requests: Iterable[BatchRequest], *, samples: Samples, device: torch.device
) -> Iterator[DeviceBatch]:
    """Yield the batches in order, on the device; a read error is raised at its batch."""
    copier = _Copier(samples, device)
    copies = (
        copier.start(number % HOST_BUFFERS, *request) for number, request in enumerate(requests)
    )
    with closing(read_ahead(copies, queued=QUEUED_BATCHES)) as started:
        for batch, copied in started:
            yield copier.wait(batch, copied)


class _Copier:
    """Pinned host buffers, and the stream that copies from them."""

    def __init__(self, samples: Samples, device: torch.device) -> None:
        self._samples = samples
        self._device = device
        module = torch.get_device_module(device)
        self._streams = device.type != "cpu" and hasattr(module, "Stream")
        # A device without streams copies synchronously: torch.cpu's streams do nothing.
        self._module = module if self._streams else torch.cpu
        self._stream = module.Stream(device) if self._streams else torch.cpu.Stream()
        self._pinned = device.type != "cpu"
        self._buffers = [_Buffer(pinned=self._pinned) for _ in range(HOST_BUFFERS)]

    def start(
        self, number: int, indices: NDArray[np.int64], extra: Tensor
    ) -> tuple[DeviceBatch, Any]:
        """Read a batch into a buffer and start its copy; return it with the copy's event."""
        buffer = self._buffers[number]
        buffer.wait()
        arrays = self._samples.rows(indices, empty=buffer.empty)
        with self._module.stream(self._stream):
            fields = {name: self._copy(torch.from_numpy(array)) for name, array in arrays.items()}
            batch = (fields, self._copy(self._pin(extra)))
            copied = self._module.Event()
            copied.record(self._stream)
        buffer.copied = copied
        return batch, copied

    def wait(self, batch: DeviceBatch, copied: Any) -> DeviceBatch:
        """Make the current stream wait for the copy; the host does not wait."""
        if self._streams:
            current = self._module.current_stream(self._device)
            current.wait_event(copied)
            fields, extra = batch
            for part in (*fields.values(), extra):
                part.record_stream(current)  # else its memory could be reused before it is read
        return batch

    def _pin(self, part: Tensor) -> Tensor:
        return part.pin_memory() if self._pinned else part

    def _copy(self, part: Tensor) -> Tensor:
        return part.to(self._device, non_blocking=self._streams, copy=True)


class _Buffer:
    """Memory for one batch's fields, reused from batch to batch."""

    def __init__(self, *, pinned: bool) -> None:
        self.copied: Any = None
        self._pinned = pinned
        self._memory: list[Tensor] = []
        self._used = 0

    def wait(self) -> None:
        """Wait until the last copy from this buffer is done; then its memory is free."""
        if self.copied is not None:
            self.copied.synchronize()
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialized array in this memory: the n-th of a batch in the n-th piece."""
        size, number = math.prod(shape) * dtype.itemsize, self._used
        self._used += 1
        if number == len(self._memory):
            self._memory.append(torch.empty(0, dtype=torch.uint8))
        if len(self._memory[number]) < size:
            self._memory[number] = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
        return self._memory[number].numpy()[:size].view(dtype).reshape(shape)
