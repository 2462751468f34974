"""From the store to the accelerator: the samples of each step, the same for every P_degree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.store import Arrays, Samples
from ai500.train.batch_order import augmentation_draws, rank_indices
from ai500.train.prefetch import BatchRequest, DeviceBatch, prefetch


@dataclass(frozen=True, slots=True)
class Batch:
    """One rank's share of one step."""

    fields: dict[str, Tensor]
    """The samples' fields by name; a ragged one also has `NAME.offsets`."""
    draws: Tensor
    """Uniform numbers in [0, 1) for augmentation, a row per sample."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Batches of one epoch for one rank.

    Order and augmentation are drawn for the global batch and then cut into ranks, so the samples
    of a step do not depend on the number of ranks.
    """

    samples: Samples
    seed: int
    member: int
    rank: int
    """Rank on the data axis: ranks that share a model get the same batches."""
    world_size: int
    """Number of data-parallel ranks."""
    batch_size: int
    """Images of one optimizer step on one data-parallel rank."""
    draws_per_sample: int
    device: torch.device

    @property
    def global_batch_size(self) -> int:
        """Images of one optimizer step on all ranks."""
        return self.batch_size * self.world_size

    def settings(self) -> dict[str, Any]:
        """Return the fields of a feed, for one of another kind with the same batches."""
        return {field.name: getattr(self, field.name) for field in fields(Feed)}

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """Yield the epoch's batches from `first_step` on, prefetched on an accelerator."""
        steps = range(first_step, len(order) // self.global_batch_size)
        requests = (
            (self.indices(order, range(step, step + 1))[0], self.draws(epoch, step))
            for step in steps
        )
        batches = batches_on_device(requests, samples=self.samples, device=self.device)
        return (Batch(*batch) for batch in batches)

    def indices(self, order: NDArray[np.int64], steps: range) -> NDArray[np.int64]:
        """Return this rank's samples of consecutive steps, a row per step."""
        return rank_indices(
            order, steps, rank=self.rank, batch_size=self.batch_size, world_size=self.world_size
        )

    def draws(self, epoch: int, step: int) -> Tensor:
        """Draw a step's augmentation for the global batch; return this rank's rows."""
        samples, columns = self.global_batch_size, self.draws_per_sample
        draws = augmentation_draws(
            self.seed, self.member, epoch, step, samples=samples, draws_per_sample=columns
        )
        share = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        return torch.from_numpy(draws[share])


def batches_on_device(
    requests: Iterable[BatchRequest], *, samples: Samples, device: torch.device
) -> Iterator[DeviceBatch]:
    """Read batches in order and bring them to the device."""
    if device.type != "cpu":
        return prefetch(requests, samples=samples, device=device)
    # On a CPU the training thread would wait for the reading thread: nothing overlaps.
    return (_read(samples, *request) for request in requests)


def _read(samples: Samples, indices: NDArray[np.int64], extra: Tensor) -> DeviceBatch:
    return tensors(samples.rows(indices)), extra


def tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Return the arrays as tensors in the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
