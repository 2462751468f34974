"""FP8 products for linear layers and 1×1 convolutions: these are plain matrix products.

Values and weights are e4m3, gradients e5m2. Each tensor is scaled by a power of two that brings its
largest number near the format's largest, so that scaling itself is exact. Results are BF16, weight
gradients FP32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.train.precision.custom_products import Pair, Products, Shape

VALUES = torch.float8_e4m3fn
GRADIENTS = torch.float8_e5m2
_MULTIPLE = 16  # sizes that torch._scaled_mm accepts
_POWER = {VALUES: 2.0**8, GRADIENTS: 2.0**15}
"""Largest power of two of each format (the largest numbers are 448 and 57 344)."""
# Exponent bits of FP32: a number with all other bits cleared is the power of two below it.
_EXPONENT = 0x7F800000
# Smaller magnitudes count as zero: their scale would not be finite.
_TINY = 2.0**-100


class FP8Products(Products):
    """Products of linear layers and 1×1 convolutions without groups; the rest is BF16."""

    def covers(self, kernel: Pair, shape: Shape) -> bool:
        """Cover kernels of one pixel: they are matrix products."""
        return kernel == (1, 1) and shape.padding == (0, 0) and shape.groups == 1

    def convolution(self, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """Convolve in FP8; differentiable once."""
        strided = x[:, :, :: shape.stride[0], :: shape.stride[1]]
        pixels = strided.permute(0, 2, 3, 1)
        rows = pixels.reshape(-1, pixels.shape[-1])
        product: Tensor = _Product.apply(rows, weight.flatten(1))
        return product.view(*pixels.shape[:-1], -1).permute(0, 3, 1, 2)


class _Product(torch.autograd.Function):
    """Product of rows [m, k] and weight [n, k] transposed; saves FP8 for the backward pass."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        x, w = quantize(rows, VALUES), quantize(weight, VALUES)
        ctx.save_for_backward(*x, *w)
        ctx.dtype = rows.dtype
        return product(x, w.t(), out=torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        saved = ctx.saved_tensors
        x, w, g = Scaled(*saved[:2]), Scaled(*saved[2:]), quantize(gradients[0], GRADIENTS)
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
        """Transpose."""
        return Scaled(self.values.t(), self.undo)


def quantize(values: Tensor, dtype: torch.dtype) -> Scaled:
    """Scale and round to nearest; zeros stay zeros. Few operations, since each is a launch."""
    largest = torch.linalg.vector_norm(values.detach(), ord=float("inf"), dtype=torch.float32)
    below = largest.clamp_(min=_TINY).view(torch.int32).bitwise_and_(_EXPONENT).view(torch.float32)
    undo = below * (2 / _POWER[dtype])
    return Scaled((values.detach() * undo.reciprocal()).to(dtype), undo)


def product(a: Scaled, b: Scaled, *, out: torch.dtype) -> Tensor:
    """Multiply [m, k] × [k, n], padded with zeros to sizes that the kernel accepts."""
    m, n = a.values.shape[0], b.values.shape[1]
    padded = torch._scaled_mm(
        _pad(a.values),
        _pad(b.values.t()).t(),  # the kernel needs the second matrix in column-major order
        scale_a=a.undo,
        scale_b=b.undo,
        out_dtype=out,
        use_fast_accum=False,
    )
    return padded[:m, :n]


def _pad(values: Tensor) -> Tensor:
    """Make contiguous, with sizes that are multiples of 16."""
    rows, columns = values.shape
    as_bytes = values.view(torch.uint8).contiguous()
    if rows % _MULTIPLE or columns % _MULTIPLE:
        as_bytes = F.pad(as_bytes, (0, -columns % _MULTIPLE, 0, -rows % _MULTIPLE))
    return as_bytes.view(values.dtype)
