"""Predictions of a member on samples it is judged by, shared out among its ranks."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from ai500.data.store import Samples
from ai500.parallel.engines import Engine
from ai500.parallel.engines.mesh import Axis
from ai500.records import ProblemClass
from ai500.train.feed import arriving
from ai500.train.memory import free_bytes
from ai500.workloads.protocol import Workload

NOTHING = torch.empty(0)
"""Evaluation draws nothing."""
LEAST_BATCH, LEAST_VALUES = 128, 128 * 3 * 224 * 224
"""Without gradients a batch may be larger: so many images, or so many values if that is less."""
LARGER, SHARE_OF_MEMORY = 4, 1 / 50
"""Times the training's batch, up to as many times the least, where the inputs in FP32 take no more
than this share of a GPU's free memory: its host then launches fewer kernels. Activations of
ResNet-50 take 19 times as much as its inputs, and others may share the GPU."""


@dataclass
class Evaluator:
    """Runs the model without gradients; every rank takes part, rank 0 gets the result."""

    workload: Workload
    problem_class: ProblemClass
    engine: Engine
    samples: Samples
    device: torch.device
    batch_size: int

    def warm_up(self) -> None:
        """One batch before anything is timed: an accelerator's libraries choose and compile."""
        if self.device.type != "cpu":
            all_ranks = self.engine.mesh.data.size * self._images_at_once
            self.predict(self.samples, np.arange(min(self.samples.count, all_ranks)))

    def validation(self) -> NDArray[np.float32] | None:
        """Predictions on the whole validation split; None on ranks other than 0."""
        return self.predict(self.samples, np.arange(self.samples.count))

    def validation_labels(self) -> NDArray[Any]:
        """What is true of the samples: classes, boxes."""
        return self.samples.labels_of(np.arange(self.samples.count))

    def predict(self, samples: Samples, indices: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """A row per index on rank 0, None on the others."""
        first_rank = self.engine.mesh.rank == 0
        if len(indices) == 0:
            return np.zeros((0, 0), dtype=np.float32) if first_rank else None
        data = self.engine.mesh.data
        each = -(-len(indices) // data.size)
        # Every rank predicts equally many; the last ones repeat a sample, which is cut off again.
        padded = np.pad(indices, (0, each * data.size - len(indices)), mode="edge")
        mine = padded[data.rank * each : (data.rank + 1) * each]
        size = self._images_at_once
        with self.engine.evaluating():
            parts = [
                self._predict_batch(images)
                for images, _, _ in arriving(
                    ((mine[first : first + size], NOTHING) for first in range(0, each, size)),
                    samples=samples,
                    device=self.device,
                )
            ]
        gathered = _gather(torch.cat(parts), data)
        return gathered[: len(indices)].cpu().numpy() if first_rank else None

    @functools.cached_property
    def _images_at_once(self) -> int:
        # Ranks that share a model have to agree, and may not have the same memory.
        alone = self.engine.mesh.size == 1
        free = free_bytes(self.device) if alone else 0
        return images_at_once(self.batch_size, self.problem_class.input_shape, free=free)

    def _predict_batch(self, images: Tensor) -> Tensor:
        inputs = self.workload.evaluation_inputs(self.problem_class, images)
        return self.workload.predictions(self.engine.predict(inputs)).float()


def images_at_once(batch_size: int, input_shape: tuple[int, ...], *, free: int) -> int:
    """In an evaluation of a member that trains with such batches; `free`: bytes of a GPU."""
    values = math.prod(input_shape)
    least = min(LEAST_BATCH, LEAST_VALUES // values)
    larger = LARGER * min(batch_size, least)
    fits = larger * values * torch.float32.itemsize <= SHARE_OF_MEMORY * free
    return max(batch_size, least, larger if fits else 0)


def _gather(mine: Tensor, data: Axis) -> Tensor:
    if data.size == 1:
        return mine
    parts = [torch.empty_like(mine) for _ in range(data.size)]
    dist.all_gather(parts, mine.contiguous(), group=data.group)
    return torch.cat(parts)
