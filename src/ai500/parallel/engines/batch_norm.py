"""Synchronized batch norm: statistics of the whole batch, over all data-parallel ranks.

Torch's own SyncBatchNorm has no CPU kernel. This one is plain torch around two all-reduces,
exact to rounding: the mean first, then the squared distances from it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from ai500.core.errors import AI500Error
from ai500.parallel.engines.channels import all_reduce, exchange
from ai500.parallel.engines.mesh import Axis


def synchronize(module: nn.Module, axis: Axis) -> None:
    """Replace every batch norm inside `module`; names, parameters and buffers stay."""
    # A process group of its own: gradients may be in flight at the same time.
    ranks = dist.get_process_group_ranks(axis.group)
    group = dist.new_group(ranks, use_local_synchronization=True)
    axis = replace(axis, group=group)
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, SynchronizedBatchNorm(child, axis))


class SynchronizedBatchNorm(nn.Module):
    """Batch norm with training statistics over the samples of all ranks."""

    def __init__(self, norm: _BatchNorm, axis: Axis) -> None:
        super().__init__()
        if norm.momentum is None or not norm.affine or not norm.track_running_stats:
            raise AI500Error(
                "batch norm without γ and β, without running statistics or with a cumulative "
                "average can't be synchronized.",
                key="parallel.batch_norm",
                value="synchronized",
                remedy='Set parallel.batch_norm = "replica".',
            )
        self.weight, self.bias = norm.weight, norm.bias
        self.momentum, self.eps = norm.momentum, norm.eps
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        self._axis = axis

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        exact = x.to(torch.promote_types(x.dtype, self.running_mean.dtype))
        samples = x.numel() // x.shape[1] * self._axis.size
        over = [d for d in range(x.dim()) if d != 1]
        mean = _all_reduce(exact.sum(over), self._axis) / samples
        centred = exact - _per_channel(mean, x)
        variance = _all_reduce(centred.square().sum(over), self._axis) / samples
        self._track(mean.detach(), variance.detach(), samples)
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centred * _per_channel(scale, x) + _per_channel(self.bias, x)).to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, samples: int) -> None:
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (samples / (samples - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


def _per_channel(value: Tensor, x: Tensor) -> Tensor:
    return value.view(1, -1, *[1] * (x.dim() - 2))


def _all_reduce(x: Tensor, axis: Axis) -> Tensor:
    """Sum over ranks; its gradient is summed too: every rank's loss depends on every value."""
    return exchange(x, axis, all_reduce, all_reduce)
