"""FP8 products for linear layers and 1×1 convolutions: these are plain matrix products.

Values and weights are e4m3, gradients e5m2, each scaled as a whole by a power of two that brings
its largest number near the format's largest, so that scaling itself rounds nothing. Results are
BF16, weight gradients FP32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.train.precision.rerouted import Pair, Products, Shape

VALUES = torch.float8_e4m3fn
GRADIENTS = torch.float8_e5m2
_MULTIPLE = 16
_POWER = {VALUES: 2.0**8, GRADIENTS: 2.0**15}
"""Largest power of two of each format (the largest numbers are 448 and 57 344)."""
_EXPONENT = 0x7F800000
"""Bits of an FP32 number that hold its exponent: without the others, the power of two below it."""
_TINY = 2.0**-100
"""Less than that is taken for zero: its scale would not be a number."""


class FP8Products(Products):
    """Linear layers and 1×1 convolutions without groups; the rest is autocast's BF16."""

    def covers(self, kernel: Pair, shape: Shape) -> bool:
        """A kernel of one pixel is a matrix product."""
        return kernel == (1, 1) and shape.padding == (0, 0) and shape.groups == 1

    def convolution(self, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """Differentiable, once."""
        seen = x[:, :, :: shape.stride[0], :: shape.stride[1]]
        pixels = seen.permute(0, 2, 3, 1)
        rows = pixels.reshape(-1, pixels.shape[-1])
        product: Tensor = _Product.apply(rows, weight.flatten(1))
        return product.view(*pixels.shape[:-1], -1).permute(0, 3, 1, 2)


class _Product(torch.autograd.Function):
    """rows [m, k] × weight [n, k] transposed; what is kept for the backward pass is FP8, too."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        x, w = scaled(rows, VALUES), scaled(weight, VALUES)
        ctx.save_for_backward(*x, *w)
        ctx.dtype = rows.dtype
        return product(x, w.t(), out=torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        saved = ctx.saved_tensors
        x, w, g = Scaled(*saved[:2]), Scaled(*saved[2:]), scaled(gradients[0], GRADIENTS)
        drows = dweight = None
        if ctx.needs_input_grad[0]:
            drows = product(g, w, out=ctx.dtype)
        if ctx.needs_input_grad[1]:
            dweight = product(g.t(), x, out=torch.float32)
        return drows, dweight


class Scaled(NamedTuple):
    """An FP8 matrix and the factor that undoes its scaling."""

    values: Tensor
    undo: Tensor

    def t(self) -> Scaled:
        """Transposed."""
        return Scaled(self.values.t(), self.undo)


def scaled(values: Tensor, dtype: torch.dtype) -> Scaled:
    """Rounded to nearest; a matrix of zeros stays one. Few operations: each is a launch."""
    largest = torch.linalg.vector_norm(values.detach(), ord=float("inf"), dtype=torch.float32)
    below = largest.clamp_(min=_TINY).view(torch.int32).bitwise_and_(_EXPONENT).view(torch.float32)
    undo = below * (2 / _POWER[dtype])
    return Scaled((values.detach() * undo.reciprocal()).to(dtype), undo)


def product(a: Scaled, b: Scaled, *, out: torch.dtype) -> Tensor:
    """[m, k] × [k, n]; sizes are filled up with zeros to what the kernel takes."""
    m, n = a.values.shape[0], b.values.shape[1]
    found = torch._scaled_mm(
        _filled(a.values),
        _filled(b.values.t()).t(),  # the kernel wants the second matrix column by column
        scale_a=a.undo,
        scale_b=b.undo,
        out_dtype=out,
        use_fast_accum=False,
    )
    return found[:m, :n]


def _filled(values: Tensor) -> Tensor:
    """Contiguous, with sizes that are multiples of 16."""
    rows, columns = values.shape
    as_bytes = values.view(torch.uint8).contiguous()
    if rows % _MULTIPLE or columns % _MULTIPLE:
        as_bytes = F.pad(as_bytes, (0, -columns % _MULTIPLE, 0, -rows % _MULTIPLE))
    return as_bytes.view(values.dtype)
