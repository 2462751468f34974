"""What the fused kernels compute, in torch: the reference, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Size(NamedTuple):
    """How rows lie in images."""

    images: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        """A row for each pixel."""
        return self.images * self.height * self.width

    def every(self, stride: int) -> Size:
        """Of every so many pixels of each row and column, from the first."""
        return Size(self.images, (self.height - 1) // stride + 1, (self.width - 1) // stride + 1)


class Normal(NamedTuple):
    """Batch norm as y = scale · x + shift, and the statistics it came from; FP32, per channel."""

    mean: Tensor
    rstd: Tensor
    scale: Tensor
    shift: Tensor


class Slopes(NamedTuple):
    """Its backward pass as dx = a · g + b · (x − mean) + c, and the gradients of γ and β."""

    a: Tensor
    b: Tensor
    c: Tensor
    weight: Tensor
    bias: Tensor


class Linear(NamedTuple):
    """A 1×1 convolution x = y Wᵀ and its batch norm: known before x is computed, and enough for
    its backward pass without x."""

    y: Tensor
    weight: Tensor
    """Outputs × inputs."""
    normal: Normal
    totals: Tensor
    """Sums of y's columns."""
    covariance: Tensor
    """W Cov(y): of each output with each input."""


class Gradients(NamedTuple):
    """What `linear_backward` gives."""

    y: Tensor
    convolution: Tensor
    weight: Tensor
    bias: Tensor


class Extra(NamedTuple):
    """Another gradient of the same pixels; `stride` 2: only of those with even coordinates."""

    gradient: Tensor
    stride: int


def as_images(rows: Tensor, size: Size) -> Tensor:
    """N×C×H×W in channels-last memory: a view."""
    return rows.view(size.images, size.height, size.width, -1).permute(0, 3, 1, 2)


def as_rows(images: Tensor) -> Tensor:
    """A view where memory is channels-last."""
    return images.permute(0, 2, 3, 1).reshape(-1, images.shape[1]).contiguous()


