"""Grid of ranks behind each communication mode. Needs no torch.

Every mode is a grid of `row` × `rows` ranks, numbered along the rows: reduce-scatter along the
row, all-reduce along the column, all-gather along the row.

    all_reduce     n × 1                        one line through all ranks
    hierarchical   ranks of a node × nodes      Horovod's (V2 Table 7), in the spirit of V3 [40]
    torus_2d       X × Y, as near to a square   Mikami et al. (V3 [41])
                   as the number allows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ai500.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Grid:
    """`row` ranks in a row (X), `rows` of them (Y)."""

    row: int
    rows: int


def single_line(nodes: Sequence[int]) -> Grid:
    """Put all ranks in one row; `nodes` is the node of each rank, in the order of ranks."""
    return Grid(row=len(nodes), rows=1)


def by_node(nodes: Sequence[int]) -> Grid:
    """Make a row for each node. Every node must hold equally many consecutive ranks."""
    names = list(dict.fromkeys(nodes))
    row = len(nodes) // len(names)
    if list(nodes) != [name for name in names for _ in range(row)]:
        counts = ", ".join(str(nodes.count(name)) for name in names)
        raise ConfigError(
            'communication.mode = "hierarchical" needs equally many consecutive ranks on each '
            f"node; here the nodes have {counts}.",
            key="communication.mode",
            value="hierarchical",
            remedy="Change parallel.degree so that it fills whole nodes, or set "
            'communication.mode = "all_reduce".',
        )
    return Grid(row=row, rows=len(names))


def near_square(nodes: Sequence[int]) -> Grid:
    """Make X and Y as close as possible, with rows inside nodes where that is possible."""
    size = len(nodes)
    if size == 1:
        return Grid(row=1, rows=1)
    short = max(side for side in range(1, int(size**0.5) + 1) if size % side == 0)
    if short == 1:
        raise ConfigError(
            f'communication.mode = "torus_2d" needs a grid of at least 2 × 2 ranks; {size} '
            "data-parallel accelerators make only a single line.",
            key="communication.mode",
            value="torus_2d",
            remedy='Use 4, 6, 8, 9, … of them, or set communication.mode = "all_reduce".',
        )
    for row in (size // short, short):
        if all(len(set(nodes[first : first + row])) == 1 for first in range(0, size, row)):
            return Grid(row=row, rows=size // row)
    return Grid(row=short, rows=size // short)


def check(mode: str, *, data_degree: int, ranks_per_replica: int, ranks_per_node: int) -> None:
    """Raise ConfigError if the replicas of a member can't average gradients in this mode."""
    if mode in GRIDS:
        GRIDS[mode]([i * ranks_per_replica // ranks_per_node for i in range(data_degree)])


GRIDS = {"all_reduce": single_line, "hierarchical": by_node, "torus_2d": near_square}
"""Communication mode → function from the ranks' nodes to their grid."""
