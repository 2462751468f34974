"""Predictions of a member on samples it is judged by, shared out among its ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from ai500.data.store import Samples
from ai500.workloads.protocol import ProblemClass, Workload

LEAST_BATCH = 128


@dataclass
class Evaluator:
    """Runs the model without gradients; every rank takes part, rank 0 gets the result."""

    workload: Workload
    problem_class: ProblemClass
    model: nn.Module
    samples: Samples
    device: torch.device
    rank: int
    world_size: int
    batch_size: int

    def validation(self) -> NDArray[np.float32] | None:
        """Predictions on the whole validation split; None on ranks other than 0."""
        return self.predict(self.samples, np.arange(self.samples.count))

    def validation_labels(self) -> NDArray[np.int64]:
        """The true classes."""
        return self.samples.labels_of(np.arange(self.samples.count))

    def predict(self, samples: Samples, indices: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """A row per index on rank 0, None on the others."""
        if len(indices) == 0:
            return np.zeros((0, 0), dtype=np.float32) if self.rank == 0 else None
        self._share_running_statistics()
        self.model.eval()
        each = -(-len(indices) // self.world_size)
        # Every rank predicts equally many; the last ones repeat a sample, which is cut off again.
        padded = np.pad(indices, (0, each * self.world_size - len(indices)), mode="edge")
        mine = padded[self.rank * each : (self.rank + 1) * each]
        size = max(self.batch_size, LEAST_BATCH)
        with torch.no_grad():
            parts = [
                self._predict_batch(samples, mine[first : first + size])
                for first in range(0, each, size)
            ]
        gathered = self._gather(torch.cat(parts))
        self.model.train()
        return None if gathered is None else gathered[: len(indices)].cpu().numpy()

    def _predict_batch(self, samples: Samples, indices: NDArray[np.int64]) -> Tensor:
        images, _ = samples.rows(indices)
        on_device = torch.from_numpy(images).to(self.device, non_blocking=True)
        inputs = self.workload.evaluation_inputs(self.problem_class, on_device)
        return self.workload.predictions(self.model(inputs)).float()

    def _share_running_statistics(self) -> None:
        """Batch norm's running statistics are rank 0's (they are per replica in training)."""
        if self.world_size > 1:
            for buffer in self.model.buffers():
                dist.broadcast(buffer, src=0)

    def _gather(self, mine: Tensor) -> Tensor | None:
        if self.world_size == 1:
            return mine
        parts = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(parts, mine.contiguous())
        return torch.cat(parts) if self.rank == 0 else None
