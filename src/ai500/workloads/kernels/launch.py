"""Tiling and launch of the Triton kernels."""

from __future__ import annotations

import functools
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


class Kernels:
    """All Triton kernels as attributes."""

    def __init__(self) -> None:
        from ai500.workloads.kernels import products, rows, stem

        for module, names in (
            (rows, ("partial_statistics", "fold_norm", "norm_backward_terms", "norm_relu",
                    "norm_relu_sum", "column_sums", "norm_add_relu", "norm_backward_sums",
                    "add_relu_backward", "norm_backward")),
            (stem, ("norm_relu_max_pool", "norm_max_pool_backward", "space_to_depth")),
            (products, products.__all__),
        ):  # fmt: skip
            for name in names:
                setattr(self, name, getattr(module, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@functools.cache
def kernels() -> Kernels:
    """Import the kernels on first use; raise ImportError where Triton is missing."""
    return Kernels()


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
