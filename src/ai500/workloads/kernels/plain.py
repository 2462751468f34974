"""What the fused kernels compute, in torch: the reference, on any device and in any precision."""

from __future__ import annotations

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


class Other(NamedTuple):
    """The second branch of a join that has a batch norm of its own (a downsampling skip)."""

    x: Tensor
    normal: Normal


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
        padding = weight.shape[2] // 2
        out = as_rows(F.conv2d(as_images(y, size), weight, stride=stride, padding=padding))
        return out, self.statistics(out)

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

    def weight_gradient(
        self, dx: Tensor, y: Tensor, weight: Tensor, sizes: tuple[Size, Size], stride: int
    ) -> Tensor:
        """Of a convolution, without the gradient of its input."""
        padding = weight.shape[2] // 2
        _, dweight, _ = torch.ops.aten.convolution_backward(
            as_images(dx, sizes[1]), as_images(y, sizes[0]), weight, None,
            (stride, stride), (padding, padding), (1, 1), False, (0, 0), 1, (False, True, False),
        )  # fmt: skip
        found: Tensor = dweight
        return found

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

    def join(
        self, x: Tensor, normal: Normal, skip: Tensor | None, other: Other | None
    ) -> tuple[Tensor, Tensor]:
        """Batch norm, plus a skip (or another branch with its own), ReLU; and where it passes."""
        total = x * normal.scale + normal.shift
        if other is not None:
            total = total + other.x * other.normal.scale + other.normal.shift
        elif skip is not None:
            total = total + skip
        return total.relu().to(x.dtype), total > 0

    def reduce(self, dy: Tensor, x: Tensor, normal: Normal) -> Tensor:
        """The parts of Σ g and Σ g · (x − mean); g is dy where ReLU passes."""
        return _sums(_passed(dy, x, normal), x, normal)

    def join_reduce(
        self, dy: Tensor, x: Tensor, normal: Normal, other: Other | None, passes: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """g behind a join, and the same for both of its branches."""
        g = torch.where(passes, dy, 0)
        return g, _sums(g, x, normal), None if other is None else _sums(g, *other)

    def gradient_product(
        self, dx: Tensor, weight: Tensor, x: Tensor, normal: Normal, size: Size
    ) -> tuple[Tensor, Tensor]:
        """Input gradient of a 1×1 convolution, reduced for the batch norm and ReLU before it."""
        dy = dx @ weight.flatten(1)
        return dy, self.reduce(dy, x, normal)

    def join_gradient(
        self,
        dx: Tensor,
        weight: Tensor,
        extra: Extra,
        size: Size,
        x: Tensor,
        normal: Normal,
        other: Other | None,
        passes: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same before a join, whose other gradient is added."""
        dy = self.total_gradient(dx, weight, extra, size)
        return self.join_reduce(dy, x, normal, other, passes)

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

    def joined_spread(
        self,
        g: Tensor,
        x: Tensor,
        normal: Normal,
        slopes: Slopes,
        other: Other | None,
        theirs: Slopes | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Of one branch of a join, or of both."""
        dx = _linear(g, x, normal, slopes)
        if other is None or theirs is None:
            return dx, None
        return dx, _linear(g, *other, theirs)

    def pool(self, x: Tensor, normal: Normal, size: Size) -> tuple[Tensor, Tensor]:
        """Batch norm, ReLU, 3×3 maximum of stride 2; and the taps chosen, 9 where all are zero."""
        y = as_images(self.apply(x, normal), size)
        padded = F.pad(y, (1, 1, 1, 1), value=-1)
        windows = padded.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
        largest = windows.amax(4)
        tap = (windows == largest[..., None]).int().argmax(4)
        return as_rows(largest), as_rows(torch.where(largest > 0, tap, 9).to(torch.uint8))

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

    def pool_reduce(
        self, dy: Tensor, taps: Tensor, x: Tensor, normal: Normal, size: Size
    ) -> Tensor:
        """The parts of Σ g and Σ g · (x − mean) behind the pooling."""
        return _sums(self.unpool(dy, taps, size), x, normal)

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


def pooled(size: Size) -> Size:
    """After a 3×3 maximum of stride 2 and padding 1."""
    return Size(size.images, (size.height + 1) // 2, (size.width + 1) // 2)


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


def _linear(g: Tensor, x: Tensor, normal: Normal, slopes: Slopes) -> Tensor:
    return (slopes.a * g + slopes.b * (x - normal.mean) + slopes.c).to(x.dtype)


def _sums(g: Tensor, x: Tensor, normal: Normal) -> Tensor:
    return torch.stack([g.sum(0), (g * (x - normal.mean)).sum(0)])[None]


def _momentum(norm: nn.BatchNorm2d) -> float:
    if norm.momentum is None:
        raise ValueError("batch norm with a cumulative average has no fused form")
    return norm.momentum
