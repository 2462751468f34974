"""Training samples that stay in the accelerator's memory: a step gathers its images there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.bootstrap import Counts
from ai500.data.store import Samples
from ai500.train.feed import Batch, Feed

# Largest fraction of free device memory for samples; the rest is for the models.
LARGEST_SHARE = 0.2
# Bytes read from the store at once: bounds the host's memory while samples are loaded.
READ_BYTES = 1 << 28
# Steps whose indices and draws go to the device in one copy: fewer small transfers.
STEPS_PER_COPY = 64


@dataclass(frozen=True)
class DeviceSamples:
    """Samples in device memory; `rows` maps a sample to its row, −1 where no member drew it."""

    images: Tensor
    labels: Tensor
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ResidentFeed(Feed):
    """The batches of a `Feed`, bit for bit, gathered from samples in device memory."""

    load: Callable[[], DeviceSamples]
    """Loader, called when the first epoch begins: reading is inside the timed window."""

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """Yield the epoch's batches from `first_step` on."""
        resident, last = self.load(), len(order) // self.global_batch_size
        for first in range(first_step, last, STEPS_PER_COPY):
            steps = range(first, min(first + STEPS_PER_COPY, last))
            rows_of_steps = torch.from_numpy(resident.rows[self.indices(order, steps)])
            draws_of_steps = torch.stack([self.draws(epoch, step) for step in steps])
            for rows, draws in zip(
                _copy(rows_of_steps, self.device), _copy(draws_of_steps, self.device), strict=True
            ):
                images = resident.images.index_select(0, rows)
                yield Batch(images, resident.labels.index_select(0, rows), draws)


def fits(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> bool:
    """Return whether all samples of these bootstraps fit into their share of device memory."""
    used = _used(counts)
    image, label = samples.rows(used[:1])
    size = len(used) * (image.nbytes + label.nbytes)
    return device.type != "cuda" or size <= LARGEST_SHARE * free_bytes(device)


def load(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> DeviceSamples:
    """Load all samples of these bootstraps into device memory."""
    used = _used(counts)
    first_image, _ = samples.rows(used[:1])
    shape = (len(used), *first_image.shape[1:])
    images = torch.empty(shape, dtype=torch.from_numpy(first_image).dtype, device=device)
    labels = torch.from_numpy(samples.labels_of(used)).to(device)
    rows_per_read = max(1, READ_BYTES // first_image.nbytes)
    for first in range(0, len(used), rows_per_read):
        part = slice(first, first + rows_per_read)
        images[part] = torch.from_numpy(samples.rows(used[part])[0]).to(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # other members read them on streams of their own
    rows = np.full(samples.count, -1, dtype=np.int64)
    rows[used] = np.arange(len(used))
    return DeviceSamples(images, labels, rows)


def free_bytes(device: torch.device) -> int:
    """Return the device's free memory; 0 for a CPU, whose memory is not shared out here."""
    query = getattr(torch.get_device_module(device), "mem_get_info", None)
    return 0 if query is None or device.type == "cpu" else int(query(device)[0])


def _used(counts: Sequence[Counts]) -> NDArray[np.int64]:
    return np.flatnonzero(np.any(np.stack(counts) > 0, axis=0)).astype(np.int64)


def _copy(values: Tensor, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)
