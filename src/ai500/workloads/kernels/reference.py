"""The computation of the fused kernels in torch: the reference, on any device in any precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Size(NamedTuple):
    """Images, height and width of a matrix of rows."""

    images: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        """Return the number of rows: one per pixel."""
        return self.images * self.height * self.width

    def strided(self, stride: int) -> Size:
        """Return the size after keeping every `stride`-th row and column, from the first."""
        return Size(self.images, (self.height - 1) // stride + 1, (self.width - 1) // stride + 1)


class FoldedNorm(NamedTuple):
    """Batch norm folded into y = scale · x + shift, and its statistics; FP32, per channel."""

    mean: Tensor
    rstd: Tensor
    scale: Tensor
    shift: Tensor


class NormBackward(NamedTuple):
    """Backward pass of batch norm: dx = a · g + b · (x − mean) + c, and gradients of γ and β."""

    a: Tensor
    b: Tensor
    c: Tensor
    weight: Tensor
    bias: Tensor


class PointwiseConv(NamedTuple):
    """1×1 convolution x = y Wᵀ and its batch norm, without x.

    The norm is known before x is computed, and the backward pass does not need x.
    """

    y: Tensor
    weight: Tensor
    """Outputs × inputs."""
    norm: FoldedNorm
    totals: Tensor
    """Column sums of y."""
    covariance: Tensor
    """W Cov(y): covariance of each output with each input."""


class Gradients(NamedTuple):
    """Gradients of input, convolution weight, γ and β of a 1×1 convolution and its batch norm."""

    y: Tensor
    convolution: Tensor
    weight: Tensor
    bias: Tensor


class SkipGradient(NamedTuple):
    """Gradient of the same pixels that comes through the skip."""

    gradient: Tensor
    stride: int
    """2: only pixels with even coordinates have one."""


def as_images(rows: Tensor, size: Size) -> Tensor:
    """View rows as N×C×H×W in channels-last memory."""
    return rows.view(size.images, size.height, size.width, -1).permute(0, 3, 1, 2)


def as_rows(images: Tensor) -> Tensor:
    """Return images as rows: a view where memory is channels-last."""
    return images.permute(0, 2, 3, 1).reshape(-1, images.shape[1]).contiguous()


class ReferenceKernels:
    """Every part of a bottleneck block and of its backward pass."""

    def supports(self, device: torch.device) -> bool:
        """Return whether the kernels run on this device."""
        return True

    def pointwise_conv(self, a: Tensor, weight: Tensor, size: Size) -> tuple[Tensor, Tensor]:
        """Compute a 1×1 convolution and the partial statistics of its result."""
        out = a @ weight.flatten(1).t()
        return out, self.partial_statistics(out)

    def convolution(
        self, y: Tensor, weight: Tensor, size: Size, stride: int
    ) -> tuple[Tensor, Tensor]:
        """Compute another convolution and the partial statistics of its result."""
        out = self.convolve(y, weight, size, stride)
        return out, self.partial_statistics(out)

    def convolve(self, y: Tensor, weight: Tensor, size: Size, stride: int) -> Tensor:
        """Compute the convolution alone."""
        padding = weight.shape[2] // 2
        return as_rows(F.conv2d(as_images(y, size), weight, stride=stride, padding=padding))

    def convolution_backward(
        self, dx: Tensor, y: Tensor, weight: Tensor, sizes: tuple[Size, Size], stride: int
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradients of input and weight; `sizes` are those of input and output."""
        padding = weight.shape[2] // 2
        dy, dweight, _ = torch.ops.aten.convolution_backward(
            as_images(dx, sizes[1]), as_images(y, sizes[0]), weight, None,
            (stride, stride), (padding, padding), (1, 1), False, (0, 0), 1, (True, True, False),
        )  # fmt: skip
        return as_rows(dy), dweight

    def weight_gradient(self, dx: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Compute the weight gradient of a 1×1 convolution."""
        return (dx.t() @ y).view(weight.shape)

    def partial_statistics(self, x: Tensor) -> Tensor:
        """Return parts × (mean, sum of squared deviations, rows) × channels: a single part here."""
        count = torch.full_like(x[0], len(x))
        variance, mean = torch.var_mean(x, 0, correction=0)
        return torch.stack([mean, variance * len(x), count])[None]

    def fold_norm(self, parts: Tensor, norm: nn.BatchNorm2d, rows: int) -> FoldedNorm:
        """Merge partial statistics (Chan et al. 1979); update running statistics."""
        means, squares, counts = parts.unbind(1)
        mean = (means * counts).sum(0) / rows
        variance = (squares + counts * (means - mean) ** 2).sum(0) / rows
        momentum = _momentum(norm)
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
        unbiased = variance * (rows / max(rows - 1, 1))
        norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), momentum)
        rstd = (variance + norm.eps).rsqrt()
        scale = norm.weight.detach() * rstd
        return FoldedNorm(mean, rstd, scale, norm.bias.detach() - mean * scale)

    def norm_relu(self, x: Tensor, norm: FoldedNorm) -> Tensor:
        """Apply batch norm and ReLU."""
        return (x * norm.scale + norm.shift).relu().to(x.dtype)

    def norm_relu_sum(self, x: Tensor, norm: FoldedNorm) -> tuple[Tensor, Tensor]:
        """Apply batch norm and ReLU; return the column sums too."""
        y = self.norm_relu(x, norm)
        return y, self.column_sums(y)

    def column_sums(self, y: Tensor) -> Tensor:
        """Sum each column."""
        return y.sum(0)

    def pointwise_norm(
        self, y: Tensor, totals: Tensor, weight: Tensor, norm: nn.BatchNorm2d
    ) -> PointwiseConv:
        """Derive the batch norm of a 1×1 convolution from its input's second moments.

        The mean is W E[y], the variance the diagonal of W Cov(y) Wᵀ. The input has a quarter of the
        output's channels.
        """
        flat, rows = weight.flatten(1), len(y)
        mean = totals / rows
        covariance = flat @ (y.t() @ y / rows - mean.outer(mean))
        variance = (covariance * flat).sum(1).clamp_min(0)
        parts = torch.stack([flat @ mean, variance * rows, torch.full_like(variance, rows)])
        return PointwiseConv(y, flat, self.fold_norm(parts[None], norm, rows), totals, covariance)

    def pointwise_add_relu(
        self, linear: PointwiseConv, skip: Tensor | None, other: PointwiseConv | None
    ) -> tuple[Tensor, Tensor]:
        """Compute convolution, batch norm, the sum with a skip (or a second branch) and ReLU.

        Return the output and the ReLU mask.
        """
        total = _normalized(linear)
        if other is not None:
            total = total + _normalized(other)
        elif skip is not None:
            total = total + skip
        return total.relu().to(linear.y.dtype), total > 0

    def pointwise_backward(
        self, g: Tensor, totals: Tensor, linear: PointwiseConv, norm: nn.BatchNorm2d
    ) -> Gradients:
        """Differentiate a 1×1 convolution and its batch norm.

        With dx = a g + b (x − mean) + c as in `norm_backward_terms` and x = y Wᵀ, neither x nor dx
        is needed:

        Σ g (x − mean) = Σ (gᵀy − Σg ⊗ ȳ) ∘ W, along the inputs;
        dW = dxᵀ y = a (gᵀy − Σg ⊗ ȳ) + b · rows · W Cov(y);
        dy = dx W = g (a W) + y Wᵀ(b W) + (c − b · mean) W.
        """
        y, weight, folded, rows = linear.y, linear.weight, linear.norm, len(g)
        centred = g.t() @ y - totals.outer(linear.totals / rows)
        dgamma = (centred * weight).sum(1) * folded.rstd
        a = norm.weight.detach() * folded.rstd
        b, c = -a * folded.rstd * dgamma / rows, -a * totals / rows
        dweight = a[:, None] * centred + (b * rows)[:, None] * linear.covariance
        scaled = b[:, None] * weight
        dy = g @ (a[:, None] * weight) + y @ (weight.t() @ scaled) + (c - b * folded.mean) @ weight
        return Gradients(dy, dweight.view(*weight.shape, 1, 1), dgamma, totals)

    def norm_backward_sums(self, dy: Tensor, x: Tensor, norm: FoldedNorm) -> Tensor:
        """Return the parts of Σ g and Σ g · (x − mean); g is dy where ReLU passes."""
        g = _relu_backward(dy, x, norm)
        return torch.stack([g.sum(0), (g * (x - norm.mean)).sum(0)])[None]

    def add_relu_backward(self, dy: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mask the gradient by a block's last ReLU; return it and its column sums."""
        g = torch.where(mask, dy, 0)
        return g, g.sum(0)

    def pointwise_add_relu_backward(
        self, dx: Tensor, weight: Tensor, extra: SkipGradient, size: Size, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mask a 1×1 convolution's input gradient plus the skip's, as `add_relu_backward`."""
        return self.add_relu_backward(self.input_gradient(dx, weight, extra, size), mask)

    def strided_rows_sum(self, y: Tensor, size: Size, stride: int) -> tuple[Tensor, Tensor]:
        """Return the rows that a 1×1 convolution of this stride reads, and their column sums."""
        y = self.strided_rows(y, size, stride)
        return y, self.column_sums(y)

    def strided_rows(self, y: Tensor, size: Size, stride: int) -> Tensor:
        """Return the rows that a 1×1 convolution of this stride reads."""
        return as_rows(as_images(y, size)[:, :, ::stride, ::stride]) if stride > 1 else y

    def input_gradient(self, dx: Tensor, weight: Tensor, extra: SkipGradient, size: Size) -> Tensor:
        """Compute the input gradient of a 1×1 convolution plus the skip's."""
        dy = dx @ weight.flatten(1)
        whole = dy.view(size.images, size.height, size.width, -1)
        even = whole[:, :: extra.stride, :: extra.stride]
        even += extra.gradient.view(even.shape)
        return dy

    def norm_backward_terms(
        self, sums: Tensor, norm: FoldedNorm, weight: Tensor, rows: int
    ) -> NormBackward:
        """Merge the parts of the sums (Ioffe and Szegedy 2015, §3)."""
        total, product = sums.sum(0).unbind(0)
        dweight = product * norm.rstd
        a = weight.detach() * norm.rstd
        return NormBackward(a, -a * norm.rstd * dweight / rows, -a * total / rows, dweight, total)

    def norm_backward(self, dy: Tensor, x: Tensor, norm: FoldedNorm, terms: NormBackward) -> Tensor:
        """Compute the input gradient of batch norm and ReLU."""
        return _norm_input_gradient(_relu_backward(dy, x, norm), x, norm, terms)

    def norm_relu_max_pool(
        self, x: Tensor, norm: FoldedNorm, size: Size
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply batch norm, ReLU and a 3×3 maximum of stride 2.

        Return the output, the tap of each maximum (9 where all are zero) and the x there: the
        largest, or the smallest where the scale is negative.
        """
        sign = torch.where(norm.scale < 0, -1.0, 1.0).to(x.dtype)
        padded = F.pad(as_images(x * sign, size), (1, 1, 1, 1), value=-torch.inf)
        windows = padded.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
        best = windows.amax(4)
        tap = (windows == best[..., None]).int().argmax(4)
        chosen = as_rows(best) * sign
        y = self.norm_relu(chosen, norm)
        return y, torch.where(y > 0, as_rows(tap), 9).to(torch.uint8), chosen

    def max_pool_backward(self, dy: Tensor, taps: Tensor, size: Size) -> Tensor:
        """Gather each pixel's gradient from the windows that chose it."""
        out = pooled_size(size)
        dy4, taps4 = (matrix.view(*out, -1) for matrix in (dy, taps))
        g = dy.new_zeros(size.images, 2 * out.height + 1, 2 * out.width + 1, dy.shape[1])
        for tap in range(9):
            rows = slice(tap // 3, tap // 3 + 2 * out.height - 1, 2)
            columns = slice(tap % 3, tap % 3 + 2 * out.width - 1, 2)
            g[:, rows, columns] += torch.where(taps4 == tap, dy4, 0)
        inside = g[:, 1 : size.height + 1, 1 : size.width + 1]
        return inside.reshape(size.rows, -1)

    def norm_max_pool_backward(
        self, dy: Tensor, taps: Tensor, x: Tensor, norm: FoldedNorm, terms: NormBackward, size: Size
    ) -> Tensor:
        """Compute the gradient of the batch norm's input before the pooling."""
        return _norm_input_gradient(self.max_pool_backward(dy, taps, size), x, norm, terms)

    def space_to_depth(self, images: Tensor, dtype: torch.dtype) -> tuple[Tensor, Size]:
        """Rearrange 2×2 pixels as 4 × 3 channels, padded to 16.

        A 4×4 convolution of stride 1 on these rows is the stem's 7×7 one of stride 2 and padding 3.
        """
        n, channels, height, width = images.shape
        size = depth_size(images)
        bottom, right = 2 * size.height - height - 3, 2 * size.width - width - 3
        padded = F.pad(images.to(dtype), (3, right, 3, bottom))
        cells = padded.view(n, channels, size.height, 2, size.width, 2)
        rows = cells.permute(0, 2, 4, 3, 5, 1).reshape(size.rows, 4 * channels)
        return F.pad(rows, (0, -4 * channels % 16)), size


def fold_running_norms(norms: Sequence[nn.BatchNorm2d]) -> list[FoldedNorm]:
    """Fold running statistics for an evaluation, all norms in a few launches.

    Each result is the rows of one matrix, as the fused kernels need it.
    """
    folded = [FoldedNorm(*norm.weight.new_empty(4, norm.num_features).unbind(0)) for norm in norms]
    mean, rstd, scale, shift = zip(*folded, strict=True)
    for rows, name in (
        (mean, "running_mean"), (rstd, "running_var"), (scale, "weight"), (shift, "bias")
    ):  # fmt: skip
        torch._foreach_copy_(rows, [getattr(norm, name) for norm in norms])
    torch._foreach_add_(rstd, [norm.eps for norm in norms])
    torch._foreach_sqrt_(rstd)
    torch._foreach_reciprocal_(rstd)
    torch._foreach_mul_(scale, rstd)
    torch._foreach_addcmul_(shift, mean, scale, value=-1)
    return folded


def folded_pointwise(y: Tensor, weight: Tensor, norm: FoldedNorm) -> PointwiseConv:
    """Return a 1×1 convolution with a folded norm, for evaluation only."""
    unused = y.new_empty(0)
    return PointwiseConv(y, weight.flatten(1), norm, unused, unused)


def pooled_size(size: Size) -> Size:
    """Return the size after a 3×3 maximum of stride 2 and padding 1."""
    return Size(size.images, (size.height + 1) // 2, (size.width + 1) // 2)


def stem_size(images: Tensor) -> Size:
    """Return the size after the 7×7 convolution of stride 2 and padding 3."""
    return Size(len(images), (images.shape[2] - 1) // 2 + 1, (images.shape[3] - 1) // 2 + 1)


def depth_size(images: Tensor) -> Size:
    """Return the size in cells of 2×2 pixels, with a border for the kernel."""
    return Size(len(images), (images.shape[2] - 1) // 2 + 4, (images.shape[3] - 1) // 2 + 4)


def weight_to_depth(weight: Tensor) -> Tensor:
    """Rearrange the 7×7 kernel as the 4×4 one for `space_to_depth`."""
    out, channels = weight.shape[:2]
    cells = F.pad(weight, (0, 1, 0, 1)).view(out, channels, 4, 2, 4, 2)
    deep = cells.permute(0, 3, 5, 1, 2, 4).reshape(out, 4 * channels, 4, 4)
    return F.pad(deep, (0, 0, 0, 0, 0, -4 * channels % 16))


def weight_gradient_from_depth(gradient: Tensor, channels: int) -> Tensor:
    """Rearrange the gradient of the 4×4 kernel as that of the 7×7 one."""
    out = len(gradient)
    cells = gradient[:, : 4 * channels].reshape(out, 2, 2, channels, 4, 4)
    return cells.permute(0, 3, 4, 1, 5, 2).reshape(out, channels, 8, 8)[:, :, :7, :7]


def _relu_backward(dy: Tensor, x: Tensor, norm: FoldedNorm) -> Tensor:
    return torch.where(x * norm.scale + norm.shift > 0, dy, 0)


def _normalized(linear: PointwiseConv) -> Tensor:
    return linear.y @ linear.weight.t() * linear.norm.scale + linear.norm.shift


def _norm_input_gradient(g: Tensor, x: Tensor, norm: FoldedNorm, terms: NormBackward) -> Tensor:
    return (terms.a * g + terms.b * (x - norm.mean) + terms.c).to(x.dtype)


def _momentum(norm: nn.BatchNorm2d) -> float:
    if norm.momentum is None:
        raise ValueError("batch norm with a cumulative average has no fused form")
    return norm.momentum
