"""Training samples that stay in the accelerator's memory: a step gathers its batch there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.bootstrap import Counts
from ai500.data.store import Samples
from ai500.records.fields import sample_bytes
from ai500.train.feed import Batch, Feed, tensors

# Largest fraction of free device memory for samples; the rest is for the models.
LARGEST_SHARE = 0.2
# Bytes read from the store at once: bounds the host's memory while samples are loaded.
READ_BYTES = 1 << 28
SIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
# Steps whose indices and draws go to the device in one copy: fewer small transfers.
STEPS_PER_COPY = 64


@dataclass(frozen=True)
class DeviceSamples:
    """Samples in device memory; `rows` maps a sample to its row, −1 where no member drew it."""

    fields: dict[str, Tensor]
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
                fields = {name: _select(values, rows) for name, values in resident.fields.items()}
                yield Batch(fields, draws)


def fits(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> bool:
    """Return whether all samples of these bootstraps fit into their share of device memory.

    Ragged samples are read for each step: their batches have no fixed size.
    """
    if any(field.ragged for field in samples.fields):
        return False
    size = len(_used(counts)) * sample_bytes(samples.fields)
    return device.type != "cuda" or size <= LARGEST_SHARE * free_bytes(device)


def load(samples: Samples, counts: Sequence[Counts], *, device: torch.device) -> DeviceSamples:
    """Load all samples of these bootstraps into device memory."""
    used = _used(counts)
    first_row = tensors(samples.rows(used[:1]))
    fields = {
        name: torch.empty((len(used), *row.shape[1:]), dtype=row.dtype, device=device)
        for name, row in first_row.items()
    }
    rows_per_read = max(1, READ_BYTES // sample_bytes(samples.fields))
    for first in range(0, len(used), rows_per_read):
        part = slice(first, first + rows_per_read)
        for name, rows in tensors(samples.rows(used[part])).items():
            fields[name][part] = rows.to(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # other members read them on streams of their own
    places = np.full(samples.count, -1, dtype=np.int64)
    places[used] = np.arange(len(used))
    return DeviceSamples(fields, places)


def _select(values: Tensor, rows: Tensor) -> Tensor:
    # torch selects rows of signed types only: a row is the same bytes in either.
    signed = SIGNED.get(values.dtype)
    if signed is None:
        return values.index_select(0, rows)
    return values.view(signed).index_select(0, rows).view(values.dtype)


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
