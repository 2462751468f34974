"""Tensor parallelism: the model's own layers split as the workload's plan says.

Every rank of the tensor axis sees the same batch and computes a part of each layer's channels.
Outside the split layers all tensors are whole, so the rest of the model does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from ai500.core.errors import AI500Error
from ai500.parallel.engines.channels import enter, gathered, own, summed
from ai500.parallel.engines.mesh import Axis
from ai500.records import ParallelPlan, Split, SplitKind

Operation = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Exchange = Callable[[Tensor, Axis], Tensor]

OUTPUTS, INPUTS = 0, 1
"""Dimensions of a weight, of convolutions and linear layers alike."""


def split_layers(module: nn.Module, plan: ParallelPlan, axis: Axis) -> dict[str, int]:
    """Replace layers by this rank's part; parameter or buffer → the dimension it is split along."""
    splits: dict[str, int] = {}
    for name, layer in list(module.named_modules()):
        split = plan.split_of(name)
        if split is None:
            continue
        _check(name, layer, split, axis)
        replaced, dimensions = _SPLITTERS[split.kind](layer, axis)
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, replaced)
        splits |= {f"{name}.{key}": dimension for key, dimension in dimensions.items()}
    return splits


def split_norms(
    tensors: Sequence[Tensor], parameters: Sequence[nn.Parameter], *, split: set[int], axis: Axis
) -> list[Tensor]:
    """L2 norms of whole tensors, of which those with a split parameter are split like it."""
    squares = torch.stack([one.detach().double().square().sum() for one in tensors])
    divided = torch.tensor([id(one) in split for one in parameters], device=squares.device)
    total = torch.where(divided, squares, 0.0)
    dist.all_reduce(total, group=axis.group)
    whole = torch.where(divided, total, squares).sqrt()
    return [norm.to(one.dtype) for norm, one in zip(whole, tensors, strict=True)]


class Columns(nn.Module):
    """Output channels split: the whole input in, this rank's channels (or all of them) out."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, axis: Axis, *, after: Exchange) -> None:
        super().__init__()
        self.weight = _own_part(layer.weight, OUTPUTS, axis)
        self.bias = None if layer.bias is None else _own_part(layer.bias, OUTPUTS, axis)
        self._operation = _operation(layer)
        self._after = after
        self._axis = axis

    def forward(self, x: Tensor) -> Tensor:
        mine = self._operation(enter(x, self._axis), self.weight, self.bias)
        return self._after(mine, self._axis)


class Rows(nn.Module):
    """Input channels split: this rank's channels in, the sum over the ranks out."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, axis: Axis, *, before: Exchange) -> None:
        super().__init__()
        self.weight = _own_part(layer.weight, INPUTS, axis)
        self.bias = layer.bias
        # A linear layer's features are the last dimension, a convolution's have two behind them.
        self._bias_shape = (-1,) if isinstance(layer, nn.Linear) else (-1, 1, 1)
        self._operation = _operation(layer)
        self._before = before
        self._axis = axis

    def forward(self, x: Tensor) -> Tensor:
        partial_sum = self._operation(self._before(x, self._axis), self.weight, None)
        total = summed(partial_sum, self._axis)
        if self.bias is None:
            return total
        # Once, not on every rank: after the sum.
        return total + self.bias.to(total.dtype).view(self._bias_shape)


def _operation(layer: nn.Conv2d | nn.Linear) -> Operation:
    if isinstance(layer, nn.Linear):
        return F.linear
    return partial(F.conv2d, stride=layer.stride, padding=layer.padding, dilation=layer.dilation)


def _own_part(parameter: Tensor, dimension: int, axis: Axis) -> nn.Parameter:
    """A copy in the same memory order, so that the rest of the whole can be freed."""
    part = parameter.detach().chunk(axis.size, dimension)[axis.rank]
    return nn.Parameter(part.clone(), requires_grad=parameter.requires_grad)


def _as_it_is(x: Tensor, axis: Axis) -> Tensor:
    del axis
    return x


def _columns(layer: nn.Module, axis: Axis, *, after: Exchange) -> tuple[nn.Module, dict[str, int]]:
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    return Columns(layer, axis, after=after), {"weight": OUTPUTS, "bias": OUTPUTS}


def _rows(layer: nn.Module, axis: Axis, *, before: Exchange) -> tuple[nn.Module, dict[str, int]]:
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    return Rows(layer, axis, before=before), {"weight": INPUTS}


def _channels(layer: nn.Module, axis: Axis) -> tuple[nn.Module, dict[str, int]]:
    """Batch norm over this rank's channels: each channel's statistics are its own."""
    assert isinstance(layer, _BatchNorm)
    layer.num_features //= axis.size
    dimensions = {}
    for name in ("weight", "bias"):
        setattr(layer, name, _own_part(getattr(layer, name), 0, axis))
        dimensions[name] = 0
    for name in ("running_mean", "running_var"):
        mine = getattr(layer, name).chunk(axis.size)[axis.rank].clone()
        setattr(layer, name, mine)
        dimensions[name] = 0
    return layer, dimensions


_SPLITTERS: dict[SplitKind, Callable[[nn.Module, Axis], tuple[nn.Module, dict[str, int]]]] = {
    "columns": partial(_columns, after=_as_it_is),
    "columns_gathered": partial(_columns, after=gathered),
    "rows": partial(_rows, before=_as_it_is),
    "rows_of_whole": partial(_rows, before=own),
    "channels": _channels,
}


def _check(name: str, layer: nn.Module, split: Split, axis: Axis) -> None:
    """The layer is one that can be split so, and as wide as the plan says."""
    found = _divided(layer, split)
    if found is None:
        raise AI500Error(
            f"{name} is a {type(layer).__name__}: it can't be split by {split.kind}. "
            "Correct the workload's parallel plan, or set another parallel.mode."
        )
    if found != split.channels or found % axis.size:
        raise AI500Error(
            f"{name} has {found} channels, the workload's parallel plan says {split.channels}; "
            f"{axis.size} ranks have to share them."
        )


def _divided(layer: nn.Module, split: Split) -> int | None:
    """How many channels are divided; None: not a layer that can be."""
    if split.kind == "channels":
        return layer.num_features if isinstance(layer, _BatchNorm) and layer.affine else None
    plain = isinstance(layer, nn.Linear) or (
        isinstance(layer, nn.Conv2d) and layer.groups == 1 and layer.padding_mode == "zeros"
    )
    if not plain:
        return None
    weight = layer.get_parameter("weight")
    return weight.shape[OUTPUTS if split.kind.startswith("columns") else INPUTS]
