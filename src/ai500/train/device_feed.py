"""Training samples that stay on the accelerator: a step then picks its images there by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.core.randomness import Stream, derive
from ai500.data.bootstrap import Counts
from ai500.data.store import Samples
from ai500.train.feed import Batch, Feed
from ai500.train.memory import free_bytes

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

    hold: Callable[[], Held]
    """Reads them when the first epoch begins: that belongs to what is timed."""

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """The epoch's steps from `first_step` on."""
        held, last = self.hold(), len(order) // self.global_batch_size
        for first in range(first_step, last, STEPS_AT_ONCE):
            steps = range(first, min(first + STEPS_AT_ONCE, last))
            places = _sent(torch.from_numpy(held.places[self._mine_of(order, steps)]), self.device)
            draws = _sent(self._draws(epoch, steps), self.device)
            for place, drawn in zip(places, draws, strict=True):
                images = held.images.index_select(0, place)
                yield Batch(images, held.labels.index_select(0, place), drawn)

    def _mine(self) -> slice:
        return slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)

    def _mine_of(self, order: NDArray[np.int64], steps: range) -> NDArray[np.int64]:
        whole = order[steps[0] * self.global_batch_size : (steps[-1] + 1) * self.global_batch_size]
        return whole.reshape(len(steps), self.global_batch_size)[:, self._mine()]

    def _draws(self, epoch: int, steps: range) -> Tensor:
        """As `Feed` draws them: a generator for each step, and of the global batch this part."""
        drawn = []
        for step in steps:
            seed = derive(self.seed, Stream.AUGMENTATION, self.member, epoch, step)
            generator = torch.Generator().manual_seed(seed)
            whole = torch.rand(self.global_batch_size, self.draws_per_image, generator=generator)
            drawn.append(whole[self._mine()])
        return torch.stack(drawn)


def fits(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> bool:
    """Whether all samples that any of these bootstraps drew take no more than their share."""
    image, label = samples.rows(_used(counts)[:1])
    needed = len(_used(counts)) * (image.nbytes + label.nbytes)
    return device.type != "cuda" or needed <= LARGEST_SHARE * free_bytes(device)


def hold(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> Held:
    """All samples that any of these bootstraps drew."""
    used = _used(counts)
    first_image, _ = samples.rows(used[:1])
    size, rows = first_image.shape[1:], len(used)
    images = torch.empty((rows, *size), dtype=torch.from_numpy(first_image).dtype, device=device)
    labels = torch.from_numpy(samples.labels_of(used)).to(device)
    at_once = max(1, READ_AT_ONCE_BYTES // first_image.nbytes)
    for first in range(0, rows, at_once):
        some = slice(first, first + at_once)
        images[some] = torch.from_numpy(samples.rows(used[some])[0]).to(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # other members read them on streams of their own
    places = np.full(samples.count, -1, dtype=np.int64)
    places[used] = np.arange(rows)
    return Held(images, labels, places)


def _used(counts: Sequence[Counts]) -> NDArray[np.int64]:
    return np.flatnonzero(np.any(np.stack(counts) > 0, axis=0)).astype(np.int64)


def resident(feed: Feed, hold: Callable[[], Held]) -> ResidentFeed:
    """The feed, from what is held."""
    known = {one.name: getattr(feed, one.name) for one in fields(Feed)}
    return ResidentFeed(**known, hold=hold)


def _sent(numbers: Tensor, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return numbers
    return numbers.pin_memory().to(device, non_blocking=True)
