"""Properties of the simulated network on random small systems: its direction, and its folding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from ai500.core.errors import ConfigError
from ai500.projection import platform, simulator, traffic

pytestmark = [pytest.mark.long, pytest.mark.slow]  # starts SimGrid for each case
MODES = ("all_reduce", "hierarchical", "torus_2d", "ring", "double_binary_tree", "butterfly",
         "parameter_server")  # fmt: skip
CASES = settings(
    max_examples=30,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # a smaller case is no clearer, and takes minutes to find
)


@st.composite
def systems(draw: Any) -> platform.Platform:
    """Draw a network of any topology whose bandwidth and latency both matter."""
    kind = draw(st.sampled_from(["fat_tree", "dragonfly", "torus"]))
    leaf = draw(st.sampled_from([4, 8, 16]))
    topology = platform.Topology(
        kind,
        leaf=leaf,
        uplinks=draw(st.sampled_from([1, leaf // 2, leaf])),
        radix=draw(st.sampled_from([8, 64])),
        switches=4,
        endpoints=4,
        routing=draw(st.sampled_from(["adaptive", "minimal"])),
        dimensions=draw(st.integers(1, 4)),
    )
    latency = draw(st.sampled_from([1e-6, 20e-6, 1e-3]))
    return replace(
        platform.read("cluster-100gbe"),
        nodes=1,  # a dragonfly has as many groups as the drawn nodes fill
        topology=topology,
        rails=1 if kind == "torus" else draw(st.sampled_from([1, 2, 4])),
        rail_latency_seconds=latency,
        switch_latency_seconds=latency * draw(st.sampled_from([0.0, 0.1, 0.5])),
    )


def average(
    system: platform.Platform, mode: str, nodes: list[int], *, size: float, most: int | None = None
) -> float:
    """Return the seconds in which ranks on these nodes average a buffer."""
    try:
        rounds = traffic.rounds(mode, nodes, buffer=size, library=True, most_nodes=most)
        platform.shape(system, nodes[-1] + 1)
    except ConfigError:  # a prime number of ranks has no grid; too many leaves for the spine
        reject()
    return simulator.collective_seconds(system, nodes, [rounds])[0]


@CASES
@given(systems(), st.sampled_from(MODES), st.integers(2, 24), st.sampled_from([1, 2, 4]))
def test_no_part_that_is_faster_makes_averaging_slower(
    system: platform.Platform, mode: str, count: int, per_node: int
) -> None:
    nodes = [rank // per_node for rank in range(per_node * count)]
    base = average(system, mode, nodes, size=1e8)
    for part, faster in platform_variants(system).items():
        assert average(faster, mode, nodes, size=1e8) <= base * (1 + 1e-9), part
    assert base <= average(system, mode, nodes, size=2e8) <= 2 * base * (1 + 1e-9)


def platform_variants(system: platform.Platform) -> dict[str, platform.Platform]:
    """Return the system with one part of its network better."""
    return {
        "bandwidth": replace(system, rail_bytes_per_second=2 * system.rail_bytes_per_second),
        "latency": replace(
            system,
            rail_latency_seconds=system.rail_latency_seconds / 2,
            switch_latency_seconds=system.switch_latency_seconds / 2,
        ),
        "links": replace(system, link_bytes_per_second=2 * system.link_bytes_per_second),
    }


@CASES
@given(systems(), st.integers(2, 24), st.sampled_from([1, 2, 4]))
def test_no_ring_is_faster_than_its_bytes_and_messages(
    system: platform.Platform, count: int, per_node: int
) -> None:
    """A node sends 2 (n − 1) / n of the buffer through its ports, in 2 (n − 1) messages."""
    ranks, size = per_node * count, 1e8
    seconds = average(system, "ring", [rank // per_node for rank in range(ranks)], size=size)
    ports = system.rails * system.rail_bytes_per_second
    messages = 2 * (ranks - 1)
    least = messages * (system.rail_latency_seconds + size / ranks / ports)
    assert seconds >= least * (1 - 1e-6)


@CASES
@given(systems(), st.sampled_from(MODES), st.integers(17, 80), st.sampled_from([1, 2]))
def test_a_part_stands_for_all_within_a_factor(
    system: platform.Platform, mode: str, count: int, per_node: int
) -> None:
    """Parts of 16 nodes are far from 1,024; benchmarks/projection_folding.py has the real error."""
    nodes = [rank // per_node for rank in range(per_node * count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "FOLDED_NODES", 16)
        most = platform.folded_nodes(system, count)
        folded = average(system, mode, nodes, size=1e8, most=most)
        whole = average(system, mode, nodes, size=1e8)
    assert 0.4 < folded / whole < 2.5
