"""Grid of ranks behind each communication mode. Needs no torch.

Every mode is a grid of `row` × `rows` ranks, numbered along the rows: reduce-scatter along the
row, all-reduce along the column, all-gather along the row.

    all_reduce     n × 1                        one line through all ranks
    hierarchical   ranks of a node × nodes      Horovod's (V2 Table 7), in the spirit of V3 [40]
    torus_2d       X × Y, as near to a square   Mikami et al. (V3 [41])
                   as the number allows
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    names = _check_equal("hierarchical", nodes)
    return Grid(row=len(nodes) // len(names), rows=len(names))


def _check_equal(mode: str, nodes: Sequence[int]) -> list[int]:
    """Raise ConfigError unless every node has equally many consecutive ranks: a grid's columns
    would cross its rows. Return the nodes."""
    names = list(dict.fromkeys(nodes))
    row = len(nodes) // len(names)
    if list(nodes) != [name for name in names for _ in range(row)]:
        counts = ", ".join(str(nodes.count(name)) for name in names)
        raise ConfigError(
            f'communication.mode = "{mode}" needs equally many consecutive ranks on each '
            f"node; here the nodes have {counts}.",
            key="communication.mode",
            value=mode,
            remedy="Change parallel.degree so that it fills whole nodes, or set "
            'communication.mode = "all_reduce".',
        )
    return names


def near_square(nodes: Sequence[int]) -> Grid:
    """Make X and Y as close as possible, with rows inside nodes where that is possible."""
    size = len(nodes)
    _check_equal("torus_2d", nodes)
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


def check(mode: str, *, ranks_per_replica: int, ranks_on_nodes: Sequence[int]) -> None:
    """Raise ConfigError if the replicas of a member can't average gradients in this mode.

    `ranks_on_nodes` has the number of the member's ranks on each of its nodes.
    """
    if mode in GRIDS:
        GRIDS[mode](node_of_rank(ranks_on_nodes)[::ranks_per_replica])


def ranks_on_nodes(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ranks on each node of a member that straddles nodes [D17]; empty: as many on each.

    Slurm's script exports how Slurm divided the ranks: `4,2(x2)` is 4, 2 and 2.
    """
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("AI500_TASKS_PER_NODE", ""))
    return tuple(int(ranks) for ranks, times in parts for _ in range(int(times or 1)))


def node_of_rank(ranks_on_nodes: Sequence[int]) -> list[int]:
    """Return the node of each rank; ranks are numbered node by node."""
    return [node for node, ranks in enumerate(ranks_on_nodes) for _ in range(ranks)]


GRIDS = {"all_reduce": single_line, "hierarchical": by_node, "torus_2d": near_square}
"""Communication mode → function from the ranks' nodes to their grid."""
