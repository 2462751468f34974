"""Who trains in one process, who in several, and that the plan says so [D11]."""

from __future__ import annotations

import pytest

from ai500.core.errors import ConfigError
from ai500.parallel.parallelism_controller import Degrees, map_members
from ai500.parallel.sharing import decide, describe_sharing, describe_strategies, groups
from ai500.records import Node, Sharing, Slot
from ai500.workloads.protocol import load_workload

IMAGES, WEATHER = load_workload("image_classification"), load_workload("extreme_weather")


@pytest.mark.parametrize(
    ("wish", "of", "settings", "how", "because"),
    [
        ("auto", IMAGES, {}, "process", ""),
        ("auto", IMAGES, {"members_per_accelerator": 1}, "alone", ""),
        ("auto", IMAGES, {"device": "cpu"}, "processes", "the device is cpu"),
        ("auto", IMAGES, {"parallel_degree": 2}, "processes", "P_degree = 2"),
        ("auto", IMAGES, {"precision": "mixed-fp16"}, "processes", "mixed-fp16"),
        ("auto", WEATHER, {}, "processes", "extreme_weather has no fixed shapes"),
        ("process", IMAGES, {"device": "cpu"}, "process", ""),
        ("processes", IMAGES, {}, "processes", "ensemble.sharing"),
    ],
)
def test_one_process_where_steps_can_be_recorded(wish, of, settings, how, because) -> None:  # type: ignore[no-untyped-def]
    known = {
        "members_per_accelerator": 4, "parallel_degree": 1, "device": "cuda",
        "precision": "mixed-bf16",
    }  # fmt: skip
    found = decide(wish, of, **(known | settings))
    assert (found.mode, because in found.reason) == (how, True)
    assert because in describe_sharing(found, 4)


def test_one_process_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no fixed shapes.*ensemble.sharing = 'auto'"):
        decide(
            "process", WEATHER, members_per_accelerator=2, parallel_degree=1, device="cuda",
            precision="fp32",
        )  # fmt: skip


def test_a_process_has_the_members_of_one_accelerator_and_wave() -> None:
    nodes = [Node("n1", (Slot(0, "cuda:0", ()), Slot(1, "cuda:1", ())))]
    mapping = map_members(Degrees(9, 1, 2, 2), nodes)
    assert groups(mapping, Sharing("process")) == [(0, 2), (1, 3), (4, 6), (5, 7), (8,)]
    assert groups(mapping, Sharing("processes", "why")) == [(member,) for member in range(9)]


def test_the_trial_of_ways_is_told() -> None:
    event = {
        "event": "shared_process", "trial": 1, "strategy": "graphs on streams",
        "milliseconds": {"graphs in one queue": 20.0, "graphs on streams": 7.25},
        "not_tried": {"batched weights": "why"},
    }  # fmt: skip
    assert describe_strategies([event, event, {**event, "trial": 2}], trial=1) == [
        "Step strategy: graphs on streams (graphs on streams 7.25 ms, graphs in one queue 20 ms; "
        "batched weights not tried: why)."
    ]
