"""Tiling and launch of the Triton kernels."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Elements of a tile of a kernel that loops over rows and keeps sums.
REDUCTION_TILE = 4096
# Elements of a tile of an element-wise kernel: enough rows to amortize loading γ and β.
ELEMENTWISE_TILE = 8192
# Programs per multiprocessor, of kernels that loop over rows.
PROGRAMS_PER_PROCESSOR = 4


class Tile(NamedTuple):
    """Tile of a matrix product."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def launch_options(self) -> dict[str, int]:
        """Return the keyword arguments of a Triton launch."""
        sizes = {"BM": self.rows, "BN": self.columns, "BK": self.depth}
        return sizes | {"num_warps": self.warps, "num_stages": self.stages}


@functools.cache
def kernels() -> Any:
    """Import the kernels on first use; raise ImportError where Triton is missing."""
    from ai500.workloads.kernels import products, rows, stem

    return SimpleNamespace(**(vars(rows) | vars(stem) | vars(products)))


def ceil_div(numerator: int, denominator: int) -> int:
    """Divide, rounded up."""
    return -(-numerator // denominator)


def tile_shape(channels: int, numbers: int) -> tuple[int, int]:
    """Return rows and channels of a tile: whole rows where they are short."""
    wide = min(256, max(8, 1 << (channels - 1).bit_length()))
    return numbers // wide, wide


def grid(rows: int, channels: int, bm: int, bc: int) -> tuple[int, int]:
    """Return the grid of one program per tile."""
    return ceil_div(rows, bm), ceil_div(channels, bc)


def map_tiles(kernel: Any, x: Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch an element-wise kernel on matrices like `x`, one program per tile."""
    rows, channels = x.shape
    bm, bc = tile_shape(channels, ELEMENTWISE_TILE)
    kernel[grid(rows, channels, bm, bc)](
        *arguments, rows, channels, BM=bm, BC=bc, num_warps=8, **constants
    )


def reduce_rows(
    kernel: Any,
    x: Tensor,
    *arguments: Any,
    sums: int,
    plane: tuple[int, ...] = (),
    **constants: Any,
) -> Tensor:
    """Launch a kernel that sums over the rows of matrices like `x`, split among programs.

    Return programs × `sums` × channels. `plane` is an image's height and width, if it needs them.
    """
    rows, channels = x.shape
    bm, bc = tile_shape(channels, REDUCTION_TILE)
    count, per_split = split_rows(x, bm, bc)
    parts = x.new_empty(count, sums, channels, dtype=torch.float32)
    kernel[(count, ceil_div(channels, bc))](
        *arguments, parts, rows, channels, *plane, per_split, BM=bm, BC=bc, num_warps=8, **constants
    )
    return parts


def split_rows(x: Tensor, bm: int, bc: int) -> tuple[int, int]:
    """Return how many programs share the rows, and how many rows each processes."""
    rows, channels = x.shape
    programs = max(
        1, PROGRAMS_PER_PROCESSOR * multiprocessor_count(x.device) // ceil_div(channels, bc)
    )
    per_split = ceil_div(ceil_div(rows, programs), bm) * bm
    return ceil_div(rows, per_split), per_split


def product_grid(out: Tensor, tile: Tile) -> tuple[int, int]:
    """Return programs across columns and along rows; programs of the same rows run together."""
    return ceil_div(out.shape[1], tile.columns), ceil_div(len(out), tile.rows)


def tensor_descriptor(matrix: Tensor, rows: int, columns: int) -> Any:
    """Describe a matrix for tiled loads and stores (TMA)."""
    return kernels().TensorDescriptor.from_tensor(matrix, [rows, columns])


@functools.cache
def multiprocessor_count(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU."""
    if device.type == "cpu":  # Triton's interpreter
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count
