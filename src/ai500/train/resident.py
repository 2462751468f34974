"""Training samples that stay on the accelerator: a step then picks its images there by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.bagging.data_sampler import Counts
from ai500.data.store import Samples
from ai500.randomness import Stream, derive
from ai500.train.feed import Batch, Feed

LARGEST_SHARE = 0.2
"""Of the accelerator's free memory; the rest is for the models."""
READ_AT_ONCE_BYTES = 1 << 28
STEPS_AT_ONCE = 64
"""So many steps' numbers go to the accelerator in one copy."""


@dataclass(frozen=True)
class Held:
    """Samples on the accelerator, and where each is: −1 for those that nobody here drew."""

    images: Tensor
    labels: Tensor
    places: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ResidentFeed(Feed):
    """The batches of a `Feed`, the same bit by bit, from samples that are there already."""

    held: Held

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """The epoch's steps from `first_step` on."""
        last = len(order) // self.global_batch_size
        for first in range(first_step, last, STEPS_AT_ONCE):
            steps = range(first, min(first + STEPS_AT_ONCE, last))
            places = _sent(torch.from_numpy(self._places(order, steps)), self.device)
            draws = _sent(self._draws(epoch, steps), self.device)
            for place, drawn in zip(places, draws, strict=True):
                images = self.held.images.index_select(0, place)
                yield Batch(images, self.held.labels.index_select(0, place), drawn)

    def _mine(self) -> slice:
        return slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)

    def _places(self, order: NDArray[np.int64], steps: range) -> NDArray[np.int64]:
        whole = order[steps[0] * self.global_batch_size : (steps[-1] + 1) * self.global_batch_size]
        mine = whole.reshape(len(steps), self.global_batch_size)[:, self._mine()]
        return self.held.places[mine]

    def _draws(self, epoch: int, steps: range) -> Tensor:
        """As `Feed` draws them: a generator for each step, and of the global batch this part."""
        drawn = []
        for step in steps:
            seed = derive(self.seed, Stream.AUGMENTATION, self.member, epoch, step)
            generator = torch.Generator().manual_seed(seed)
            whole = torch.rand(self.global_batch_size, self.draws_per_image, generator=generator)
            drawn.append(whole[self._mine()])
        return torch.stack(drawn)


def hold(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> Held | None:
    """All samples that any of these bootstraps drew, if they take no more than their share."""
    used = np.flatnonzero(np.any(np.stack(counts) > 0, axis=0)).astype(np.int64)
    first_image, first_label = samples.rows(used[:1])
    needed = len(used) * (first_image.nbytes + first_label.nbytes)
    if device.type == "cuda" and needed > LARGEST_SHARE * torch.cuda.mem_get_info(device)[0]:
        return None
    size, rows = first_image.shape[1:], len(used)
    images = torch.empty((rows, *size), dtype=torch.from_numpy(first_image).dtype, device=device)
    labels = torch.from_numpy(samples.labels_of(used)).to(device)
    at_once = max(1, READ_AT_ONCE_BYTES // first_image.nbytes)
    for first in range(0, rows, at_once):
        some = slice(first, first + at_once)
        images[some] = torch.from_numpy(samples.rows(used[some])[0]).to(device)
    places = np.full(samples.count, -1, dtype=np.int64)
    places[used] = np.arange(rows)
    return Held(images, labels, places)


def resident(feed: Feed, held: Held) -> ResidentFeed:
    """The feed, from what is held."""
    known = {one.name: getattr(feed, one.name) for one in fields(Feed)}
    return ResidentFeed(**known, held=held)


def _sent(numbers: Tensor, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return numbers
    return numbers.pin_memory().to(device, non_blocking=True)
