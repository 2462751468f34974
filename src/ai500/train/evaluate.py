"""Predictions of a member on validation and out-of-bag samples, divided among its ranks."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.store import Arrays, Samples
from ai500.parallel.engines import Engine
from ai500.parallel.engines.mesh import Axis
from ai500.records import ProblemClass
from ai500.records.fields import target_names
from ai500.train.device_feed import free_bytes
from ai500.train.evaluation_batch import evaluation_batch_size
from ai500.train.feed import batches_on_device
from ai500.train.generated_samples import generated_samples
from ai500.train.warm_up import on_device
from ai500.workloads.protocol import Workload

Predictions = NDArray[Any]
"""One row per sample, of the type that the workload chose."""
NO_DRAWS = torch.empty(0)  # evaluation does not augment


@dataclass
class Evaluator:
    """Inference with the member's engine; every rank takes part, rank 0 gets the result."""

    workload: Workload
    problem_class: ProblemClass
    engine: Engine
    samples: Samples
    device: torch.device
    batch_size: int

    def warm_up(self) -> None:
        """Predict one batch untimed: an accelerator's libraries choose and compile kernels."""
        if self.device.type != "cpu":
            self.predict_generated()

    def predict_generated(self) -> None:
        """Predict a batch of generated samples on every rank; none is read [D18]."""
        data = self.engine.mesh.data
        each = min(-(-self.samples.count // data.size), self._evaluation_batch_size)
        fields = on_device(generated_samples(self.samples.fields, each), self.device)
        with self.engine.evaluating():
            _gather(self._predict_batch(fields), data)

    def validation(self) -> Predictions | None:
        """Predict the whole validation split; None on ranks other than 0."""
        return self.predict(self.samples, np.arange(self.samples.count))

    def validation_targets(self) -> Arrays:
        """Return the targets of the validation split by name: classes, boxes."""
        names = target_names(self.samples.fields)
        return self.samples.rows(np.arange(self.samples.count), names=names)

    def predict(self, samples: Samples, indices: NDArray[np.int64]) -> Predictions | None:
        """Return a row per index on rank 0, None on the others."""
        first_rank = self.engine.mesh.rank == 0
        if len(indices) == 0:
            return np.zeros((0, 0), dtype=np.float32) if first_rank else None
        data = self.engine.mesh.data
        each = -(-len(indices) // data.size)
        # Every rank predicts equally many; padding repeats the last sample and is cut off below.
        padded = np.pad(indices, (0, each * data.size - len(indices)), mode="edge")
        share = padded[data.rank * each : (data.rank + 1) * each]
        size = self._evaluation_batch_size
        with self.engine.evaluating():
            parts = [
                self._predict_batch(fields)
                for fields, _ in batches_on_device(
                    ((share[first : first + size], NO_DRAWS) for first in range(0, each, size)),
                    samples=samples,
                    device=self.device,
                )
            ]
        gathered = _gather(torch.cat(parts), data)
        return gathered[: len(indices)].cpu().numpy() if first_rank else None

    @functools.cached_property
    def _evaluation_batch_size(self) -> int:
        # Ranks that share a model need one batch size, and may differ in free memory.
        alone = self.engine.mesh.size == 1
        free = free_bytes(self.device) if alone else 0
        return evaluation_batch_size(self.batch_size, self.problem_class.input_shape, free=free)

    def _predict_batch(self, fields: dict[str, Tensor]) -> Tensor:
        inputs = self.workload.evaluation_inputs(self.problem_class, fields)
        return self.workload.predictions(self.engine.predict(inputs), fields)


def _gather(share: Tensor, data: Axis) -> Tensor:
    if data.size == 1:
        return share
    parts = [torch.empty_like(share) for _ in range(data.size)]
    dist.all_gather(parts, share.contiguous(), group=data.group)
    return torch.cat(parts)
