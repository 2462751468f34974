"""Members in one process or in several, and the reason in the plan [D11]."""

from __future__ import annotations

from typing import Any

import pytest

from ai500.core.errors import ConfigError
from ai500.parallel.parallelism_controller import Degrees, map_members
from ai500.parallel.sharing import decide, describe_sharing, describe_strategies, groups
from ai500.records import Field, Node, OwnCode, Sharing, Slot
from ai500.workloads.protocol import Workload, load_workload

IMAGES, WEATHER = load_workload("image_classification"), load_workload("extreme_weather")


@pytest.mark.parametrize(
    ("requested", "workload", "settings", "how", "reason"),
    [
        ("auto", IMAGES, {}, "process", ""),
        ("auto", IMAGES, {"members_per_accelerator": 1}, "alone", ""),
        ("auto", IMAGES, {"device": "cpu"}, "processes", "the device is cpu"),
        ("auto", IMAGES, {"parallel_degree": 2}, "processes", "P_degree = 2"),
        ("auto", IMAGES, {"precision": "mixed-fp16"}, "processes", "mixed-fp16"),
        ("auto", WEATHER, {}, "processes", "extreme_weather has no fixed shapes"),
        ("auto", IMAGES, {"framework": "jax"}, "processes", "framework jax"),
        ("auto", IMAGES, {"own_code": OwnCode(loss="my:loss")}, "processes", "loss of your own"),
        ("process", IMAGES, {"device": "cpu"}, "process", ""),
        ("processes", IMAGES, {}, "processes", "ensemble.sharing"),
    ],
)
def test_one_process_where_steps_can_be_captured(
    requested: str, workload: Workload, settings: dict[str, Any], how: str, reason: str
) -> None:
    defaults: dict[str, Any] = {
        "members_per_accelerator": 4, "parallel_degree": 1, "device": "cuda",
        "precision": "mixed-bf16",
    }  # fmt: skip
    sharing = decide(requested, workload, **(defaults | settings))
    assert (sharing.mode, reason in sharing.reason) == (how, True)
    assert reason in describe_sharing(sharing, 4)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        (WEATHER, {}),
        (IMAGES, {"framework": "jax"}),
        (IMAGES, {"own_code": OwnCode(model="my:net")}),
    ],
)
def test_one_process_that_cannot_be_is_refused(
    workload: Workload, settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as raised:
        decide(
            "process", workload, members_per_accelerator=2, parallel_degree=1, device="cuda",
            precision="fp32", **settings,
        )  # fmt: skip
    assert raised.value.key == "ensemble.sharing"
    assert "ensemble.sharing = 'auto'" in raised.value.remedy


def test_ragged_samples_have_no_fixed_shapes() -> None:
    settings: dict[str, Any] = {
        "members_per_accelerator": 2, "parallel_degree": 1, "device": "cuda", "precision": "fp32",
        "fields": (Field("tokens", "input", "int32", (-1,)),),
    }  # fmt: skip
    assert decide("auto", IMAGES, **settings).mode == "processes"
    with pytest.raises(ConfigError) as raised:
        decide("process", IMAGES, **settings)
    assert raised.value.key == "ensemble.sharing"


def test_a_process_has_the_members_of_one_accelerator_and_wave() -> None:
    nodes = [Node("n1", (Slot(0, "cuda:0", ()), Slot(1, "cuda:1", ())))]
    mapping = map_members(Degrees(9, 1, 2, 2), nodes)
    assert groups(mapping, Sharing("process")) == [(0, 2), (1, 3), (4, 6), (5, 7), (8,)]
    assert groups(mapping, Sharing("processes", "why")) == [(member,) for member in range(9)]


def test_the_timed_strategies_are_described() -> None:
    event = {
        "event": "shared_process", "trial": 1, "strategy": "graphs on streams",
        "milliseconds": {"graphs in one queue": 20.0, "graphs on streams": 7.25},
    }  # fmt: skip
    assert describe_strategies([event, event, {**event, "trial": 2}], trial=1) == [
        "Step strategy: graphs on streams (graphs on streams 7.25 ms, graphs in one queue 20 ms)."
    ]
