"""Collectives of tensor parallelism over channels, with their derivatives.

A tensor is replicated (the same on every rank), split (each rank has its channels) or partial (its
value is the sum over the ranks). The gradient of a replicated tensor is replicated too. Written by
hand: DTensor's convolution gives wrong numbers for split channels (docs/model-parallelism.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ai500.parallel.engines.mesh import Axis

CHANNELS = 1
"""Dimension of the features in N×C and N×C×H×W."""


Exchange = Callable[[Tensor, Axis], Tensor]


def replicate(x: Tensor, axis: Axis) -> Tensor:
    """Pass a replicated tensor to a layer with split outputs; sum its gradient over ranks."""
    return exchange(x, axis, _identity, all_reduce)


def reduce(x: Tensor, axis: Axis) -> Tensor:
    """Turn a partial tensor into a replicated one."""
    return exchange(x, axis, all_reduce, _identity)


def gather(x: Tensor, axis: Axis) -> Tensor:
    """Turn a split tensor into a replicated one."""
    return exchange(x, axis, _all_gather, _own_channels)


def scatter(x: Tensor, axis: Axis) -> Tensor:
    """Return this rank's channels of a replicated tensor."""
    return exchange(x, axis, _own_channels, _all_gather)


def exchange(x: Tensor, axis: Axis, forward: Exchange, backward: Exchange) -> Tensor:
    """Exchange a tensor among the ranks by `forward`, and its gradient by `backward`."""
    return _Exchange.apply(x, axis, forward, backward)  # type: ignore[no-any-return]


class _Exchange(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, forward: Exchange, backward: Exchange) -> Tensor:
        ctx.axis, ctx.exchange = axis, backward
        return forward(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.exchange(gradient, ctx.axis), None, None, None


def _identity(x: Tensor, axis: Axis) -> Tensor:
    return x.view_as(x)  # a view: autograd takes no input for an output


def all_reduce(x: Tensor, axis: Axis) -> Tensor:
    """Sum over the ranks."""
    total = x.clone(memory_format=_memory_format(x))
    axis.exchanged.add(2 * (axis.size - 1) / axis.size * total.nbytes)  # as a ring sends it
    dist.all_reduce(_in_memory_order(total), group=axis.group)
    return total


def _all_gather(x: Tensor, axis: Axis) -> Tensor:
    own = x.contiguous(memory_format=_memory_format(x))
    parts = [torch.empty_like(own) for _ in range(axis.size)]
    axis.exchanged.add((axis.size - 1) * own.nbytes)
    dist.all_gather(
        [_in_memory_order(part) for part in parts], _in_memory_order(own), group=axis.group
    )
    return torch.cat(parts, CHANNELS)


def _own_channels(x: Tensor, axis: Axis) -> Tensor:
    # A copy: a view would change with the tensor if that is modified in place.
    return x.chunk(axis.size, CHANNELS)[axis.rank].clone()


def _memory_format(x: Tensor) -> torch.memory_format:
    """Return channels-last for images, the format in which models keep them."""
    return torch.channels_last if x.dim() == 4 else torch.contiguous_format


def _in_memory_order(x: Tensor) -> Tensor:
    """View the same memory as a contiguous tensor, which collectives require."""
    return x.movedim(CHANNELS, -1) if x.dim() == 4 else x
