"""Batches read and copied to the accelerator while it trains on the ones before.

A thread reads each batch straight into one of a few pinned buffers and has it copied on a stream of
its own; the training stream waits for that copy alone, and the buffer is filled again once it has
left. Nothing is allocated or copied in between: at 6 GB/s either costs more than the reading.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.store import Samples

HOST_BUFFERS = 2
"""One is read into while the other is copied from."""
WAITING_BATCHES = 2
"""Batches on the accelerator that training has not asked for yet; one more may be on its way."""

Wanted = tuple[NDArray[np.int64], Tensor]
"""A batch's samples, and what else of it goes to the accelerator."""
Arrived = tuple[Tensor, Tensor, Tensor]
"""Images, labels, and what was given with the samples."""


def read_ahead(
    wanted: Iterable[Wanted], *, samples: Samples, device: torch.device
) -> Iterator[Arrived]:
    """The batches in order, on the device; an error of reading is raised where it is waited for."""
    copies = _Copies(samples, device)
    ready: queue.Queue[tuple[Arrived, Any] | BaseException | None] = queue.Queue(WAITING_BATCHES)
    stopped = threading.Event()

    def read() -> None:
        try:
            for number, one in enumerate(wanted):
                ready.put(copies.bring(number % HOST_BUFFERS, *one))
                if stopped.is_set():
                    return
            ready.put(None)
        except BaseException as error:  # handed to the training thread, which raises it
            ready.put(error)

    thread = threading.Thread(target=read, name="ai500-read-ahead", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield copies.arrived(*item)
    finally:
        stopped.set()
        while thread.is_alive():
            try:
                ready.get(timeout=0.05)
            except queue.Empty:
                continue


class _Copies:
    """Host buffers, and the stream that copies from them."""

    def __init__(self, samples: Samples, device: torch.device) -> None:
        self._samples = samples
        self._device = device
        module = torch.get_device_module(device)
        self._streams = device.type != "cpu" and hasattr(module, "Stream")
        # A device without streams copies at once: torch's stand-ins for them do nothing.
        self._module = module if self._streams else torch.cpu
        self._stream = module.Stream(device) if self._streams else torch.cpu.Stream()
        self._pinned = device.type != "cpu"
        self._buffers = [_Buffer(pinned=self._pinned) for _ in range(HOST_BUFFERS)]

    def bring(self, number: int, indices: NDArray[np.int64], given: Tensor) -> tuple[Arrived, Any]:
        """Read a batch into a buffer and have it copied; with the event that the copy is done."""
        buffer = self._buffers[number]
        buffer.wait()
        images, labels = self._samples.rows(indices, empty=buffer.empty)
        with self._module.stream(self._stream):
            batch = (
                self._copied(torch.from_numpy(images)),
                self._copied(self._small(torch.from_numpy(labels))),
                self._copied(self._small(given)),
            )
            copied = self._module.Event()
            copied.record(self._stream)
        buffer.copied = copied
        return batch, copied

    def arrived(self, batch: Arrived, copied: Any) -> Arrived:
        """The batch for the stream that asks: it waits for the copy, the host does not."""
        if self._streams:
            current = self._module.current_stream(self._device)
            current.wait_event(copied)
            for part in batch:
                part.record_stream(current)  # else its memory could be taken before it is used
        return batch

    def _small(self, part: Tensor) -> Tensor:
        return part.pin_memory() if self._pinned else part

    def _copied(self, part: Tensor) -> Tensor:
        return part.to(self._device, non_blocking=self._streams, copy=True)


class _Buffer:
    """Memory for one batch's images, kept from batch to batch."""

    def __init__(self, *, pinned: bool) -> None:
        self.copied: Any = None
        self._pinned = pinned
        self._memory = torch.empty(0, dtype=torch.uint8)

    def wait(self) -> None:
        """Until the images in it have left it."""
        if self.copied is not None:
            self.copied.synchronize()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array in this memory, over whatever was there."""
        size = math.prod(shape) * dtype.itemsize
        if len(self._memory) < size:
            self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
        return self._memory.numpy()[:size].view(dtype).reshape(shape)
