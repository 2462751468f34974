"""INT8 products: forward, input gradient and weight gradient are INT8 × INT8 → INT32.

Each operand is rounded to 8 bits with a scale that is constant along the contraction, so that it
factors out of the sum: per sample and per output channel in the forward product, per sample and
per input channel in the input gradient, per output and per input channel in the weight gradient.
Weights are stored, gradients summed and everything else is computed in FP32.

Values and weights round to nearest. Gradients round stochastically (without bias), with torch's own
generator, which is seeded at each step. A convolution is a product with a matrix of its
patches (im2col, in INT8). Integer sums are exact: no result depends on their order.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.train.precision.custom_products import Pair, Products, Shape

LARGEST = 127
# Longest contraction whose sum fits INT32 for any operands.
_LONGEST_SUM = (2**31 - 1) // LARGEST**2
_VECTOR = 16  # bytes that cuBLASLt loads at once
_TINY = torch.finfo(torch.float32).tiny  # scale of a tensor of zeros


class Int8Products(Products):
    """Products of linear layers, and of convolutions without groups or dilation."""

    def covers(self, kernel: Pair, shape: Shape) -> bool:
        """Return True without groups and dilation, and with padding less than the kernel."""
        return (
            shape.groups == 1
            and shape.dilation == (1, 1)
            and all(p < k for p, k in zip(shape.padding, kernel, strict=True))
        )

    def convolution(self, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """Convolve in INT8; differentiable once."""
        result: Tensor = _Convolution.apply(x, weight, shape)
        return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shape = shape
        return _forward(x.detach(), weight.detach(), shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight = ctx.saved_tensors
        noise = torch.rand_like(gradients[0])
        dx = dweight = None
        if ctx.needs_input_grad[0]:
            dx = _input_gradient(gradients[0], weight, ctx.shape, x.shape, noise)
        if ctx.needs_input_grad[1]:
            dweight = _weight_gradient(gradients[0], x, weight.shape, ctx.shape, noise)
        return dx, dweight, None


def quantize(values: Tensor, *, scale_for: int) -> tuple[Tensor, Tensor]:
    """Round to INT8, ties to even, with a scale for each index of dimension `scale_for`."""
    scale = _scale(values, scale_for)
    return (values / scale).round_().to(torch.int8), scale.flatten()


def quantize_stochastically(
    values: Tensor, *, scale_for: int, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Round to INT8, up with the probability of the fraction; `noise` is uniform in [0, 1)."""
    scale = _scale(values, scale_for)
    rounded = (values / scale).add_(noise).floor_().clamp_(-LARGEST, LARGEST)
    return rounded.to(torch.int8), scale.flatten()


def _scale(values: Tensor, scale_for: int) -> Tensor:
    reduced = [dim for dim in range(values.dim()) if dim != scale_for]
    return values.abs().amax(reduced, keepdim=True).div_(LARGEST).clamp_(min=_TINY)


