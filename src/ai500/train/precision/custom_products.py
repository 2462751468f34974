"""Convolutions and linear layers in another arithmetic, inside a context.

The model itself does not change: its parameters keep names and identity, its counted operations
stay the same, and layers that an engine has split are covered like whole ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Geometry of a convolution; a linear layer is a 1×1 convolution of one pixel."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


class Products:
    """An arithmetic for those convolutions that it covers."""

    def covers(self, kernel: Pair, shape: Shape) -> bool:
        """Return whether this arithmetic computes such a convolution."""
        raise NotImplementedError

    def convolution(self, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """Convolve N×C×H×W by O×C×h×w, without a bias; differentiable."""
        raise NotImplementedError

    def has_own(self, layer: nn.Module) -> bool:
        """Return whether this arithmetic computes a layer of a model."""
        if isinstance(layer, nn.Linear):
            return self.covers((1, 1), Shape())
        if isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros":
            shape = _shape(layer.stride, layer.padding, layer.dilation, layer.groups)
            return shape is not None and self.covers(_pair(layer.kernel_size), shape)
        return False


class ProductMode(TorchFunctionMode):
    """Hook on torch's functions that replaces the covered convolutions and linear layers."""

    def __init__(self, products: Products) -> None:
        super().__init__()
        self._products = products

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            return self._linear(*args, **kwargs)
        if func is F.conv2d:
            return self._convolution(*args, **kwargs)
        return func(*args, **kwargs)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if not self._products.covers((1, 1), Shape()):
            return F.linear(input, weight, bias)
        rows = input.reshape(-1, input.shape[-1])
        out = self._products.convolution(
            rows[:, :, None, None], weight[:, :, None, None], Shape()
        ).reshape(*input.shape[:-1], weight.shape[0])
        return out if bias is None else out + bias.to(out.dtype)

    def _convolution(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        shape = _shape(stride, padding, dilation, groups)
        kernel = (int(weight.shape[2]), int(weight.shape[3]))
        if shape is None or not self._products.covers(kernel, shape):
            return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
        out = self._products.convolution(input, weight, shape)
        return out if bias is None else out + bias.to(out.dtype)[:, None, None]


def _shape(stride: Any, padding: Any, dilation: Any, groups: int) -> Shape | None:
    """Return the geometry; None for a padding by name ("same"), which no built-in layer has."""
    if isinstance(padding, str):
        return None
    return Shape(_pair(stride), _pair(padding), _pair(dilation), groups)


def _pair(value: Any) -> Pair:
    if isinstance(value, int):
        return value, value
    return (int(value[0]), int(value[-1]))
