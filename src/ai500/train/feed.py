"""From the store to the accelerator: each step's samples, the same whatever P_degree is."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.store import Samples
from ai500.randomness import Stream, derive

PREFETCHED_BATCHES = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """One rank's share of one step."""

    images: Tensor
    labels: Tensor
    draws: Tensor
    """Uniform numbers in [0, 1) for augmentation, a row per image."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Batches of one epoch for one rank.

    Order and augmentation are drawn for the global batch and then cut into ranks, so the samples
    of a step do not depend on how many ranks share it.
    """

    samples: Samples
    seed: int
    member: int
    rank: int
    """On the data axis: ranks that share a model are fed the same."""
    world_size: int
    """Data-parallel ranks."""
    batch_size: int
    """Images of one optimizer step on one data-parallel rank."""
    draws_per_image: int
    device: torch.device

    @property
    def global_batch_size(self) -> int:
        """Images of one optimizer step."""
        return self.batch_size * self.world_size

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """The epoch's steps from `first_step` on, read ahead where there is an accelerator."""
        batches = self._read(epoch, order, first_step)
        if self.device.type == "cpu":
            # The training thread would wait for the reading one: nothing to overlap with.
            return batches
        return (_to(batch, self.device) for batch in _read_ahead(batches))

    def _read(self, epoch: int, order: NDArray[np.int64], first_step: int) -> Iterator[Batch]:
        global_batch = self.global_batch_size
        mine = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        for step in range(first_step, len(order) // global_batch):
            indices = order[step * global_batch : (step + 1) * global_batch][mine]
            images, labels = self.samples.rows(indices)
            generator = torch.Generator().manual_seed(
                derive(self.seed, Stream.AUGMENTATION, self.member, epoch, step)
            )
            draws = torch.rand(global_batch, self.draws_per_image, generator=generator)[mine]
            yield Batch(torch.from_numpy(images), torch.from_numpy(labels), draws)


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(
        batch.images.to(device, non_blocking=True),
        batch.labels.to(device, non_blocking=True),
        batch.draws.to(device, non_blocking=True),
    )


def _read_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Read in a thread of its own, into pinned memory that the accelerator copies from."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(PREFETCHED_BATCHES)
    stopped = threading.Event()

    def read() -> None:
        try:
            for batch in batches:
                pinned = Batch(
                    batch.images.pin_memory(), batch.labels.pin_memory(), batch.draws.pin_memory()
                )
                ready.put(pinned)
                if stopped.is_set():
                    return
            ready.put(None)
        except BaseException as error:  # handed to the training thread, which raises it
            ready.put(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        while thread.is_alive():
            try:
                ready.get(timeout=0.05)
            except queue.Empty:
                continue
