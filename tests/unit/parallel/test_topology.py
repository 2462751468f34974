"""Grids of ranks, and what `plan` refuses of [communication]."""

from __future__ import annotations

import pytest

from ai500.config import load
from ai500.core.errors import ConfigError
from ai500.inventory import machine as system
from ai500.parallel.topology import (
    Grid,
    by_node,
    near_square,
    node_of_rank,
    ranks_on_nodes,
    single_line,
)
from ai500.pipeline.planning import make_plan
from ai500.records import Plan


def on_nodes(nodes: int, ranks: int) -> list[int]:
    return [node for node in range(nodes) for _ in range(ranks)]


def planned(**settings: object) -> Plan:
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    machine = {"system.nodes": 4, "system.accelerators_per_node": 4, "system.device": "cuda"}
    return make_plan(load(overrides=machine | changed), system.describe())


@pytest.mark.parametrize(
    ("nodes", "ranks", "hierarchical", "torus"),
    [
        (1, 1, Grid(1, 1), Grid(1, 1)),
        (1, 8, Grid(8, 1), Grid(4, 2)),
        (2, 2, Grid(2, 2), Grid(2, 2)),
        (4, 2, Grid(2, 4), Grid(2, 4)),
        (2, 4, Grid(4, 2), Grid(4, 2)),
        (8, 8, Grid(8, 8), Grid(8, 8)),
        (2, 8, Grid(8, 2), Grid(4, 4)),
        (12, 1, Grid(1, 12), Grid(3, 4)),
        (5, 2, Grid(2, 5), Grid(2, 5)),
    ],
)
def test_grids(nodes: int, ranks: int, hierarchical: Grid, torus: Grid) -> None:
    placed = on_nodes(nodes, ranks)
    assert single_line(placed) == Grid(nodes * ranks, 1)
    assert by_node(placed) == hierarchical
    assert near_square(placed) == torus


@pytest.mark.parametrize("size", [2, 3, 5, 7, 11, 13, 127])
def test_a_prime_number_of_ranks_is_no_torus(size: int) -> None:
    with pytest.raises(ConfigError) as raised:
        near_square([0] * size)
    assert (raised.value.key, raised.value.value) == ("communication.mode", "torus_2d")


@pytest.mark.parametrize("nodes", [[0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1, 1]])
def test_nodes_that_are_not_filled_alike_have_no_hierarchy(nodes: list[int]) -> None:
    with pytest.raises(ConfigError) as raised:
        by_node(nodes)
    assert (raised.value.key, raised.value.value) == ("communication.mode", "hierarchical")


@pytest.mark.parametrize("nodes", [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]])
def test_nodes_that_are_not_filled_alike_have_no_torus(nodes: list[int]) -> None:
    with pytest.raises(ConfigError, match="equally many consecutive ranks") as refused:
        near_square(nodes)
    assert (refused.value.key, refused.value.value) == ("communication.mode", "torus_2d")


def test_plan_maps_members_that_straddle_nodes_and_refuses_grids_for_them() -> None:
    straddling = {"parallel__degree": 6, "ensemble__size": 2, "system__nodes": 3}
    plan = planned(**straddling)
    assert [[len(share.slots) for share in mapped.shares] for mapped in plan.mapping] == [
        [4, 2], [2, 4],
    ]  # fmt: skip
    for mode in ("hierarchical", "torus_2d"):
        with pytest.raises(ConfigError) as refused:
            planned(communication__mode=mode, **straddling)
        assert (refused.value.key, refused.value.value) == ("communication.mode", mode)


def test_slurms_division_of_the_ranks() -> None:
    assert ranks_on_nodes({}) == ()
    assert ranks_on_nodes({"AI500_TASKS_PER_NODE": "4,2"}) == (4, 2)
    assert ranks_on_nodes({"AI500_TASKS_PER_NODE": "4,2(x2),1"}) == (4, 2, 2, 1)
    assert node_of_rank((4, 2)) == [0, 0, 0, 0, 1, 1]


def test_plan_carries_the_choice() -> None:
    plan = planned(
        communication__mode="hierarchical", communication__precision="int8", parallel__degree=8
    )
    assert (plan.communication.mode, plan.communication.precision) == ("hierarchical", "int8")


def test_one_replica_may_choose_anything() -> None:
    assert planned(communication__mode="torus_2d", parallel__degree=1).parallel_degree == 1


def test_plan_refuses_a_torus_of_two() -> None:
    with pytest.raises(ConfigError) as raised:
        planned(communication__mode="torus_2d", parallel__degree=2)
    assert (raised.value.key, raised.value.value) == ("communication.mode", "torus_2d")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("communication.mode", "heirarchical", "did you mean 'hierarchical'?"),
        ("communication.precision", "int4", "'int4' is not one of 'fp32', 'fp16', 'bf16', 'int8'"),
        ("communication.topology", "ring", "communication.topology: unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_fix(key: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(overrides={key: value})
    assert says in str(error.value)
