"""FP8 products for linear layers and 1×1 convolutions: these are plain matrix products.

Values and weights are e4m3, gradients e5m2, each scaled as a whole so that its largest number is
the format's largest; sums are FP32 inside the tensor cores, results BF16, weight gradients FP32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.train.precision.rerouted import Pair, Products, Shape

VALUES = torch.float8_e4m3fn
GRADIENTS = torch.float8_e5m2
_MULTIPLE = 16
_TINY = torch.finfo(torch.float32).tiny


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
    """rows [m, k] × weight [n, k] transposed."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return scaled_product(
            (rows.detach(), VALUES), (weight.detach().t(), VALUES), out=torch.bfloat16
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        rows, weight = ctx.saved_tensors
        drows = dweight = None
        if ctx.needs_input_grad[0]:
            drows = scaled_product((gradients[0], GRADIENTS), (weight, VALUES), out=rows.dtype)
        if ctx.needs_input_grad[1]:
            dweight = scaled_product(
                (gradients[0].t(), GRADIENTS), (rows, VALUES), out=torch.float32
            )
        return drows, dweight


def scaled_product(
    a: tuple[Tensor, torch.dtype], b: tuple[Tensor, torch.dtype], *, out: torch.dtype
) -> Tensor:
    """[m, k] × [k, n] in FP8; sizes are filled up with zeros to what the kernel takes."""
    (qa, scale_a), (qb, scale_b) = (_scaled(*a), _scaled(*b))
    m, n = qa.shape[0], qb.shape[1]
    product = torch._scaled_mm(
        _filled(qa),
        _filled(qb.t()).t(),  # the kernel wants the second matrix column by column
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=out,
        use_fast_accum=False,
    )
    return product[:m, :n]


def _scaled(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """FP8 and the factor that undoes the scaling."""
    largest = values.abs().amax().float().clamp(min=_TINY)
    undo = largest / torch.finfo(dtype).max
    return (values.float() / undo).to(dtype), undo


def _filled(values: Tensor) -> Tensor:
    """Contiguous, with sizes that are multiples of 16."""
    rows, columns = values.shape
    if rows % _MULTIPLE == 0 and columns % _MULTIPLE == 0:
        return values.contiguous()
    return F.pad(
        values.contiguous().view(torch.uint8), (0, -columns % _MULTIPLE, 0, -rows % _MULTIPLE)
    ).view(values.dtype)
