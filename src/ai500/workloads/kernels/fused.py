"""The methods of `ReferenceKernels` in Triton, for BF16, FP16 or FP32 matrices on a GPU.

A `FoldedNorm` or `NormBackward` is the rows of one matrix here: kernels get its first address.
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
    ceil_div,
    grid,
    kernels,
    map_tiles,
    product_grid,
    reduce_rows,
    tensor_descriptor,
    tile_shape,
)
from ai500.workloads.kernels.reference import (
    FoldedNorm,
    Gradients,
    NormBackward,
    PointwiseConv,
    ReferenceKernels,
    Size,
    SkipGradient,
    depth_size,
    pooled_size,
)

# The fastest of the tiles tried on an H200 (docs/performance-notebook.md).
PRODUCT_TILE = Tile(128, 128, 64, 4, 3)
# With more inputs, a cuBLAS product and a second pass are faster on an H200.
MAX_JOIN_INPUTS, MAX_GRADIENT_INPUTS = 256, 128
# Keeps sums over channels as far from FP16's largest number as from its smallest: under a usual
# loss scale, γ's gradients are a few hundred.
MAX_UNSCALED_ROWS = 16


@dataclass(frozen=True)
class FusedKernels(ReferenceKernels):
    """Triton kernels.

    No kernel is chosen by autotuning, so a resumed member rounds as before. (cuDNN benchmarks the
    algorithms of the 3×3 convolutions when a step is captured: `parallel/cuda_graph.py`.)
    """

    tile: Tile | None = None
    """Tile of products with a fused epilogue; None: a cuBLAS product and a second pass."""
    max_join_inputs: int = MAX_JOIN_INPUTS
    max_gradient_inputs: int = MAX_GRADIENT_INPUTS

    def supports(self, device: torch.device) -> bool:
        """Return whether this is a GPU, or the CPU with Triton's interpreter."""
        return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"

    def weight_gradient(self, dx: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Compute the weight gradient of a 1×1 convolution in FP32."""
        return _product32(dx.t(), y).view(weight.shape)

    def pointwise_norm(
        self, y: Tensor, totals: Tensor, weight: Tensor, norm: nn.BatchNorm2d
    ) -> PointwiseConv:
        """Derive the batch norm of a 1×1 convolution from its input's second moments."""
        flat = weight.flatten(1)
        channels, inputs = flat.shape
        moments = flat.float() @ _product32(y.t(), y)
        out, covariance = moments.new_empty(4, channels), torch.empty_like(moments)
        wide = 1 << (inputs - 1).bit_length()
        block = max(1, 4096 // wide)
        kernels().pointwise_fold_norm[(ceil_div(channels, block),)](
            moments, flat, totals, norm.weight, norm.bias, norm.running_mean, norm.running_var,
            out, covariance, float(len(y)), channels, inputs, float(norm.momentum or 0), norm.eps,
            BC=block, BK=wide, num_warps=4,
        )  # fmt: skip
        return PointwiseConv(y, flat, FoldedNorm(*out.unbind(0)), totals, covariance)

    def pointwise_add_relu(
        self, linear: PointwiseConv, skip: Tensor | None, other: PointwiseConv | None
    ) -> tuple[Tensor, Tensor]:
        """Compute a 1×1 convolution, its batch norm, a skip and ReLU; the mask has eight bits a
        byte."""
        channels, inputs = linear.weight.shape
        if channels % 8:
            raise ValueError(f"{channels} channels: the packed ReLU mask needs a multiple of 8")
        bits = torch.empty(len(linear.y), channels // 8, dtype=torch.uint8, device=linear.y.device)
        if self.tile is None or other is not None or inputs > self.max_join_inputs:
            return self._norm_add_relu(_product(linear), linear.norm, skip, other, bits)
        return _tiled_add_relu(linear, skip, bits, self.tile)

    def pointwise_backward(
        self, g: Tensor, totals: Tensor, linear: PointwiseConv, norm: nn.BatchNorm2d
    ) -> Gradients:
        """Differentiate a 1×1 convolution and its batch norm.

        Terms of b and c are means over the rows, which FP16 would round to zero: they are
        multiplied by a power of two (`boost`) until everything is summed in FP32.
        """
        y, weight = linear.y, linear.weight
        channels, inputs = weight.shape
        boost = 2.0 ** max(0, len(g).bit_length() - MAX_UNSCALED_ROWS.bit_length())
        product = _product32(g.t(), y)
        dweight = torch.empty_like(product)
        a_weight, b_weight = torch.empty_like(weight), torch.empty_like(weight)
        dgamma, rest = totals.new_empty(channels), weight.new_empty(channels)
        wide = 1 << (inputs - 1).bit_length()
        block = max(1, 2048 // wide)
        kernels().pointwise_backward_terms[(ceil_div(channels, block),)](
            product, weight, linear.covariance, linear.totals, totals, linear.norm.mean,
            norm.weight, dweight, a_weight, b_weight, dgamma, rest,
            float(len(g)), boost, channels, inputs, BC=block, BK=wide, num_warps=4,
        )  # fmt: skip
        constant = (rest[None] @ weight)[0]
        dy = torch.addmm(constant, y, weight.t() @ b_weight)
        dy.addmm_(g, a_weight, beta=1 / boost)
        return Gradients(dy, dweight.view(*weight.shape, 1, 1), dgamma, totals)

    def partial_statistics(self, x: Tensor) -> Tensor:
        """Return the statistics of each split of the rows."""
        return reduce_rows(kernels().partial_statistics, x, x, sums=3)

    def fold_norm(self, parts: Tensor, norm: nn.BatchNorm2d, rows: int) -> FoldedNorm:
        """Merge partial statistics and update the running ones."""
        count, _, channels = parts.shape
        out = parts.new_empty(4, channels)
        kernels().fold_norm[(ceil_div(channels, 16),)](
            parts, norm.weight, norm.bias, norm.running_mean, norm.running_var, out,
            count, channels, float(rows), float(norm.momentum or 0), norm.eps,
            BP=128, BC=16, num_warps=4,
        )  # fmt: skip
        return FoldedNorm(*out.unbind(0))

    def norm_backward_terms(
        self, sums: Tensor, norm: FoldedNorm, weight: Tensor, rows: int
    ) -> NormBackward:
        """Merge the parts of the sums."""
        count, _, channels = sums.shape
        out = sums.new_empty(5, channels)
        kernels().norm_backward_terms[(ceil_div(channels, 16),)](
            sums, norm.mean, weight, out, count, channels, float(rows),
            BP=128, BC=16, num_warps=4,
        )  # fmt: skip
        return NormBackward(*out.unbind(0))

    def norm_relu(self, x: Tensor, norm: FoldedNorm) -> Tensor:
        """Apply batch norm and ReLU."""
        y = torch.empty_like(x)
        map_tiles(kernels().norm_relu, x, x, norm.mean, y)
        return y

    def norm_relu_sum(self, x: Tensor, norm: FoldedNorm) -> tuple[Tensor, Tensor]:
        """Apply batch norm and ReLU; return the column sums too."""
        y = torch.empty_like(x)
        parts = reduce_rows(kernels().norm_relu_sum, x, x, norm.mean, y, sums=1)
        return y, parts[:, 0].sum(0)

    def column_sums(self, y: Tensor) -> Tensor:
        """Sum each column."""
        return reduce_rows(kernels().column_sums, y, y, sums=1)[:, 0].sum(0)

    def _norm_add_relu(
        self,
        x: Tensor,
        norm: FoldedNorm,
        skip: Tensor | None,
        other: PointwiseConv | None,
        bits: Tensor,
    ) -> tuple[Tensor, Tensor]:
        y = torch.empty_like(x)
        second, second_norm = x if skip is None else skip, norm
        if other is not None:
            second, second_norm = _product(other), other.norm
        map_tiles(
            kernels().norm_add_relu, x, x, norm.mean, second, second_norm.mean, y, bits,
            SKIP=skip is not None, DUAL=other is not None,
        )  # fmt: skip
        return y, bits

    def norm_backward_sums(self, dy: Tensor, x: Tensor, norm: FoldedNorm) -> Tensor:
        """Return the sums of each split of the rows."""
        return reduce_rows(kernels().norm_backward_sums, x, dy, x, norm.mean, sums=2)

    def add_relu_backward(self, dy: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mask the gradient by a block's last ReLU; return it and its column sums."""
        return self._add_relu_backward(dy, None, None, mask)

    def pointwise_add_relu_backward(
        self, dx: Tensor, weight: Tensor, extra: SkipGradient, size: Size, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mask a 1×1 convolution's input gradient plus the skip's, as `add_relu_backward`."""
        flat = weight.flatten(1)
        if self.tile is None or extra.stride > 1 or len(flat) > self.max_gradient_inputs:
            return self._add_relu_backward(dx @ flat, extra, size, mask)
        return _tiled_add_relu_backward(dx, flat, extra.gradient, mask, self.tile)

    def _add_relu_backward(
        self, dy: Tensor, extra: SkipGradient | None, size: Size | None, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        g, gradient = torch.empty_like(dy), dy if extra is None else extra.gradient
        parts = reduce_rows(
            kernels().add_relu_backward, dy, dy, gradient, mask, g, sums=1,
            plane=(1, 1) if size is None else size[1:], STRIDE=0 if extra is None else extra.stride,
        )  # fmt: skip
        return g, parts[:, 0].sum(0)

    def norm_backward(self, dy: Tensor, x: Tensor, norm: FoldedNorm, terms: NormBackward) -> Tensor:
        """Compute the input gradient of batch norm and ReLU."""
        dx = torch.empty_like(x)
        map_tiles(kernels().norm_backward, x, dy, x, norm.mean, terms.a, dx)
        return dx

    def norm_relu_max_pool(
        self, x: Tensor, norm: FoldedNorm, size: Size
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply batch norm, ReLU and a 3×3 maximum of stride 2; return output, taps, chosen x."""
        out, channels = pooled_size(size), x.shape[1]
        y, chosen = (x.new_empty(out.rows, channels) for _ in range(2))
        taps = torch.empty(out.rows, channels, dtype=torch.uint8, device=x.device)
        bm, bc = tile_shape(channels, launch.ELEMENTWISE_TILE // 4)
        kernels().norm_relu_max_pool[grid(out.rows, channels, bm, bc)](
            x, norm.mean, y, taps, chosen, out.rows, channels, *size[1:], *out[1:],
            BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return y, taps, chosen

    def norm_max_pool_backward(
        self, dy: Tensor, taps: Tensor, x: Tensor, norm: FoldedNorm, terms: NormBackward, size: Size
    ) -> Tensor:
        """Compute the gradient of the batch norm's input before the pooling."""
        out, channels = pooled_size(size), x.shape[1]
        dx = torch.empty_like(x)
        bm, bc = tile_shape(channels, launch.ELEMENTWISE_TILE // 2)
        rows = size.images * ((size.height + 1) // 2) * ((size.width + 1) // 2)
        kernels().norm_max_pool_backward[(4 * ceil_div(rows, bm), ceil_div(channels, bc))](
            dy, taps, x, norm.mean, terms.a, dx, rows, channels, *size[1:], *out[1:],
            BM=bm, BC=bc, num_warps=8,
        )  # fmt: skip
        return dx

    def space_to_depth(self, images: Tensor, dtype: torch.dtype) -> tuple[Tensor, Size]:
        """Rearrange 2×2 pixels as channels; more than four channels go through torch."""
        size, channels = depth_size(images), images.shape[1]
        if channels > 4:
            return ReferenceKernels.space_to_depth(self, images, dtype)
        rows = torch.empty(size.rows, 16, dtype=dtype, device=images.device)
        kernels().space_to_depth[(ceil_div(size.rows, 256),)](
            images, rows, size.rows, *images.shape[2:], *size[1:], *images.stride(),
            CHANNELS=channels, BM=256, BC=16, num_warps=8,
        )  # fmt: skip
        return rows, size


def fused_kernels(device: torch.device) -> FusedKernels:
    """Return the fastest kernels for a device: tensor descriptors (TMA) need Hopper."""
    modern = torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)
    return FusedKernels(tile=PRODUCT_TILE if modern else None)


def available(device: torch.device) -> bool:
    """Return whether the kernels may run: a CUDA or ROCm device, and Triton installed.

    A trial step shows whether this version of Triton compiles them.
    """
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def _product(linear: PointwiseConv) -> Tensor:
    return linear.y @ linear.weight.t()


def _product32(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with FP32 accumulation and output."""
    if a.is_cuda and a.itemsize < 4:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _tiled_add_relu(
    linear: PointwiseConv, skip: Tensor | None, bits: Tensor, tile: Tile
) -> tuple[Tensor, Tensor]:
    channels, inputs = linear.weight.shape
    out = linear.y.new_empty(len(linear.y), channels)
    tiles = (tile.rows, tile.columns)
    kernels().pointwise_add_relu[product_grid(out, tile)](
        tensor_descriptor(linear.y, tile.rows, tile.depth),
        tensor_descriptor(linear.weight, tile.columns, tile.depth),
        tensor_descriptor(out if skip is None else skip, *tiles), tensor_descriptor(out, *tiles),
        bits, linear.norm.mean, len(out), channels, inputs, SKIP=skip is not None,
        **tile.launch_options(),
    )  # fmt: skip
    return out, bits


def _tiled_add_relu_backward(
    dx: Tensor, weight: Tensor, extra: Tensor, mask: Tensor, tile: Tile
) -> tuple[Tensor, Tensor]:
    inputs, channels = weight.shape
    g = torch.empty_like(extra)
    programs, tiles = product_grid(g, tile), (tile.rows, tile.columns)
    parts = g.new_empty(programs[1], channels, dtype=torch.float32)
    kernels().pointwise_add_relu_backward[programs](
        tensor_descriptor(dx, tile.rows, tile.depth),
        tensor_descriptor(weight, tile.depth, tile.columns),
        tensor_descriptor(extra, *tiles), mask, tensor_descriptor(g, *tiles), parts,
        len(g), channels, inputs, **tile.launch_options(),
    )  # fmt: skip
    return g, parts.sum(0)
