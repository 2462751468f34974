"""Eq. 5 in its three uses, waves, and the mapping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core.errors import ConfigError
from ai500.parallel.parallelism_controller import (
    Degrees,
    divisors,
    map_members,
    solve,
    straddling_slots,
)
from ai500.records import Node, Slot


def nodes(count: int, accelerators: int) -> tuple[Node, ...]:
    slots = tuple(Slot(index=i, device=f"cuda:{i}", cores=()) for i in range(accelerators))
    return tuple(Node(name=f"n{i}", slots=slots) for i in range(count))


def solved(
    size: int | None,
    degree: int | None,
    *,
    scale: int,
    per_node: int = 8,
    least: int = 1,
    k: int = 1,
) -> Degrees:
    return solve(
        ensemble_size=size,
        parallel_degree=degree,
        system_scale=scale,
        accelerators_per_node=per_node,
        least_ensemble_size=least,
        members_per_accelerator=k,
    )


def test_defaults_are_one_member_a_node() -> None:
    degrees = solved(None, None, scale=64)
    assert (degrees.ensemble_size, degrees.parallel_degree, degrees.waves) == (8, 8, 1)


def test_size_follows_from_degree() -> None:
    assert solved(None, 16, scale=64).ensemble_size == 4


def test_degree_follows_from_size() -> None:
    assert solved(4, None, scale=64).parallel_degree == 16


def test_smoke_on_two_cpu_slots_has_four_members_in_waves() -> None:
    """[D13]: never under the class's own M."""
    degrees = solved(None, None, scale=2, per_node=2, least=4)
    assert (degrees.ensemble_size, degrees.parallel_degree, degrees.waves) == (4, 2, 4)
    degrees = solved(None, 1, scale=2, per_node=2, least=4)
    assert (degrees.ensemble_size, degrees.waves) == (4, 2)


def test_more_members_than_places_run_in_waves() -> None:
    degrees = solved(5, None, scale=2, per_node=2)
    assert (degrees.parallel_degree, degrees.at_once, degrees.waves) == (1, 2, 3)


def test_several_members_share_an_accelerator() -> None:
    """[D11]: M = k × Sys_scale / P_degree."""
    degrees = solved(None, 1, scale=2, per_node=2, k=4)
    assert (degrees.ensemble_size, degrees.at_once, degrees.waves) == (8, 8, 1)


