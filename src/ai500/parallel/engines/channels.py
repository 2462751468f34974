"""Channels among tensor-parallel ranks: four exchanges, each the other's derivative.

A tensor is `whole` (the same on every rank), `split` (each rank has its channels) or `partial`
(the sum over the ranks is meant). A gradient of a whole tensor is whole too. Written by hand:
DTensor's convolution gives wrong numbers for split channels (docs/model-parallelism.md).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ai500.parallel.engines.mesh import Axis

CHANNELS = 1
"""The dimension of features in N×C and N×C×H×W."""


def enter(x: Tensor, axis: Axis) -> Tensor:
    """A whole tensor into a layer with split outputs: its gradient is the sum of all ranks'."""
    return _Enter.apply(x, axis)  # type: ignore[no-any-return]


def summed(x: Tensor, axis: Axis) -> Tensor:
    """A partial tensor to a whole one."""
    return _Sum.apply(x, axis)  # type: ignore[no-any-return]


def gathered(x: Tensor, axis: Axis) -> Tensor:
    """A split tensor to a whole one."""
    return _Gather.apply(x, axis)  # type: ignore[no-any-return]


def own(x: Tensor, axis: Axis) -> Tensor:
    """This rank's channels of a whole tensor."""
    return _Own.apply(x, axis)  # type: ignore[no-any-return]


class _Enter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all_reduced(gradient, ctx.axis), None


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        return _all_reduced(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return _all_gathered(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _own_channels(gradient, ctx.axis), None


class _Own(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return _own_channels(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all_gathered(gradient, ctx.axis), None


def _all_reduced(x: Tensor, axis: Axis) -> Tensor:
    total = x.clone(memory_format=_memory_format(x))
    dist.all_reduce(_as_it_lies(total), group=axis.group)
    return total


def _all_gathered(x: Tensor, axis: Axis) -> Tensor:
    mine = x.contiguous(memory_format=_memory_format(x))
    parts = [torch.empty_like(mine) for _ in range(axis.size)]
    dist.all_gather([_as_it_lies(part) for part in parts], _as_it_lies(mine), group=axis.group)
    return torch.cat(parts, CHANNELS)


def _own_channels(x: Tensor, axis: Axis) -> Tensor:
    # A copy: a view of part of a tensor that others change in place would change with it.
    return x.chunk(axis.size, CHANNELS)[axis.rank].clone()


def _memory_format(x: Tensor) -> torch.memory_format:
    """Images have their channels last in memory, as the models keep them."""
    return torch.channels_last if x.dim() == 4 else torch.contiguous_format


def _as_it_lies(x: Tensor) -> Tensor:
    """The same memory as a contiguous tensor, which is what can be sent."""
    return x.movedim(CHANNELS, -1) if x.dim() == 4 else x
