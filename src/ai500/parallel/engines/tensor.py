"""Tensor parallelism: the model's layers, split according to the workload's plan.

Every rank of the tensor axis gets the same batch and computes a part of each layer's channels.
Outside the split layers all tensors are replicated, so the rest of the model is unchanged.
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
from ai500.parallel.engines.channels import Exchange, gather, reduce, replicate, scatter
from ai500.parallel.engines.mesh import Axis
from ai500.records import ParallelPlan, Split, SplitKind

Operation = Callable[[Tensor, Tensor, Tensor | None], Tensor]

OUTPUTS, INPUTS = 0, 1
"""Dimensions of a weight, the same for convolutions and linear layers."""


def split_layers(module: nn.Module, plan: ParallelPlan, axis: Axis) -> dict[str, int]:
    """Replace layers by this rank's part; return parameter or buffer → its split dimension."""
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
    """Return unsharded L2 norms; tensors of the parameters with an id in `split` are sharded."""
    squares = torch.stack([tensor.detach().double().square().sum() for tensor in tensors])
    divided = torch.tensor(
        [id(parameter) in split for parameter in parameters], device=squares.device
    )
    total = torch.where(divided, squares, 0.0)
    dist.all_reduce(total, group=axis.group)
    whole = torch.where(divided, total, squares).sqrt()
    return [norm.to(tensor.dtype) for norm, tensor in zip(whole, tensors, strict=True)]


Splittable = nn.Conv2d | nn.Conv3d | nn.Linear


class Columns(nn.Module):
    """Layer with split output channels: replicated input, this rank's (or all) channels out."""

    def __init__(self, layer: Splittable, axis: Axis, *, after: Exchange) -> None:
        super().__init__()
        self.weight = _local_part(layer.weight, OUTPUTS, axis)
        self.bias = None if layer.bias is None else _local_part(layer.bias, OUTPUTS, axis)
        self._operation = _operation(layer)
        self._after = after
        self._axis = axis

    def forward(self, x: Tensor) -> Tensor:
        outputs = self._operation(replicate(x, self._axis), self.weight, self.bias)
        return self._after(outputs, self._axis)


class Rows(nn.Module):
    """Layer with split input channels: this rank's channels in, the sum over ranks out."""

    def __init__(self, layer: Splittable, axis: Axis, *, before: Exchange) -> None:
        super().__init__()
        self.weight = _local_part(layer.weight, INPUTS, axis)
        self.bias = layer.bias
        # Features are the last dimension of a linear layer; in a convolution space follows them.
        self._bias_shape = (-1, *(1 for _ in layer.weight.shape[2:]))
        self._operation = _operation(layer)
        self._before = before
        self._axis = axis

    def forward(self, x: Tensor) -> Tensor:
        partial_sum = self._operation(self._before(x, self._axis), self.weight, None)
        total = reduce(partial_sum, self._axis)
        if self.bias is None:
            return total
        # After the sum, so that it is added once.
        return total + self.bias.to(total.dtype).view(self._bias_shape)


def _operation(layer: Splittable) -> Operation:
    if isinstance(layer, nn.Linear):
        return F.linear
    convolve = F.conv3d if isinstance(layer, nn.Conv3d) else F.conv2d
    return partial(convolve, stride=layer.stride, padding=layer.padding, dilation=layer.dilation)


def _local_part(parameter: Tensor, dimension: int, axis: Axis) -> nn.Parameter:
    """Copy this rank's part in the same memory format, so that the whole can be freed."""
    part = parameter.detach().chunk(axis.size, dimension)[axis.rank]
    return nn.Parameter(part.clone(), requires_grad=parameter.requires_grad)


def _identity(x: Tensor, axis: Axis) -> Tensor:
    del axis
    return x


def _columns(layer: nn.Module, axis: Axis, *, after: Exchange) -> tuple[nn.Module, dict[str, int]]:
    assert isinstance(layer, Splittable)
    return Columns(layer, axis, after=after), {"weight": OUTPUTS, "bias": OUTPUTS}


def _rows(layer: nn.Module, axis: Axis, *, before: Exchange) -> tuple[nn.Module, dict[str, int]]:
    assert isinstance(layer, Splittable)
    return Rows(layer, axis, before=before), {"weight": INPUTS}


def _channels(layer: nn.Module, axis: Axis) -> tuple[nn.Module, dict[str, int]]:
    """Split a batch norm: channels have independent statistics."""
    assert isinstance(layer, _BatchNorm)
    layer.num_features //= axis.size
    dimensions = {}
    for name in ("weight", "bias"):
        setattr(layer, name, _local_part(getattr(layer, name), 0, axis))
        dimensions[name] = 0
    for name in ("running_mean", "running_var"):
        part = getattr(layer, name).chunk(axis.size)[axis.rank].clone()
        setattr(layer, name, part)
        dimensions[name] = 0
    return layer, dimensions


_SPLITTERS: dict[SplitKind, Callable[[nn.Module, Axis], tuple[nn.Module, dict[str, int]]]] = {
    "columns": partial(_columns, after=_identity),
    "columns_gathered": partial(_columns, after=gather),
    "rows": partial(_rows, before=_identity),
    "rows_of_whole": partial(_rows, before=scatter),
    "channels": _channels,
}


def _check(name: str, layer: nn.Module, split: Split, axis: Axis) -> None:
    """Check that the layer can be split this way and is as wide as planned."""
    channels = _split_channels(layer, split)
    if channels is None:
        raise AI500Error(
            f"{name} is a {type(layer).__name__}: it can't be split by {split.kind}.",
            key="parallel.mode",
            remedy="Correct the workload's parallel plan, or set another parallel.mode.",
        )
    if channels != split.channels or split.groups % axis.size:
        raise AI500Error(
            f"{name} has {channels} channels, the workload's parallel plan says {split.channels}; "
            f"{axis.size} ranks have to share them."
        )


def _split_channels(layer: nn.Module, split: Split) -> int | None:
    """Return the number of channels to split; None for a layer that can't be split."""
    if split.kind == "channels":
        return layer.num_features if isinstance(layer, _BatchNorm) and layer.affine else None
    plain = isinstance(layer, nn.Linear) or (
        isinstance(layer, nn.Conv2d | nn.Conv3d)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
    )
    if not plain:
        return None
    weight = layer.get_parameter("weight")
    return weight.shape[OUTPUTS if split.kind.startswith("columns") else INPUTS]
