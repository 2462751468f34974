"""From the store to the accelerator: each step's samples, the same whatever P_degree is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.core.randomness import Stream, derive
from ai500.data.store import Samples
from ai500.train.prefetch import Arrived, Wanted, read_ahead


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
        steps = self._steps(epoch, order, first_step)
        return (Batch(*one) for one in arriving(steps, samples=self.samples, device=self.device))

    def _steps(self, epoch: int, order: NDArray[np.int64], first_step: int) -> Iterator[Wanted]:
        """The samples and draws of each step that are this rank's."""
        global_batch = self.global_batch_size
        mine = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        for step in range(first_step, len(order) // global_batch):
            indices = order[step * global_batch : (step + 1) * global_batch][mine]
            generator = torch.Generator().manual_seed(
                derive(self.seed, Stream.AUGMENTATION, self.member, epoch, step)
            )
            yield indices, torch.rand(global_batch, self.draws_per_image, generator=generator)[mine]


def arriving(
    wanted: Iterable[Wanted], *, samples: Samples, device: torch.device
) -> Iterator[Arrived]:
    """Batches on the device: images, labels and what was given with them."""
    if device.type != "cpu":
        return read_ahead(wanted, samples=samples, device=device)
    # The training thread would wait for the reading one: nothing to overlap with.
    return (_read(samples, *one) for one in wanted)


def _read(samples: Samples, indices: NDArray[np.int64], given: Tensor) -> Arrived:
    images, labels = samples.rows(indices)
    return torch.from_numpy(images), torch.from_numpy(labels), given