@pytest.mark.parametrize(
    ("size", "degree", "scale", "says"),
    [
        (3, 8, 64, ["3", "needs 24 accelerators", "has 64", "Eq. 5", "ensemble.size = 8"]),
        (None, 128, 64, ["No ensemble.size would work", "1, 2, 4, 8, 16, 32 or 64"]),
        (None, 7, 64, ["not divide the 64", "Set parallel.degree to 1, 2, 4, 8, 16, 32 or 64"]),
        (3, None, 64, ["3 does not divide", "1, 2, 4, 8, 16, 32 or 64", "more than 64"]),
    ],
)
def test_a_broken_equation_says_what_would_work(
    size: int | None, degree: int | None, scale: int, says: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        solved(size, degree, scale=scale)
    for part in says:
        assert part in str(error.value)


def test_sizes_that_are_offered_work_also_with_shared_accelerators() -> None:
    with pytest.raises(ConfigError) as raised:
        solved(3, None, scale=2, per_node=2, k=2)
    assert (raised.value.key, raised.value.value) == ("ensemble.size", 3)
    assert "2 or 4 or more than 4" in raised.value.remedy
    for size in (2, 4, 5):
        assert solved(size, None, scale=2, per_node=2, k=2).ensemble_size == size
    with pytest.raises(ConfigError) as raised:
        solved(1, None, scale=2, per_node=2, k=2)
    assert (raised.value.key, raised.value.value) == ("ensemble.size", 1)


def test_mapping_fills_nodes_in_order_and_spans_them() -> None:
    mapping = map_members(solved(4, 16, scale=64), nodes(8, 8))
    assert [[share.node for share in mapped.shares] for mapped in mapping] == [
        ["n0", "n1"], ["n2", "n3"], ["n4", "n5"], ["n6", "n7"],
    ]  # fmt: skip
    assert mapping[0].shares[0].slots == tuple(range(8))


def test_mapping_of_shared_accelerators_fills_each_before_sharing() -> None:
    mapping = map_members(solved(4, 1, scale=2, per_node=2, k=2), nodes(1, 2))
    assert [mapped.shares[0].slots for mapped in mapping] == [(0,), (1,), (0,), (1,)]
    assert {mapped.wave for mapped in mapping} == {0}


def shares(
    size: int, degree: int, *, count: int, per_node: int
) -> list[dict[str, tuple[int, ...]]]:
    degrees = solved(size, degree, scale=count * per_node, per_node=per_node)
    mapping = map_members(degrees, nodes(count, per_node))
    return [{share.node: share.slots for share in mapped.shares} for mapped in mapping]


def test_a_member_may_straddle_nodes() -> None:
    """V3 Table 2: any M and P_degree that satisfy Eq. 5; each has a whole node [D17]."""
    assert shares(2, 6, count=3, per_node=4) == [
        {"n0": (0, 1, 2, 3), "n1": (0, 1)},
        {"n1": (2, 3), "n2": (0, 1, 2, 3)},
    ]


def test_members_stay_inside_a_node_as_long_as_one_holds_them() -> None:
    assert shares(4, 3, count=3, per_node=4) == [
        {"n0": (0, 1, 2)},
        {"n1": (0, 1, 2)},
        {"n2": (0, 1, 2)},
        {"n0": (3,), "n1": (3,), "n2": (3,)},
    ]


def test_every_member_gets_its_whole_nodes() -> None:
    """P = 9 on nodes of 4: two whole nodes each, and one slot of a shared node."""
    for mapped in shares(4, 9, count=9, per_node=4):
        assert sorted(map(len, mapped.values())) == [1, 4, 4]


def test_the_slots_of_members_that_straddle() -> None:
    degrees = solved(2, 6, scale=12, per_node=4)
    assert straddling_slots(map_members(degrees, nodes(3, 4))) == 6
    degrees = solved(6, 2, scale=12, per_node=4)
    assert straddling_slots(map_members(degrees, nodes(3, 4))) is None


@given(
    nodes_count=st.integers(1, 12),
    per_node=st.sampled_from([1, 2, 3, 4, 6, 8]),
    k=st.integers(1, 3),
    extra=st.integers(0, 20),
    data=st.data(),
)
def test_a_mapping_never_overbooks_and_never_idles(
    nodes_count: int, per_node: int, k: int, extra: int, data: st.DataObject
) -> None:
    """Within a wave a slot has at most k members; a full wave has exactly k on each."""
    scale = nodes_count * per_node
    degree = data.draw(st.sampled_from(divisors(scale)))
    size = k * scale // degree + extra
    degrees = solved(size, degree, scale=scale, per_node=per_node, k=k)
    mapping = map_members(degrees, nodes(nodes_count, per_node))
    assert len(mapping) == size
    assert max(mapped.wave for mapped in mapping) + 1 == degrees.waves
    load: dict[tuple[int, str, int], int] = {}
    for mapped in mapping:
        for share in mapped.shares:
            for slot in share.slots:
                load[mapped.wave, share.node, slot] = (
                    load.get((mapped.wave, share.node, slot), 0) + 1
                )
        assert sum(len(share.slots) for share in mapped.shares) == degree
    assert max(load.values()) <= k
    assert [count for (wave, _, _), count in load.items() if wave == 0] == [k] * scale
    whole = degree // per_node
    for mapped in mapping if degree % per_node == 0 else ():
        assert [len(share.slots) for share in mapped.shares] == [per_node] * whole
    for mapped in mapping if per_node % degree == 0 else ():
        (share,) = mapped.shares
        assert share.slots == tuple(range(share.slots[0], share.slots[0] + degree))
