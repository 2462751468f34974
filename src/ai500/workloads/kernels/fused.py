"""The steps of `plain` in Triton, for matrices of BF16 (or FP16, FP32) on a GPU.

A `Normal` and `Slopes` are here the rows of one matrix: kernels get its beginning.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ai500.workloads.kernels import launch
from ai500.workloads.kernels.launch import (
    Tile,
    described,
    grid,
    kernels,
    milliseconds,
    over,
    product_grid,
    split,
    tile,
)
from ai500.workloads.kernels.plain import (
    Extra,
    Normal,
    Other,
    Plain,
    Size,
    Slopes,
    as_images,
    as_rows,
    depth_size,
    pooled,
)

LIBRARY = ("conv", "mm")
"""A 1×1 convolution by cuDNN or by cuBLAS, with a reduction of its own behind it."""
TILES = (
    Tile(128, 128, 64, 8, 2, 128),
    Tile(128, 128, 64, 8, 3),
    Tile(128, 256, 64, 8, 2),
    Tile(128, 64, 64, 4, 2),
    Tile(64, 128, 64, 4, 3),
)
Choice = Tile | str
Found = TypeVar("Found")


@dataclass
class Fused(Plain):
    """`products`, `gradients`, `weights`: ways allowed for a 1×1 convolution, the gradient of its
    input and of its weight; where there are several, the first call of each shape tries all."""

    products: tuple[Choice, ...] = ("conv",)
    gradients: tuple[Choice, ...] = ("conv",)
    weights: tuple[Choice, ...] = ("conv",)
    chosen: dict[tuple[Any, ...], Choice] = field(default_factory=dict)
    trials: dict[tuple[Any, ...], dict[Choice, float]] = field(default_factory=dict)
    """Milliseconds of each way that was tried."""

    def covers(self, device: torch.device) -> bool:
        """A GPU, or the CPU where Triton interprets."""
        return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

    def _best(
        self, key: tuple[Any, ...], ways: tuple[Choice, ...], call: Callable[[Choice], Found]
    ) -> Found:
        if len(ways) == 1:
            return call(ways[0])
        if key not in self.chosen:
            tried = {way: milliseconds(functools.partial(call, way)) for way in ways}
            self.trials[key], self.chosen[key] = tried, min(ways, key=tried.__getitem__)
        return call(self.chosen[key])

    def product(self, a: Tensor, weight: Tensor, size: Size) -> tuple[Tensor, Tensor]:
        """As `Plain`'s."""
        key = ("product", len(a), *weight.shape[:2])
        return self._best(key, self.products, functools.partial(self._product, a, weight, size))

    def _product(self, a: Tensor, weight: Tensor, size: Size, way: Choice) -> tuple[Tensor, Tensor]:
        if not isinstance(way, Tile):
            out = _forward(a, weight, size, way)
            return out, self.statistics(out)
        n, k = weight.shape[:2]
        out = a.new_empty(len(a), n)
        programs = product_grid(a, n, way)
        parts = a.new_empty(programs[1], 3, n, dtype=torch.float32)
        kernels().product[programs](
            described(a, way.rows, way.depth),
            described(weight.flatten(1), way.columns, way.depth),
            described(out, way.rows, way.columns // 2),
            parts, len(a), n, k, programs[1], **way.options(),
        )  # fmt: skip
        return out, parts

    def gradient_product(
        self, dx: Tensor, weight: Tensor, x: Tensor, normal: Normal, size: Size
    ) -> tuple[Tensor, Tensor]:
        """As `Plain`'s."""

        def call(way: Choice) -> tuple[Tensor, Tensor]:
            if not isinstance(way, Tile):
                dy = _backward(dx, weight, x, size, way)
                return dy, self.reduce(dy, x, normal)
            g, sums, _ = _gradient(dx, weight, None, None, x, normal, None, None, way)
            return g, sums

        return self._best(("gradient", len(dx), *weight.shape[:2]), self.gradients, call)

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
        """As `Plain`'s."""

        def call(way: Choice) -> tuple[Tensor, Tensor, Tensor | None]:
            if not isinstance(way, Tile):
                dy = _backward(dx, weight, x, size, way)
                return self._join_reduce(dy, extra, size, x, normal, other, passes)
            return _gradient(dx, weight, extra, size, x, normal, other, passes, way)

        kind = ("join", extra.stride, other is not None)
        return self._best((*kind, len(dx), *weight.shape[:2]), self.gradients, call)

    def weight_gradient(
        self, dx: Tensor, y: Tensor, weight: Tensor, sizes: tuple[Size, Size], stride: int
    ) -> Tensor:
        """As `Plain`'s."""

        def call(way: Choice) -> Tensor:
            if way == "mm":
                return (dx.t() @ y).view(weight.shape)
            return Plain.weight_gradient(self, dx, y, weight, sizes, stride)

        ways = self.weights if stride == 1 and weight.shape[2] == 1 else ("conv",)
        return self._best(("weight", len(dx), *weight.shape[:2]), ways, call)

    def statistics(self, x: Tensor) -> Tensor:
        """As `Plain`'s, in many parts."""
        rows, channels = x.shape
        bm, bc = tile(channels, launch.WALK)
        count, per_split = split(x, bm, bc)
        parts = x.new_empty(count, 3, channels, dtype=torch.float32)
        kernels().statistics[(count, over(channels, bc))](
            x, parts, rows, channels, per_split, BM=bm, BC=bc, num_warps=8
        )
        return parts

    def normal(self, parts: Tensor, norm: nn.BatchNorm2d, rows: int) -> Normal:
        """As `Plain`'s."""
        count, _, channels = parts.shape
        out = parts.new_empty(4, channels)
        kernels().normal[(over(channels, 16),)](
            parts, norm.weight, norm.bias, norm.running_mean, norm.running_var, out,
            count, channels, float(rows), float(norm.momentum or 0), norm.eps,
            BP=128, BC=16, num_warps=4,
        )  # fmt: skip
        return Normal(*out.unbind(0))

    def slopes(self, sums: Tensor, normal: Normal, weight: Tensor, rows: int) -> Slopes:
        """As `Plain`'s."""
        count, _, channels = sums.shape
        out = sums.new_empty(5, channels)
        kernels().slopes[(over(channels, 16),)](
            sums, normal.mean, weight, out, count, channels, float(rows),
            BP=128, BC=16, num_warps=4,
        )  # fmt: skip
        return Slopes(*out.unbind(0))

    def apply(self, x: Tensor, normal: Normal) -> Tensor:
        """As `Plain`'s."""
        rows, channels = x.shape
        y = torch.empty_like(x)
        bm, bc = tile(channels, launch.TILE)
        kernels().apply[grid(rows, channels, bm, bc)](
            x, normal.mean, y, rows, channels, BM=bm, BC=bc, num_warps=8
        )
        return y

    def join(
        self, x: Tensor, normal: Normal, skip: Tensor | None, other: Other | None
    ) -> tuple[Tensor, Tensor]:
        """As `Plain`'s, eight decisions to a byte."""
        rows, channels = x.shape
        if channels % 8:
            raise ValueError(f"{channels} channels: a join takes multiples of 8")
        y = torch.empty_like(x)
        bits = torch.empty(rows, channels // 8, dtype=torch.uint8, device=x.device)
        bm, bc = tile(channels, launch.TILE)
        second = x if skip is None else skip
        theirs = normal
        if other is not None:
            second, theirs = other
        kernels().join[grid(rows, channels, bm, bc)](
            x, normal.mean, second, theirs.mean, y, bits, rows, channels,
            SKIP=skip is not None, DUAL=other is not None, BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return y, bits

    def reduce(self, dy: Tensor, x: Tensor, normal: Normal) -> Tensor:
        """As `Plain`'s, in many parts."""
        rows, channels = x.shape
        bm, bc = tile(channels, launch.WALK)
        count, per_split = split(x, bm, bc)
        sums = x.new_empty(count, 2, channels, dtype=torch.float32)
        kernels().reduce[(count, over(channels, bc))](
            dy, x, normal.mean, sums, rows, channels, per_split, BM=bm, BC=bc, num_warps=8
        )
        return sums

    def join_reduce(
        self, dy: Tensor, x: Tensor, normal: Normal, other: Other | None, passes: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `Plain`'s."""
        return self._join_reduce(dy, None, None, x, normal, other, passes)

    def _join_reduce(
        self,
        dy: Tensor,
        extra: Extra | None,
        size: Size | None,
        x: Tensor,
        normal: Normal,
        other: Other | None,
        passes: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        rows, channels = x.shape
        bm, bc = tile(channels, launch.WALK)
        count, per_split = split(x, bm, bc)
        g = torch.empty_like(x)
        sums = x.new_empty(count, 2, channels, dtype=torch.float32)
        other_sums = None if other is None else torch.empty_like(sums)
        kernels().join_reduce[(count, over(channels, bc))](
            dy, *_join_arguments(dy, extra, passes, x, normal, other), g, sums,
            sums if other_sums is None else other_sums,
            rows, channels, *_plane(size), per_split,
            STRIDE=_stride(extra), DUAL=other is not None, BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return g, sums, other_sums

    def spread(self, dy: Tensor, x: Tensor, normal: Normal, slopes: Slopes) -> Tensor:
        """As `Plain`'s."""
        rows, channels = x.shape
        dx = torch.empty_like(x)
        bm, bc = tile(channels, launch.TILE)
        kernels().spread[grid(rows, channels, bm, bc)](
            dy, x, normal.mean, slopes.a, dx, rows, channels, BM=bm, BC=bc, num_warps=8
        )
        return dx

    def joined_spread(
        self,
        g: Tensor,
        x: Tensor,
        normal: Normal,
        slopes: Slopes,
        other: Other | None,
        theirs: Slopes | None,
    ) -> tuple[Tensor, Tensor | None]:
        """As `Plain`'s."""
        rows, channels = x.shape
        dx = torch.empty_like(x)
        dual = other is not None and theirs is not None
        other_dx = torch.empty_like(x) if dual else None
        second, second_normal = (x, normal) if other is None else other
        bm, bc = tile(channels, launch.TILE)
        kernels().joined_spread[grid(rows, channels, bm, bc)](
            g, x, normal.mean, slopes.a, second, second_normal.mean,
            slopes.a if theirs is None else theirs.a, dx, dx if other_dx is None else other_dx,
            rows, channels, DUAL=dual, BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return dx, other_dx

    def pool(self, x: Tensor, normal: Normal, size: Size) -> tuple[Tensor, Tensor]:
        """As `Plain`'s."""
        out, channels = pooled(size), x.shape[1]
        y = x.new_empty(out.rows, channels)
        taps = torch.empty(out.rows, channels, dtype=torch.uint8, device=x.device)
        bm, bc = tile(channels, launch.TILE // 4)
        kernels().pool[grid(out.rows, channels, bm, bc)](
            x, normal.mean, y, taps, out.rows, channels, *size[1:], *out[1:],
            BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return y, taps

    def pool_reduce(
        self, dy: Tensor, taps: Tensor, x: Tensor, normal: Normal, size: Size
    ) -> Tensor:
        """As `Plain`'s."""
        out, (rows, channels) = pooled(size), x.shape
        bm, bc = tile(channels, launch.WALK // 2)
        count, per_split = split(x, bm, bc)
        sums = x.new_empty(count, 2, channels, dtype=torch.float32)
        kernels().pool_reduce[(count, over(channels, bc))](
            dy, taps, x, normal.mean, sums, rows, channels, *size[1:], *out[1:], per_split,
            BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return sums

    def pool_spread(
        self, dy: Tensor, taps: Tensor, x: Tensor, normal: Normal, slopes: Slopes, size: Size
    ) -> Tensor:
        """As `Plain`'s."""
        out, (rows, channels) = pooled(size), x.shape
        dx = torch.empty_like(x)
        bm, bc = tile(channels, launch.TILE // 2)
        kernels().pool_spread[grid(rows, channels, bm, bc)](
            dy, taps, x, normal.mean, slopes.a, dx, rows, channels, *size[1:], *out[1:],
            BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return dx

    def space_to_depth(self, images: Tensor, dtype: torch.dtype) -> tuple[Tensor, Size]:
        """As `Plain`'s."""
        size, channels = depth_size(images), images.shape[1]
        if channels > 4:
            return Plain.space_to_depth(self, images, dtype)
        rows = torch.empty(size.rows, 16, dtype=dtype, device=images.device)
        kernels().space_to_depth[(over(size.rows, 256),)](
            images, rows, size.rows, *images.shape[2:], *size[1:], *images.stride(),
            CHANNELS=channels, BM=256, BC=16, num_warps=8,
        )  # fmt: skip
        return rows, size


def available(device: torch.device) -> bool:
    """Whether the kernels can run there: a CUDA or ROCm device, and Triton installed."""
    if device.type != "cuda":
        return False
    try:
        kernels()
    except (ImportError, AttributeError):
        return False
    return True


def _forward(a: Tensor, weight: Tensor, size: Size, way: Choice) -> Tensor:
    if way == "mm":
        return a @ weight.flatten(1).t()
    return as_rows(torch.conv2d(as_images(a, size), weight))


def _backward(dx: Tensor, weight: Tensor, x: Tensor, size: Size, way: Choice) -> Tensor:
    """x has the shape of the convolution's input; its numbers are not read."""
    if way == "mm":
        return dx @ weight.flatten(1)
    dy, _, _ = torch.ops.aten.convolution_backward(
        as_images(dx, size), as_images(x, size), weight, None,
        (1, 1), (0, 0), (1, 1), False, (0, 0), 1, (True, False, False),
    )  # fmt: skip
    return as_rows(dy)


def _gradient(
    dx: Tensor,
    weight: Tensor,
    extra: Extra | None,
    size: Size | None,
    x: Tensor,
    normal: Normal,
    other: Other | None,
    passes: Tensor | None,
    way: Tile,
) -> tuple[Tensor, Tensor, Tensor | None]:
    k, n = weight.shape[:2]
    g = torch.empty_like(x)
    programs = product_grid(dx, n, way)
    sums = x.new_empty(programs[1], 2, n, dtype=torch.float32)
    other_sums = None if other is None else torch.empty_like(sums)
    kernels().gradient_product[programs](
        described(dx, way.rows, way.depth),
        described(weight.flatten(1), way.depth, way.columns),
        *_join_arguments(dx, extra, passes, x, normal, other),
        g, sums, sums if other_sums is None else other_sums,
        len(dx), n, k, programs[1], *_plane(size),
        JOIN=passes is not None, STRIDE=_stride(extra), DUAL=other is not None, **way.options(),
    )  # fmt: skip
    return g, sums, other_sums


def _join_arguments(
    dy: Tensor,
    extra: Extra | None,
    passes: Tensor | None,
    x: Tensor,
    normal: Normal,
    other: Other | None,
) -> tuple[Tensor, ...]:
    """extra, bits, x, normals, other, other normals; what is not there is never read."""
    second, theirs = (x, normal) if other is None else other
    added = dy if extra is None else extra.gradient
    return added, dy if passes is None else passes, x, normal.mean, second, theirs.mean


def _stride(extra: Extra | None) -> int:
    return 0 if extra is None else extra.stride


def _plane(size: Size | None) -> tuple[int, int]:
    return (1, 1) if size is None else (size.height, size.width)
