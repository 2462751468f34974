"""Theory of the collectives: bytes that are sent, bounds of a mean's error."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor

MODES = ("all_reduce", "hierarchical", "torus_2d")
PRIMES = {2, 3, 5, 7}
# Of one rounding, relative to the largest value that enters it.
UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 1 / 254}
# (ranks, ranks of a node) → (ranks of a row, rows) of the torus, by hand.
TORUS = {
    (1, 1): (1, 1), (4, 1): (2, 2), (4, 2): (2, 2), (4, 4): (2, 2), (6, 2): (2, 3),
    (6, 3): (3, 2), (8, 4): (4, 2),
}  # fmt: skip


def rank() -> int:
    return dist.get_rank()


def world() -> int:
    return dist.get_world_size()


def local_sizes() -> list[int]:
    """Ranks of a node: from one to all in a small world, one or two sizes in a larger one."""
    return {1: [1], 2: [1, 2], 3: [1, 3], 4: [1, 2, 4], 6: [2, 3], 8: [4]}[world()]


def modes() -> list[str]:
    return [mode for mode in MODES if mode != "torus_2d" or world() not in PRIMES]


def shape(mode: str, local_size: int) -> tuple[int, int]:
    """Ranks of a row, rows."""
    if mode == "all_reduce":
        return world(), 1
    return (
        (local_size, world() // local_size)
        if mode == "hierarchical"
        else TORUS[world(), local_size]
    )


def lines(mode: str, local_size: int) -> list[list[int]]:
    """Return this rank's row and column."""
    row, rows = shape(mode, local_size)
    first, column = rank() // row * row, rank() % row
    return [list(range(first, first + row)), [column + row * k for k in range(rows)]]


def roundings(mode: str, local_size: int) -> int:
    """Count the roundings of a value: once per all-to-all, per hop of a ring, and at the end."""
    count = 1
    for line in lines(mode, local_size):
        nodes = {r // local_size for r in line}
        count += len(line) - 1 if 1 < len(nodes) < len(line) else min(1, len(line) - 1)
    return count


def bound(precision: str, inputs: Tensor, mode: str, local_size: int) -> Tensor:
    """Bound the error of each value."""
    if precision == "fp32":
        return 1e-6 * inputs.abs().mean(0)
    times = roundings(mode, local_size) * 1.01
    if precision == "int8":
        # Partial means are smaller than the largest input, up to what rounding adds.
        return torch.full_like(inputs[0], times * UNIT["int8"] * float(inputs.abs().max()) * 1.01)
    tiny = float(inputs.abs().max()) * 2.0**-38
    return times * (UNIT[precision] * inputs.abs().mean(0) + tiny)


def message_bytes(precision: str, values: int) -> int:
    if precision == "int8":
        assert values % 1024 == 0
    return {
        "fp32": 4 * values,
        "fp16": 2 * values + 4,
        "bf16": 2 * values,
        "int8": values + 4 * values // 1024,
    }[precision]


def expected_bytes(mode: str, precision: str, local_size: int, length: int) -> tuple[int, int]:
    """Return bytes inside the node and between nodes: a rank sends to its right neighbour."""
    row, rows = shape(mode, local_size)
    multiple = {"fp32": 1, "fp16": 2, "bf16": 1, "int8": 1024}[precision]
    chunk = math.ceil(length / (row * rows * multiple)) * multiple
    own_row, column = lines(mode, local_size)
    last = message_bytes(precision, chunk)
    along_row = (row - 1) * (message_bytes(precision, rows * chunk) + rows * last)
    along_column = 2 * (rows - 1) * last
    if mode == "all_reduce" and precision == "fp32":
        along_row = 2 * (world() - 1) * 4 * length // world()
    inside = between = 0
    for line, sent in ((own_row, along_row), (column, along_column)):
        right = line[(line.index(rank()) + 1) % len(line)]
        if right // local_size == rank() // local_size:
            inside += sent
        else:
            between += sent
    return inside, between