def integer_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply INT8 [m, k] × INT8 [k, n] exactly, to INT32 or, for long sums, INT64."""
    if a.shape[1] > _LONGEST_SUM:
        parts = zip(a.split(_LONGEST_SUM, dim=1), b.split(_LONGEST_SUM), strict=True)
        total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device)
        for part_a, part_b in parts:
            total += integer_product(part_a, part_b)
        return total
    if a.device.type == "cpu":
        return torch._int_mm(a, b)
    # cuBLASLt needs more than 16 rows, whole vectors of 16 bytes (zeros change no sum), the first
    # matrix in row-major and the second in column-major order.
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    a = F.pad(a, (0, -k % _VECTOR, 0, max(0, 2 * _VECTOR - m))).contiguous()
    b = F.pad(b.t(), (0, -k % _VECTOR, 0, -n % _VECTOR)).contiguous().t()
    return torch._int_mm(a, b)[:m, :n]


def _forward(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    qx, scale_x = quantize(x, scale_for=0)
    qw, scale_w = quantize(weight, scale_for=0)
    patches, (height, width) = _patches(
        _pixels_first(qx), qw.shape[2:], shape.stride, shape.padding
    )
    product = integer_product(patches, _pixels_first(qw).reshape(qw.shape[0], -1).t())
    return _images(product, (len(x), height, width), rows=scale_x, columns=scale_w)


def _input_gradient(
    gradient: Tensor, weight: Tensor, shape: Shape, x_shape: torch.Size, noise: Tensor
) -> Tensor:
    """Convolve the dilated gradient with the flipped kernel."""
    qg, scale_g = quantize_stochastically(gradient, scale_for=0, noise=noise)
    qw, scale_w = quantize(weight, scale_for=1)
    dilated = _dilate(_pixels_first(qg), weight.shape[2:], shape, x_shape[2:])
    patches, size = _patches(dilated, weight.shape[2:], (1, 1), (0, 0))
    flipped = qw.flip(2, 3).permute(1, 2, 3, 0).flatten(1)
    product = integer_product(patches, flipped.t())
    return _images(product, (len(gradient), *size), rows=scale_g, columns=scale_w)


def _weight_gradient(
    gradient: Tensor, x: Tensor, weight_shape: torch.Size, shape: Shape, noise: Tensor
) -> Tensor:
    qg, scale_g = quantize_stochastically(gradient, scale_for=1, noise=noise)
    qx, scale_x = quantize(x, scale_for=1)
    patches, _ = _patches(_pixels_first(qx), weight_shape[2:], shape.stride, shape.padding)
    rows = _pixels_first(qg).reshape(-1, weight_shape[0])
    product = integer_product(rows.t(), patches).float()
    by_pixel = product.view(weight_shape[0], *weight_shape[2:], weight_shape[1])
    scaled = by_pixel * scale_g[:, None, None, None] * scale_x
    return scaled.permute(0, 3, 1, 2)


def _pixels_first(values: Tensor) -> Tensor:
    """Permute N×C×H×W to contiguous N×H×W×C; no copy if memory is channels-last."""
    return values.permute(0, 2, 3, 1).contiguous()


def _dilate(gradient: Tensor, kernel: torch.Size, shape: Shape, size: torch.Size) -> Tensor:
    """Put zeros between and around the pixels of a strided convolution's gradient."""
    n, height, width, channels = gradient.shape
    tops = [k - 1 - p for k, p in zip(kernel, shape.padding, strict=True)]
    full = [s + k - 1 for s, k in zip(size, kernel, strict=True)]
    dilated = gradient.new_zeros(n, full[0], full[1], channels)
    (down, right) = shape.stride
    dilated[
        :,
        tops[0] : tops[0] + (height - 1) * down + 1 : down,
        tops[1] : tops[1] + (width - 1) * right + 1 : right,
    ] = gradient
    return dilated


def _patches(
    pixels: Tensor, kernel: torch.Size, stride: Pair, padding: Pair
) -> tuple[Tensor, Pair]:
    """Return a row per output pixel with the kernel's inputs, channels last (im2col)."""
    if padding != (0, 0):
        pixels = F.pad(pixels, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    n, height, width, channels = pixels.shape
    out = ((height - kernel[0]) // stride[0] + 1, (width - kernel[1]) // stride[1] + 1)
    along_n, down, right, deep = pixels.stride()
    windows = pixels.as_strided(
        (n, *out, *kernel, channels),
        (along_n, down * stride[0], right * stride[1], down, right, deep),
    )
    return windows.reshape(n * out[0] * out[1], kernel[0] * kernel[1] * channels), out


def _images(
    product: Tensor, size: tuple[int, int, int], *, rows: Tensor, columns: Tensor
) -> Tensor:
    """Scale integer sums to FP32 images by sample and channel; channels-last memory."""
    images = product.view(*size, -1) * (rows[:, None, None, None] * columns)
    return images.permute(0, 3, 1, 2)
