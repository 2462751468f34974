"""The steps of `plain` in Triton, for matrices of BF16 (or FP16, FP32) on a GPU.

A `Normal` and `Slopes` are here the rows of one matrix: kernels get its beginning.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ai500.workloads.kernels import launch
from ai500.workloads.kernels.launch import (
    Tile,
    described,
    grid,
    kernels,
    over,
    product_grid,
    split,
    tile,
)
from ai500.workloads.kernels.plain import (
    Extra,
    Gradients,
    Linear,
    Normal,
    Plain,
    Size,
    Slopes,
    depth_size,
    pooled,
)

PRODUCT_TILE = Tile(128, 128, 64, 4, 3)
"""The fastest of those tried on an H200 (docs/performance-notebook.md)."""
DEEPEST_JOIN, DEEPEST_GRADIENT = 256, 128
"""With more inputs than these, cuBLAS's product and a pass behind it are faster there."""
ROWS_UNBOOSTED = 16
"""So that what is summed over channels stays as far from FP16's largest number as from its least:
γ's gradients, under a usual loss scale, are some hundreds."""


@dataclass(frozen=True)
class Fused(Plain):
    """`tile`: how products with a join behind them are cut; None: cuBLAS, and a pass behind it.

    No kernel is chosen by a trial: those of a member that resumes round as before. (cuDNN tries the
    algorithms of the 3×3 convolutions when a step is recorded: `parallel/cuda_graph.py`.)
    """

    tile: Tile | None = None
    deepest_join: int = DEEPEST_JOIN
    deepest_gradient: int = DEEPEST_GRADIENT

    def covers(self, device: torch.device) -> bool:
        """A GPU, or the CPU where Triton interprets."""
        return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

    def weight_gradient(self, dx: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """As `Plain`'s."""
        return _product32(dx.t(), y).view(weight.shape)

    def linear(self, y: Tensor, totals: Tensor, weight: Tensor, norm: nn.BatchNorm2d) -> Linear:
        """As `Plain`'s."""
        flat = weight.flatten(1)
        channels, inputs = flat.shape
        moments = flat.float() @ _product32(y.t(), y)
        out, covariance = moments.new_empty(4, channels), torch.empty_like(moments)
        wide = 1 << (inputs - 1).bit_length()
        block = max(1, 4096 // wide)
        kernels().linear_normal[(over(channels, block),)](
            moments, flat, totals, norm.weight, norm.bias, norm.running_mean, norm.running_var,
            out, covariance, float(len(y)), channels, inputs, float(norm.momentum or 0), norm.eps,
            BC=block, BK=wide, num_warps=4,
        )  # fmt: skip
        return Linear(y, flat, Normal(*out.unbind(0)), totals, covariance)

    def linear_join(
        self, linear: Linear, skip: Tensor | None, other: Linear | None
    ) -> tuple[Tensor, Tensor]:
        """As `Plain`'s, eight decisions to a byte."""
        channels, inputs = linear.weight.shape
        if channels % 8:
            raise ValueError(f"{channels} channels: a join takes multiples of 8")
        bits = torch.empty(len(linear.y), channels // 8, dtype=torch.uint8, device=linear.y.device)
        if self.tile is None or other is not None or inputs > self.deepest_join:
            return self._join(_product(linear), linear.normal, skip, other, bits)
        return _linear_join(linear, skip, bits, self.tile)

    def linear_backward(
        self, g: Tensor, totals: Tensor, linear: Linear, norm: nn.BatchNorm2d
    ) -> Gradients:
        """As `Plain`'s. Terms of b and c are means over the rows, which FP16 would round to zero:
        they are kept as multiples of a power of two until all is summed in FP32."""
        y, weight = linear.y, linear.weight
        channels, inputs = weight.shape
        boost = 2.0 ** max(0, len(g).bit_length() - ROWS_UNBOOSTED.bit_length())
        product = _product32(g.t(), y)
        dweight = torch.empty_like(product)
        a_weight, b_weight = torch.empty_like(weight), torch.empty_like(weight)
        dgamma, rest = totals.new_empty(channels), weight.new_empty(channels)
        wide = 1 << (inputs - 1).bit_length()
        block = max(1, 2048 // wide)
        kernels().linear_slopes[(over(channels, block),)](
            product, weight, linear.covariance, linear.totals, totals, linear.normal.mean,
            norm.weight, dweight, a_weight, b_weight, dgamma, rest,
            float(len(g)), boost, channels, inputs, BC=block, BK=wide, num_warps=4,
        )  # fmt: skip
        constant = (rest[None] @ weight)[0]
        dy = torch.addmm(constant, y, weight.t() @ b_weight)
        dy.addmm_(g, a_weight, beta=1 / boost)
        return Gradients(dy, dweight.view(*weight.shape, 1, 1), dgamma, totals)

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

    def apply_summed(self, x: Tensor, normal: Normal) -> tuple[Tensor, Tensor]:
        """As `Plain`'s."""
        y = torch.empty_like(x)
        return y, self._walk("apply_summed", x, normal.mean, y)

    def totals(self, y: Tensor) -> Tensor:
        """As `Plain`'s."""
        return self._walk("totals", y)

    def _walk(self, name: str, x: Tensor, *arguments: Tensor) -> Tensor:
        """A kernel that sums columns on its way."""
        rows, channels = x.shape
        bm, bc = tile(channels, launch.WALK)
        count, per_split = split(x, bm, bc)
        parts = x.new_empty(count, channels, dtype=torch.float32)
        getattr(kernels(), name)[(count, over(channels, bc))](
            x, *arguments, parts, rows, channels, per_split, BM=bm, BC=bc, num_warps=8
        )
        return parts.sum(0)

    def _join(
        self, x: Tensor, normal: Normal, skip: Tensor | None, other: Linear | None, bits: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows, channels = x.shape
        y = torch.empty_like(x)
        bm, bc = tile(channels, launch.TILE)
        second, theirs = x if skip is None else skip, normal
        if other is not None:
            second, theirs = _product(other), other.normal
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

    def join_masked(self, dy: Tensor, passes: Tensor) -> tuple[Tensor, Tensor]:
        """As `Plain`'s."""
        return self._join_masked(dy, None, None, passes)

    def join_gradient(
        self, dx: Tensor, weight: Tensor, extra: Extra, size: Size, passes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `Plain`'s."""
        flat = weight.flatten(1)
        if self.tile is None or extra.stride > 1 or len(flat) > self.deepest_gradient:
            return self._join_masked(dx @ flat, extra, size, passes)
        return _join_gradient(dx, flat, extra.gradient, passes, self.tile)

    def _join_masked(
        self, dy: Tensor, extra: Extra | None, size: Size | None, passes: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows, channels = dy.shape
        bm, bc = tile(channels, launch.WALK)
        count, per_split = split(dy, bm, bc)
        g, parts = torch.empty_like(dy), dy.new_empty(count, channels, dtype=torch.float32)
        plane = (1, 1) if size is None else (size.height, size.width)
        kernels().join_masked[(count, over(channels, bc))](
            dy, dy if extra is None else extra.gradient, passes, g, parts, rows, channels, *plane,
            per_split, STRIDE=0 if extra is None else extra.stride, BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return g, parts.sum(0)

    def spread(self, dy: Tensor, x: Tensor, normal: Normal, slopes: Slopes) -> Tensor:
        """As `Plain`'s."""
        rows, channels = x.shape
        dx = torch.empty_like(x)
        bm, bc = tile(channels, launch.TILE)
        kernels().spread[grid(rows, channels, bm, bc)](
            dy, x, normal.mean, slopes.a, dx, rows, channels, BM=bm, BC=bc, num_warps=8
        )
        return dx

    def pool(self, x: Tensor, normal: Normal, size: Size) -> tuple[Tensor, Tensor, Tensor]:
        """As `Plain`'s."""
        out, channels = pooled(size), x.shape[1]
        y, chosen = (x.new_empty(out.rows, channels) for _ in range(2))
        taps = torch.empty(out.rows, channels, dtype=torch.uint8, device=x.device)
        bm, bc = tile(channels, launch.TILE // 4)
        kernels().pool[grid(out.rows, channels, bm, bc)](
            x, normal.mean, y, taps, chosen, out.rows, channels, *size[1:], *out[1:],
            BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return y, taps, chosen

    def pool_spread(
        self, dy: Tensor, taps: Tensor, x: Tensor, normal: Normal, slopes: Slopes, size: Size
    ) -> Tensor:
        """As `Plain`'s."""
        out, channels = pooled(size), x.shape[1]
        dx = torch.empty_like(x)
        bm, bc = tile(channels, launch.TILE // 2)
        rows = size.images * ((size.height + 1) // 2) * ((size.width + 1) // 2)
        kernels().pool_spread[(4 * over(rows, bm), over(channels, bc))](
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


def fused_for(device: torch.device) -> Fused:
    """As it is fastest there: the copy engine that tiles need came with Hopper."""
    modern = torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)
    return Fused(tile=PRODUCT_TILE if modern else None)


def available(device: torch.device) -> bool:
    """Whether the kernels may run there: a CUDA or ROCm device, and Triton installed. Whether this
    Triton takes them, a trial tells (`parallel/engines/fast_path.py`)."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def _product(linear: Linear) -> Tensor:
    return linear.y @ linear.weight.t()


def _product32(a: Tensor, b: Tensor) -> Tensor:
    """Summed and given in FP32."""
    if a.is_cuda and a.itemsize < 4:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _linear_join(
    linear: Linear, skip: Tensor | None, bits: Tensor, way: Tile
) -> tuple[Tensor, Tensor]:
    channels, inputs = linear.weight.shape
    out = linear.y.new_empty(len(linear.y), channels)
    tiles = (way.rows, way.columns)
    kernels().linear_join[product_grid(out, way)](
        described(linear.y, way.rows, way.depth), described(linear.weight, way.columns, way.depth),
        described(out if skip is None else skip, *tiles), described(out, *tiles), bits,
        linear.normal.mean, len(out), channels, inputs, SKIP=skip is not None, **way.options(),
    )  # fmt: skip
    return out, bits


def _join_gradient(
    dx: Tensor, weight: Tensor, extra: Tensor, passes: Tensor, way: Tile
) -> tuple[Tensor, Tensor]:
    inputs, channels = weight.shape
    g = torch.empty_like(extra)
    programs, tiles = product_grid(g, way), (way.rows, way.columns)
    parts = g.new_empty(programs[1], channels, dtype=torch.float32)
    kernels().join_gradient[programs](
        described(dx, way.rows, way.depth), described(weight, way.depth, way.columns),
        described(extra, *tiles), passes, described(g, *tiles), parts,
        len(g), channels, inputs, **way.options(),
    )  # fmt: skip
    return g, parts.sum(0)
