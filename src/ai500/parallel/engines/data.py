"""Data parallelism: each rank has the whole model and a share of the batch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ai500.parallel.engines import Loss

# Renamed in torch 2.13; the old name warns there.
_SYNC_BUFFERS_EACH_STEP = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)


class DataParallel:
    """Gradients are averaged by DDP's synchronous all-reduce; batch norm is per replica.

    Running statistics are rank 0's: buffers are not broadcast at each step (they do not enter a
    training step) but before an evaluation.
    """

    def __init__(self, module: nn.Module, loss: Loss, *, device: torch.device, world_size: int):
        self.module = module
        self._loss = loss
        self._forward: nn.Module = module
        if world_size > 1:
            self._forward = DistributedDataParallel(
                module,
                device_ids=None if device.type == "cpu" else [device.index],
                gradient_as_bucket_view=True,
                **{_SYNC_BUFFERS_EACH_STEP: False},  # type: ignore[arg-type]
            )

    def forward_backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Gradients accumulate into `.grad`; the caller has cleared them."""
        loss = self._loss(self._forward(inputs), labels)
        loss.backward()
        return loss.detach()

    def parameters(self) -> Iterator[nn.Parameter]:
        """All of them: every rank holds the whole model."""
        return self.module.parameters()