class Plain:
    """Each step of a block and of its backward pass."""

    def covers(self, device: torch.device) -> bool:
        """Whether it runs there."""
        return True

    def product(self, a: Tensor, weight: Tensor, size: Size) -> tuple[Tensor, Tensor]:
        """A 1×1 convolution and the parts of its result's statistics."""
        out = a @ weight.flatten(1).t()
        return out, self.statistics(out)

    def convolution(
        self, y: Tensor, weight: Tensor, size: Size, stride: int
    ) -> tuple[Tensor, Tensor]:
        """Any other convolution, likewise."""
        out = self.convolved(y, weight, size, stride)
        return out, self.statistics(out)

    def convolved(self, y: Tensor, weight: Tensor, size: Size, stride: int) -> Tensor:
        """The convolution alone."""
        padding = weight.shape[2] // 2
        return as_rows(F.conv2d(as_images(y, size), weight, stride=stride, padding=padding))

    def convolution_backward(
        self, dx: Tensor, y: Tensor, weight: Tensor, sizes: tuple[Size, Size], stride: int
    ) -> tuple[Tensor, Tensor]:
        """Gradients of its input and of its weight; `sizes` of input and output."""
        padding = weight.shape[2] // 2
        dy, dweight, _ = torch.ops.aten.convolution_backward(
            as_images(dx, sizes[1]), as_images(y, sizes[0]), weight, None,
            (stride, stride), (padding, padding), (1, 1), False, (0, 0), 1, (True, True, False),
        )  # fmt: skip
        return as_rows(dy), dweight

    def weight_gradient(self, dx: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Of a 1×1 convolution."""
        return (dx.t() @ y).view(weight.shape)

    def statistics(self, x: Tensor) -> Tensor:
        """Parts × (mean, sum of squared deviations, rows) × channels: here a single part."""
        count = torch.full_like(x[0], len(x))
        variance, mean = torch.var_mean(x, 0, correction=0)
        return torch.stack([mean, variance * len(x), count])[None]

    def normal(self, parts: Tensor, norm: nn.BatchNorm2d, rows: int) -> Normal:
        """Parts joined (Chan et al. 1979); running statistics move as nn.BatchNorm2d's do."""
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
        return Normal(mean, rstd, scale, norm.bias.detach() - mean * scale)

    def apply(self, x: Tensor, normal: Normal) -> Tensor:
        """Batch norm and ReLU."""
        return (x * normal.scale + normal.shift).relu().to(x.dtype)

    def apply_summed(self, x: Tensor, normal: Normal) -> tuple[Tensor, Tensor]:
        """The same, and the sums of its columns."""
        y = self.apply(x, normal)
        return y, self.totals(y)

    def totals(self, y: Tensor) -> Tensor:
        """Sums of columns."""
        return y.sum(0)

    def linear(self, y: Tensor, totals: Tensor, weight: Tensor, norm: nn.BatchNorm2d) -> Linear:
        """A 1×1 convolution's statistics from those of its input: the mean is W E[y], the variance
        the diagonal of W Cov(y) Wᵀ. The input has a quarter of the output's channels."""
        flat, rows = weight.flatten(1), len(y)
        mean = totals / rows
        covariance = flat @ (y.t() @ y / rows - mean.outer(mean))
        variance = (covariance * flat).sum(1).clamp_min(0)
        parts = torch.stack([flat @ mean, variance * rows, torch.full_like(variance, rows)])
        return Linear(y, flat, self.normal(parts[None], norm, rows), totals, covariance)

    def linear_join(
        self, linear: Linear, skip: Tensor | None, other: Linear | None
    ) -> tuple[Tensor, Tensor]:
        """The convolution, its batch norm, plus a skip (or another such branch), ReLU; and where
        that passes."""
        total = _normalized(linear)
        if other is not None:
            total = total + _normalized(other)
        elif skip is not None:
            total = total + skip
        return total.relu().to(linear.y.dtype), total > 0

    def linear_backward(
        self, g: Tensor, totals: Tensor, linear: Linear, norm: nn.BatchNorm2d
    ) -> Gradients:
        """With dx = a g + b (x − mean) + c as in `slopes` and x = y Wᵀ, neither x nor dx is needed:

        Σ g (x − mean) = Σ (gᵀy − Σg ⊗ ȳ) ∘ W, along the inputs;
        dW = dxᵀ y = a (gᵀy − Σg ⊗ ȳ) + b · rows · W Cov(y);
        dy = dx W = g (a W) + y Wᵀ(b W) + (c − b · mean) W.
        """
        y, weight, normal, rows = linear.y, linear.weight, linear.normal, len(g)
        centred = g.t() @ y - totals.outer(linear.totals / rows)
        dgamma = (centred * weight).sum(1) * normal.rstd
        a = norm.weight.detach() * normal.rstd
        b, c = -a * normal.rstd * dgamma / rows, -a * totals / rows
        dweight = a[:, None] * centred + (b * rows)[:, None] * linear.covariance
        scaled = b[:, None] * weight
        dy = g @ (a[:, None] * weight) + y @ (weight.t() @ scaled) + (c - b * normal.mean) @ weight
        return Gradients(dy, dweight.view(*weight.shape, 1, 1), dgamma, totals)

    def reduce(self, dy: Tensor, x: Tensor, normal: Normal) -> Tensor:
        """The parts of Σ g and Σ g · (x − mean); g is dy where ReLU passes."""
        return _sums(_passed(dy, x, normal), x, normal)

    def join_masked(self, dy: Tensor, passes: Tensor) -> tuple[Tensor, Tensor]:
        """g behind a join, and the sums of its columns."""
        g = torch.where(passes, dy, 0)
        return g, g.sum(0)

    def join_gradient(
        self, dx: Tensor, weight: Tensor, extra: Extra, size: Size, passes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same where dy is the input gradient of a 1×1 convolution plus another gradient."""
        return self.join_masked(self.total_gradient(dx, weight, extra, size), passes)

    def even(self, y: Tensor, size: Size, stride: int) -> tuple[Tensor, Tensor]:
        """Rows of the pixels that a 1×1 convolution of this stride reads, and sums of columns."""
        y = self.strided(y, size, stride)
        return y, self.totals(y)

    def strided(self, y: Tensor, size: Size, stride: int) -> Tensor:
        """These rows alone."""
        return as_rows(as_images(y, size)[:, :, ::stride, ::stride]) if stride > 1 else y

    def total_gradient(self, dx: Tensor, weight: Tensor, extra: Extra, size: Size) -> Tensor:
        """Input gradient of a 1×1 convolution plus another gradient of the same pixels."""
        dy = dx @ weight.flatten(1)
        whole = dy.view(size.images, size.height, size.width, -1)
        even = whole[:, :: extra.stride, :: extra.stride]
        even += extra.gradient.view(even.shape)
        return dy

    def slopes(self, sums: Tensor, normal: Normal, weight: Tensor, rows: int) -> Slopes:
        """From the parts of the sums; Ioffe and Szegedy 2015, §3."""
        total, product = sums.sum(0).unbind(0)
        dweight = product * normal.rstd
        a = weight.detach() * normal.rstd
        return Slopes(a, -a * normal.rstd * dweight / rows, -a * total / rows, dweight, total)

    def spread(self, dy: Tensor, x: Tensor, normal: Normal, slopes: Slopes) -> Tensor:
        """Gradient of the input of a batch norm and ReLU."""
        return _linear(_passed(dy, x, normal), x, normal, slopes)

    def pool(self, x: Tensor, normal: Normal, size: Size) -> tuple[Tensor, Tensor, Tensor]:
        """Batch norm, ReLU, 3×3 maximum of stride 2; the taps chosen, 9 where all are zero; and
        what x was there: the largest, or the smallest where the scale is negative."""
        sign = torch.where(normal.scale < 0, -1.0, 1.0).to(x.dtype)
        padded = F.pad(as_images(x * sign, size), (1, 1, 1, 1), value=-torch.inf)
        windows = padded.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
        best = windows.amax(4)
        tap = (windows == best[..., None]).int().argmax(4)
        chosen = as_rows(best) * sign
        y = self.apply(chosen, normal)
        return y, torch.where(y > 0, as_rows(tap), 9).to(torch.uint8), chosen

    def unpool(self, dy: Tensor, taps: Tensor, size: Size) -> Tensor:
        """Each pixel's gradient: gathered from the windows that chose it."""
        out = pooled(size)
        dy4, taps4 = (one.view(*out, -1) for one in (dy, taps))
        g = dy.new_zeros(size.images, 2 * out.height + 1, 2 * out.width + 1, dy.shape[1])
        for tap in range(9):
            rows = slice(tap // 3, tap // 3 + 2 * out.height - 1, 2)
            columns = slice(tap % 3, tap % 3 + 2 * out.width - 1, 2)
            g[:, rows, columns] += torch.where(taps4 == tap, dy4, 0)
        inside = g[:, 1 : size.height + 1, 1 : size.width + 1]
        return inside.reshape(size.rows, -1)

    def pool_spread(
        self, dy: Tensor, taps: Tensor, x: Tensor, normal: Normal, slopes: Slopes, size: Size
    ) -> Tensor:
        """Gradient of the batch norm's input before the pooling."""
        return _linear(self.unpool(dy, taps, size), x, normal, slopes)

    def space_to_depth(self, images: Tensor, dtype: torch.dtype) -> tuple[Tensor, Size]:
        """2×2 pixels as 4 × 3 channels, filled up to 16: rows for a 4×4 convolution of stride 1
        that is the 7×7 one of stride 2 and padding 3."""
        n, channels, height, width = images.shape
        size = depth_size(images)
        bottom, right = 2 * size.height - height - 3, 2 * size.width - width - 3
        padded = F.pad(images.to(dtype), (3, right, 3, bottom))
        cells = padded.view(n, channels, size.height, 2, size.width, 2)
        rows = cells.permute(0, 2, 4, 3, 5, 1).reshape(size.rows, 4 * channels)
        return F.pad(rows, (0, -4 * channels % 16)), size


def running(norms: Sequence[nn.BatchNorm2d]) -> list[Normal]:
    """By their running statistics, for an evaluation; all in a few launches. Each is, as the fused
    kernels want it, the rows of one matrix."""
    normals = [Normal(*one.weight.new_empty(4, one.num_features).unbind(0)) for one in norms]
    mean, rstd, scale, shift = zip(*normals, strict=True)
    for rows, name in (
        (mean, "running_mean"), (rstd, "running_var"), (scale, "weight"), (shift, "bias")
    ):  # fmt: skip
        torch._foreach_copy_(rows, [getattr(one, name) for one in norms])
    torch._foreach_add_(rstd, [one.eps for one in norms])
    torch._foreach_sqrt_(rstd)
    torch._foreach_reciprocal_(rstd)
    torch._foreach_mul_(scale, rstd)
    torch._foreach_addcmul_(shift, mean, scale, value=-1)
    return normals


def known(y: Tensor, weight: Tensor, normal: Normal) -> Linear:
    """A 1×1 convolution whose batch norm is known, to be joined and not differentiated."""
    nothing = y.new_empty(0)
    return Linear(y, weight.flatten(1), normal, nothing, nothing)


def pooled(size: Size) -> Size:
    """After a 3×3 maximum of stride 2 and padding 1."""
    return Size(size.images, (size.height + 1) // 2, (size.width + 1) // 2)


def stem_size(images: Tensor) -> Size:
    """After the 7×7 convolution of stride 2 and padding 3."""
    return Size(len(images), (images.shape[2] - 1) // 2 + 1, (images.shape[3] - 1) // 2 + 1)


def depth_size(images: Tensor) -> Size:
    """Cells of 2×2 pixels, and a border for the kernel."""
    return Size(len(images), (images.shape[2] - 1) // 2 + 4, (images.shape[3] - 1) // 2 + 4)


def to_depth(weight: Tensor) -> Tensor:
    """The 7×7 kernel as the 4×4 one of `space_to_depth`."""
    out, channels = weight.shape[:2]
    cells = F.pad(weight, (0, 1, 0, 1)).view(out, channels, 4, 2, 4, 2)
    deep = cells.permute(0, 3, 5, 1, 2, 4).reshape(out, 4 * channels, 4, 4)
    return F.pad(deep, (0, 0, 0, 0, 0, -4 * channels % 16))


def from_depth(gradient: Tensor, channels: int) -> Tensor:
    """The gradient of the 7×7 kernel from that of the 4×4 one."""
    out = len(gradient)
    cells = gradient[:, : 4 * channels].reshape(out, 2, 2, channels, 4, 4)
    return cells.permute(0, 3, 4, 1, 5, 2).reshape(out, channels, 8, 8)[:, :, :7, :7]


def _passed(dy: Tensor, x: Tensor, normal: Normal) -> Tensor:
    return torch.where(x * normal.scale + normal.shift > 0, dy, 0)


def _normalized(linear: Linear) -> Tensor:
    return linear.y @ linear.weight.t() * linear.normal.scale + linear.normal.shift


def _linear(g: Tensor, x: Tensor, normal: Normal, slopes: Slopes) -> Tensor:
    return (slopes.a * g + slopes.b * (x - normal.mean) + slopes.c).to(x.dtype)


def _sums(g: Tensor, x: Tensor, normal: Normal) -> Tensor:
    return torch.stack([g.sum(0), (g * (x - normal.mean)).sum(0)])[None]


def _momentum(norm: nn.BatchNorm2d) -> float:
    if norm.momentum is None:
        raise ValueError("batch norm with a cumulative average has no fused form")
    return norm.momentum
