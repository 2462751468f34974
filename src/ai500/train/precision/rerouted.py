"""Products by another arithmetic: inside the context, convolutions and linear layers are rerouted.

The model itself is not touched: its parameters keep names and identity, its counted operations stay
the same, and layers that an engine has split are rerouted like whole ones.
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
    """A convolution's geometry; a linear layer is a 1×1 convolution of one pixel."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


class Products:
    """An arithmetic for convolutions; `covers` says for which."""

    def covers(self, kernel: Pair, shape: Shape) -> bool:
        """Whether such a convolution can be computed in this arithmetic."""
        raise NotImplementedError

    def convolution(self, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """N×C×H×W by O×C×h×w, without a bias; differentiable."""
        raise NotImplementedError

    def has_own(self, layer: nn.Module) -> bool:
        """The same question about a layer of a model."""
        if isinstance(layer, nn.Linear):
            return self.covers((1, 1), Shape())
        if isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros":
            shape = _shape(layer.stride, layer.padding, layer.dilation, layer.groups)
            return shape is not None and self.covers(_pair(layer.kernel_size), shape)
        return False


class Rerouted(TorchFunctionMode):
    """Torch's own hook on its functions; it sees the calls that layers make themselves."""

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
    """None for a padding by name ("same"), which no layer of ours has."""
    if isinstance(padding, str):
        return None
    return Shape(_pair(stride), _pair(padding), _pair(dilation), groups)


def _pair(value: Any) -> Pair:
    if isinstance(value, int):
        return value, value
    return (int(value[0]), int(value[-1]))
