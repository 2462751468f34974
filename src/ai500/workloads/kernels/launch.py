"""How the Triton kernels are cut and started."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

WALK = 4096
"""Numbers of one tile of a kernel that walks over rows and keeps sums."""
TILE = 8192
"""Numbers of one tile of an element-wise kernel: enough rows to make up for loading γ and β."""
_PROGRAMS = 4
"""Programs per multiprocessor, of those that walk over rows."""


class Tile(NamedTuple):
    """How a matrix product is cut."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def options(self) -> dict[str, int]:
        """For Triton."""
        found = {"BM": self.rows, "BN": self.columns, "BK": self.depth}
        return found | {"num_warps": self.warps, "num_stages": self.stages}


class Kernels:
    """All kernels under one name."""

    def __init__(self) -> None:
        from ai500.workloads.kernels import products, rows, stem

        for module, names in (
            (rows, ("statistics", "normal", "slopes", "apply", "apply_summed", "totals", "join",
                    "reduce", "join_masked", "spread")),
            (stem, ("pool", "pool_spread", "space_to_depth")),
            (products, products.__all__),
        ):  # fmt: skip
            for name in names:
                setattr(self, name, getattr(module, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@functools.cache
def kernels() -> Kernels:
    """Compiled when first used; an ImportError where Triton is missing."""
    return Kernels()


def over(numerator: int, denominator: int) -> int:
    """Divided, rounded up."""
    return -(-numerator // denominator)


def tile(channels: int, numbers: int) -> tuple[int, int]:
    """Rows and channels of a tile: whole rows where they are short."""
    wide = min(256, max(8, 1 << (channels - 1).bit_length()))
    return numbers // wide, wide


def grid(rows: int, channels: int, bm: int, bc: int) -> tuple[int, int]:
    """A program for each tile."""
    return over(rows, bm), over(channels, bc)


def split(x: Tensor, bm: int, bc: int) -> tuple[int, int]:
    """How many programs share the rows, and how many rows each walks over."""
    rows, channels = x.shape
    wanted = max(1, _PROGRAMS * processors(x.device) // over(channels, bc))
    per_split = over(over(rows, wanted), bm) * bm
    return over(rows, per_split), per_split


def product_grid(out: Tensor, way: Tile) -> tuple[int, int]:
    """Programs across the columns, and along the rows; those of the same rows run together."""
    return over(out.shape[1], way.columns), over(len(out), way.rows)


def described(matrix: Tensor, rows: int, columns: int) -> Any:
    """A matrix as the copy engine takes it, tile by tile."""
    return kernels().TensorDescriptor.from_tensor(matrix, [rows, columns])


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    if device.type == "cpu":  # Triton's interpreter
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count
