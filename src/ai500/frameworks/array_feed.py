"""Batches and predictions of a member in NumPy's arrays, for every framework's backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.data.store import Arrays, Samples
from ai500.frameworks.backend import Backend
from ai500.records import ProblemClass
from ai500.records.fields import target_names
from ai500.train.batch_order import augmentation_draws, rank_indices
from ai500.train.evaluation_batch import evaluation_batch_size
from ai500.train.generated_samples import generated_samples
from ai500.train.read_ahead import read_ahead

QUEUED_BATCHES = 2  # batches that are read, and on their way to the device, while a step runs


@dataclass(frozen=True, slots=True)
class ArrayFeed:
    """Batches of one epoch for one rank, the same samples and draws as the reference's feed."""

    samples: Samples
    backend: Backend
    seed: int
    member: int
    rank: int
    world_size: int
    batch_size: int
    """Images of one optimizer step on this rank."""
    draws_per_sample: int
    reads_ahead: bool
    """True for an accelerator: a thread reads while it trains. On a CPU nothing would overlap."""

    @property
    def global_batch_size(self) -> int:
        """Images of one optimizer step on all ranks."""
        return self.batch_size * self.world_size

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Any]:
        """Yield the epoch's placed batches from `first_step` on."""
        steps = range(first_step, len(order) // self.global_batch_size)
        batches = (self._batch(epoch, order, step) for step in steps)
        return read_ahead(batches, queued=QUEUED_BATCHES) if self.reads_ahead else batches

    def warm_up_batch(self) -> Any:
        """Place a generated batch: no sample is read before the timed window [D18]."""
        draws = np.full((self.batch_size, self.draws_per_sample), 0.5, dtype=np.float32)
        return self.backend.place(generated_samples(self.samples.fields, self.batch_size), draws)

    def _batch(self, epoch: int, order: NDArray[np.int64], step: int) -> Any:
        indices = rank_indices(
            order, range(step, step + 1),
            rank=self.rank, batch_size=self.batch_size, world_size=self.world_size,
        )[0]  # fmt: skip
        draws = augmentation_draws(
            self.seed, self.member, epoch, step,
            samples=self.global_batch_size, draws_per_sample=self.draws_per_sample,
        )  # fmt: skip
        share = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        return self.backend.place(self.samples.rows(indices), draws[share])


@dataclass(frozen=True, slots=True)
class ArrayEvaluator:
    """Predictions on validation and out-of-bag samples, divided among the ranks."""

    problem_class: ProblemClass
    backend: Backend
    samples: Samples
    rank: int
    world_size: int
    batch_size: int

    def warm_up(self) -> None:
        """Predict a generated batch of every size that evaluation has [D18]."""
        count, size = self._share(self.samples.count), self._batch_size
        for rows in {min(size, count), count % size or size}:
            self.backend.predict(generated_samples(self.samples.fields, rows))

    def validation(self) -> NDArray[Any] | None:
        """Predict the whole validation split; None on ranks other than 0."""
        return self.predict(self.samples, np.arange(self.samples.count))

    def validation_targets(self) -> Arrays:
        """Return the targets of the validation split by name."""
        names = target_names(self.samples.fields)
        return self.samples.rows(np.arange(self.samples.count), names=names)

    def predict(self, samples: Samples, indices: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return a row per index on rank 0, None on the others."""
        if len(indices) == 0:
            return np.zeros((0, 0), dtype=np.float32) if self.rank == 0 else None
        each, size = self._share(len(indices)), self._batch_size
        # Every rank predicts equally many; padding repeats the last sample and is cut off below.
        padded = np.pad(indices, (0, each * self.world_size - len(indices)), mode="edge")
        share = padded[self.rank * each : (self.rank + 1) * each]
        self.backend.use_first_statistics()
        parts = [
            self.backend.predict(samples.rows(share[first : first + size]))
            for first in range(0, each, size)
        ]
        rows = np.concatenate(parts)
        gathered = self.backend.gather(rows) if self.world_size > 1 else rows
        return gathered[: len(indices)] if self.rank == 0 else None

    @property
    def _batch_size(self) -> int:
        return evaluation_batch_size(self.batch_size, self.problem_class.input_shape, free=0)

    def _share(self, count: int) -> int:
        return -(-count // self.world_size)
