"""Every communication mode against its textbook formula in α (latency) and β (bytes per second).

The formulas are written here by hand, not taken from the code. Chan, Heimlich, Purkayastha and van
de Geijn, "Collective communication: theory, practice, and experience", 2007; Patarasuk and Yuan,
2009 (ring); Rabenseifner, 2004 (butterfly).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ai500.projection import platform, simulator, traffic

pytestmark = pytest.mark.slow  # starts SimGrid
NODES, LOCAL = 8, 4
ALPHA, BETA = 20e-6, 12.5e9
"""Latency of a message between two nodes of a switch, and bandwidth of a node."""
INSIDE_ALPHA, INSIDE_BETA = 5e-6, 300e9
SYSTEM = replace(platform.read("cluster-100gbe"), switch_latency_seconds=1e-6)


def ring(ranks: int, size: float, *, alpha: float = ALPHA, beta: float = BETA) -> float:
    """Half an all-reduce: a reduce-scatter or an all-gather."""
    return (ranks - 1) * (alpha + size / ranks / beta)


def all_to_all(ranks: int, size: float, *, alpha: float = ALPHA, beta: float = BETA) -> float:
    """A reduce-scatter in which all ranks send to all at once."""
    return alpha + (ranks - 1) * size / ranks / beta


def grid(size: float, *, row: Callable[[float], float]) -> float:
    """Reduce along rows inside nodes, all-reduce along columns, gather along rows.

    The ranks of a node send at once, so that its port carries all of the buffer.
    """
    return row(size) + all_to_all(NODES, size) + ring(NODES, size)


def inside(size: float) -> float:
    link = {"alpha": INSIDE_ALPHA, "beta": INSIDE_BETA}
    return all_to_all(LOCAL, size, **link) + ring(LOCAL, size, **link)


def butterfly(size: float) -> float:
    """Halving and doubling: log2 n exchanges each way, of a half, a quarter, …"""
    return 2 * (3 * ALPHA + (1 - 1 / NODES) * size / BETA)


def double_binary_tree(size: float) -> float:
    """Halves of the buffer go up log2 n levels and down again, whole (Sanders et al.: pipelined).

    On each level but the one below the root a rank receives from two children of its tree.
    """
    return 2 * (3 * ALPHA + (2 + 2 + 1) * size / 2 / BETA)


def parameter_server(size: float) -> float:
    """Clients send one after another; the server answers all at once."""
    return (NODES - 1) * (ALPHA + size / BETA) + ALPHA + (NODES - 1) * size / BETA


def seconds(mode: str, size: float, *, local: int = 1, library: bool = True) -> float:
    nodes = [rank // local for rank in range(local * NODES)]
    rounds = traffic.rounds(mode, nodes, buffer=size, library=library)
    return simulator.collective_seconds(SYSTEM, nodes, [rounds])[0]


@pytest.mark.parametrize("size", [8e3, 8e6, 8e9], ids=["latency", "both", "bandwidth"])
@pytest.mark.parametrize(
    ("mode", "formula"),
    [
        ("ring", lambda size: 2 * ring(NODES, size)),
        ("all_reduce", lambda size: 2 * ring(NODES, size)),
        ("butterfly", butterfly),
        ("double_binary_tree", double_binary_tree),
        ("parameter_server", parameter_server),
        # 4 × 2 ranks: rows of two nodes, columns of four.
        ("torus_2d", lambda size: all_to_all(2, size) + ring(2, size)
         + all_to_all(4, size / 2) + ring(4, size / 2)),
    ],
)  # fmt: skip
def test_one_rank_on_a_node(mode: str, formula: Callable[[float], float], size: float) -> None:
    assert seconds(mode, size) == pytest.approx(formula(size), rel=1e-3)


@pytest.mark.parametrize("size", [32e3, 32e6, 32e9], ids=["latency", "both", "bandwidth"])
@pytest.mark.parametrize("mode", ["hierarchical", "torus_2d"])
def test_ranks_of_a_node_reduce_first_and_share_its_port(mode: str, size: float) -> None:
    """8 nodes × 4 ranks: the 2D torus has rows of 4, too, which are the nodes."""
    assert seconds(mode, size, local=LOCAL) == pytest.approx(grid(size, row=inside), rel=1e-3)


@pytest.mark.parametrize("size", [8e3, 8e9])
def test_a_compressed_all_reduce_has_a_reduce_scatter_of_all_pairs(size: float) -> None:
    expected = all_to_all(NODES, size) + ring(NODES, size)
    assert seconds("all_reduce", size, library=False) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("size", [8e3, 8e9])
def test_fsdp2_is_three_halves_of_a_ring(size: float) -> None:
    """One gathering forward, one backward, one reduce-scatter."""
    rounds = traffic.sharded_rounds(list(range(NODES)), buffer=size, passes=3)
    (made,) = simulator.collective_seconds(SYSTEM, list(range(NODES)), [rounds])
    assert made == pytest.approx(3 * ring(NODES, size), rel=1e-3)


SIZE = 1e9
UPLINKS = {"fat_tree": 8, "dragonfly": 8}
"""Links of 32 nodes to all others: stated, and half of a group's 16 global links."""


@pytest.mark.parametrize(
    ("pairs", "load"),
    [
        ([(0, 1)], 1),
        ([(0, 1), (1, 0)], 1),  # both directions of a port at once
        ([(0, 1), (0, 2)], 2),  # one port sends twice
        ([(1, 0), (2, 0), (3, 0)], 3),  # one port receives three times
        ([(node, node ^ 1) for node in range(32)], 1),  # the switch itself is no bottleneck
        ([(node, node + 32) for node in range(32)], 4),  # 32 nodes through 8 links
        ([(node, (node + 32) % 96) for node in range(96)], 4),
        ([(node, node + 32) for node in range(8)], 1),  # 8 nodes have a link each
    ],
)
@pytest.mark.parametrize("kind", ["fat_tree", "dragonfly"])
def test_messages_share_ports_and_links_of_their_direction(
    kind: platform.TopologyKind, pairs: list[tuple[int, int]], load: int
) -> None:
    """96 nodes; in the dragonfly five groups of 32, four links between every two of them."""
    topology = platform.Topology(
        kind, leaf=32, uplinks=UPLINKS[kind], switches=8, endpoints=4, global_links=4
    )
    system = replace(SYSTEM, nodes=160, topology=topology)
    round_ = traffic.Round([(sender, receiver, SIZE) for sender, receiver in pairs], 1)
    (made,) = simulator.collective_seconds(system, list(range(96)), [[round_]])
    assert made == pytest.approx(load * SIZE / BETA, rel=1e-3)


def test_minimal_routes_of_a_dragonfly_are_the_links_of_two_groups() -> None:
    """32 nodes of a group send to another: over 4 links, where adaptive routes have 8."""
    topology = platform.Topology(
        "dragonfly", switches=8, endpoints=4, global_links=4, routing="minimal"
    )
    system = replace(SYSTEM, nodes=160, topology=topology)
    round_ = traffic.Round([(node, node + 32, SIZE) for node in range(32)], 1)
    (made,) = simulator.collective_seconds(system, list(range(96)), [[round_]])
    assert made == pytest.approx(8 * SIZE / BETA, rel=1e-3)
