"""Theory of the collectives: bytes that are sent, bounds of a mean's error."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor

GRID_MODES = ("all_reduce", "hierarchical", "torus_2d")
MESSAGE_MODES = ("ring", "double_binary_tree", "butterfly", "parameter_server")
MODES = (*GRID_MODES, *MESSAGE_MODES)
PRIMES = {2, 3, 5, 7}
# Of one rounding, relative to the largest value that enters it.
UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 1 / 254}
# (ranks, ranks of a node) → (ranks of a row, rows) of the torus, by hand.
TORUS = {
    (1, 1): (1, 1), (4, 1): (2, 2), (4, 2): (2, 2), (4, 4): (2, 2), (6, 2): (2, 3),
    (6, 3): (3, 2), (8, 4): (4, 2),
}  # fmt: skip
# (mode, ranks) → most hops of a partial mean before it is finished, by hand.
HOPS = {
    ("ring", 1): 0, ("ring", 2): 1, ("ring", 3): 2, ("ring", 4): 3, ("ring", 6): 5, ("ring", 8): 7,
    ("double_binary_tree", 1): 0, ("double_binary_tree", 2): 1, ("double_binary_tree", 3): 2,
    ("double_binary_tree", 4): 2, ("double_binary_tree", 6): 3, ("double_binary_tree", 8): 3,
    ("butterfly", 1): 0, ("butterfly", 2): 1, ("butterfly", 3): 2, ("butterfly", 4): 2,
    ("butterfly", 6): 3, ("butterfly", 8): 3,
    ("parameter_server", 1): 0, ("parameter_server", 2): 1, ("parameter_server", 3): 1,
    ("parameter_server", 4): 1, ("parameter_server", 6): 1, ("parameter_server", 8): 1,
}  # fmt: skip
# (mode, ranks) → rounds of messages, by hand.
ROUNDS = {
    **{("ring", n): 2 * (n - 1) for n in (1, 2, 3, 4, 6, 8)},
    **{("parameter_server", n): n for n in (2, 3, 4, 6, 8)},  # n − 1 pushes, one pull
    ("parameter_server", 1): 0,
    ("double_binary_tree", 1): 0, ("double_binary_tree", 2): 2, ("double_binary_tree", 3): 4,
    ("double_binary_tree", 4): 4, ("double_binary_tree", 6): 6, ("double_binary_tree", 8): 6,
    ("butterfly", 1): 0, ("butterfly", 2): 2, ("butterfly", 3): 4, ("butterfly", 4): 4,
    ("butterfly", 6): 6, ("butterfly", 8): 6,
}  # fmt: skip
# Ranks → children of each inner rank in the first and in the second tree, by hand.
CHILDREN: dict[int, tuple[dict[int, list[int]], dict[int, list[int]]]] = {
    1: ({}, {}),
    2: ({0: [1]}, {1: [0]}),
    3: ({0: [2], 2: [1]}, {1: [0], 0: [2]}),
    4: ({0: [2], 2: [1, 3]}, {3: [1], 1: [2, 0]}),
    6: ({0: [4], 4: [2, 5], 2: [1, 3]}, {5: [1], 1: [3, 0], 3: [4, 2]}),
    8: ({0: [4], 4: [2, 6], 2: [1, 3], 6: [5, 7]}, {7: [3], 3: [5, 1], 5: [6, 4], 1: [2, 0]}),
}


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
    if mode in MESSAGE_MODES:
        return 1 + HOPS[mode, world()]
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
    """Return bytes inside the node and between nodes that this rank sends."""
    if mode in MESSAGE_MODES:
        return by_node(messages(mode, precision, length), local_size)
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


def messages(mode: str, precision: str, length: int) -> list[tuple[int, int]]:
    """Return receiver and bytes of each message of this rank."""
    multiple = {"fp32": 1, "fp16": 2, "bf16": 1, "int8": 1024}[precision]
    size, own = world(), rank()
    power = {1: 1, 2: 2, 3: 2, 4: 4, 6: 4, 8: 8}[size]
    parts = {"ring": size, "double_binary_tree": 2, "butterfly": power, "parameter_server": 1}[mode]
    part = message_bytes(precision, math.ceil(length / (parts * multiple)) * multiple)
    if mode == "ring":
        return [((own + 1) % size, part)] * (2 * (size - 1))
    if mode == "parameter_server":
        return [(other, part) for other in range(1, size)] if own == 0 else [(0, part)]
    if mode == "double_binary_tree":
        below = [child for tree in CHILDREN[size] for child in tree.get(own, [])]
        above = [up for tree in CHILDREN[size] for up, down in tree.items() if own in down]
        return [(other, part) for other in below + above]
    folded = size - power
    if own < 2 * folded and own % 2 == 0:
        return [(own + 1, power * part)]
    place = own // 2 if own < 2 * folded else own - folded
    ranks = [2 * p + 1 if p < folded else p + folded for p in range(power)]
    sent = [(own - 1, power * part)] if own < 2 * folded else []
    distance, parts_sent = 1, power // 2
    while parts_sent:
        sent += [(ranks[place ^ distance], parts_sent * part)] * 2
        distance, parts_sent = distance * 2, parts_sent // 2
    return sent


def by_node(sent: list[tuple[int, int]], local_size: int) -> tuple[int, int]:
    """Sum bytes inside this rank's node and to other nodes."""
    inside = sum(size for to, size in sent if to // local_size == rank() // local_size)
    return inside, sum(size for _, size in sent) - inside
