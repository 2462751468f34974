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
        self._world_size = world_size
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

    def settle(self, inputs: Tensor, labels: Tensor) -> None:
        """Let DDP lay out its buckets, which it does anew after its first backward pass.

        Over more than two ranks the layout decides in which order gradients are summed: a member
        that starts again would round its first step differently from one that went on.
        """
        if self._world_size > 2:
            buffers = [buffer.clone() for buffer in self.module.buffers()]
            self.forward_backward(inputs, labels)
            self.module.zero_grad(set_to_none=True)
            for buffer, before in zip(self.module.buffers(), buffers, strict=True):
                buffer.copy_(before)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All of them: every rank holds the whole model."""
        return self.module.parameters()
