"""Inside one member: degrees, the workload's parallel plan, and what is refused before any job."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ai500.config import load
from ai500.core.errors import ConfigError
from ai500.parallel.engines.pipeline import balanced, finish, forward_unit
from ai500.parallel.engines.tensor import _split_channels
from ai500.parallel.model_parallelism import inside_member
from ai500.pipeline.planning import make_plan
from ai500.records import Parallelism, Split
from ai500.workloads.protocol import Workload, load_workload
from tests.support.trial_events import MACHINE

WORKLOAD = load_workload("image_classification")
WEATHER = load_workload("extreme_weather")


def planned(degree: int, **settings: Any) -> Parallelism:
    """Plan as `ai500 plan` does, on one node that is large enough."""
    overrides = {f"parallel.{key}": value for key, value in settings.items()}
    system = {"system.nodes": 1, "system.accelerators_per_node": degree}
    config = load(overrides=overrides | system | {"parallel.degree": degree})
    return make_plan(config, MACHINE).parallel


def shape(parallelism: Parallelism) -> tuple[int, int, int]:
    return parallelism.data_degree, parallelism.pipeline_degree, parallelism.tensor_degree


def test_one_axis_takes_the_whole_degree() -> None:
    assert shape(planned(4)) == (4, 1, 1)
    assert shape(planned(4, mode="pipeline")) == (1, 4, 1)
    assert shape(planned(4, mode="tensor")) == (1, 1, 4)
    assert shape(planned(4, mode="tensor", tensor_degree=4)) == (1, 1, 4)


def test_what_mixed_leaves_out_is_derived_where_unique() -> None:
    assert shape(planned(8, mode="mixed", data_degree=2, tensor_degree=2)) == (2, 2, 2)
    assert shape(planned(8, mode="mixed", pipeline_degree=2, tensor_degree=4)) == (1, 2, 4)
    assert shape(planned(8, mode="mixed", tensor_degree=8)) == (1, 1, 8)


def test_a_micro_batch_is_as_large_as_an_accelerators_batch_unless_stated() -> None:
    assert planned(4, mode="pipeline").microbatches == 4
    assert planned(4, mode="pipeline", microbatches=16).microbatches == 16
    assert planned(4).microbatches == 1


REFUSED: list[tuple[int, dict[str, Any], str, object]] = [
    (8, {"mode": "mixed", "data_degree": 2, "pipeline_degree": 2, "tensor_degree": 4},
     "parallel.degree", 8),
    (8, {"mode": "mixed", "data_degree": 3}, "parallel.degree", 8),
    (8, {"mode": "mixed", "tensor_degree": 2}, "parallel.pipeline_degree", None),
    (4, {"mode": "tensor", "data_degree": 2}, "parallel.data_degree", 2),
    (1, {"mode": "tensor"}, "parallel.mode", "tensor"),
    (1, {"mode": "pipeline"}, "parallel.mode", "pipeline"),
    (8, {"mode": "pipeline"}, "parallel.degree", 8),
    (32, {"mode": "tensor"}, "parallel.degree", 32),
    (4, {"mode": "tensor", "sharded": True}, "parallel.sharded", True),
    (4, {"mode": "sharded"}, "parallel.mode", "sharded"),
    (4, {"mode": "pipeline", "microbatches": 7}, "parallel.microbatches", 7),
    (4, {"mode": "pipeline", "microbatches": 2}, "parallel.microbatches", 2),
    (4, {"microbatches": 2}, "parallel.microbatches", 2),
    (4, {"mode": "mixed", "data_degree": 4}, "parallel.mode", "mixed"),
    (1, {"sharded": True}, "parallel.sharded", True),
    (2, {"mode": "tensor", "batch_norm": "synchronized"}, "parallel.batch_norm", "synchronized"),
    (4, {"pipeline_schedule": "gpipe"}, "parallel.pipeline_schedule", "gpipe"),
]  # fmt: skip


@pytest.mark.parametrize(("degree", "settings", "key", "value"), REFUSED)
def test_refused_with_the_key_and_its_value(
    degree: int, settings: dict[str, Any], key: str, value: object
) -> None:
    with pytest.raises(ConfigError) as error:
        planned(degree, **settings)
    assert (error.value.key, error.value.value) == (key, value)
    assert error.value.remedy or "does not divide" in str(error.value)


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        planned(4, mode="pipelined")
    assert (raised.value.key, raised.value.value) == ("parallel.mode", "pipelined")
    assert "'pipeline'" in str(raised.value)


def test_gpipe_takes_fewer_micro_batches_than_stages() -> None:
    assert planned(4, mode="pipeline", microbatches=2, pipeline_schedule="gpipe").microbatches == 2


def test_sharded_has_its_own_communication() -> None:
    overrides = {"parallel.sharded": True, "communication.precision": "fp16"}
    with pytest.raises(ConfigError) as raised:
        inside_member(load(overrides=overrides), degree=2, plan=None, batch_size=8)
    assert (raised.value.key, raised.value.value) == ("parallel.sharded", True)


def test_a_workload_without_a_plan_has_data_parallelism_only() -> None:
    config = load(overrides={"parallel.mode": "tensor"})
    with pytest.raises(ConfigError) as raised:
        inside_member(config, degree=2, plan=None, batch_size=8)
    assert (raised.value.key, raised.value.value) == ("parallel.mode", "tensor")
    sharded = load(overrides={"parallel.sharded": True})
    assert inside_member(sharded, degree=2, plan=None, batch_size=8).sharded


@pytest.mark.parametrize("name", ["smoke", "full"])
@pytest.mark.parametrize("workload", [WORKLOAD, WEATHER], ids=lambda workload: workload.name)
def test_the_plan_of_a_class_fits_its_model(workload: Workload, name: str) -> None:
    problem_class = workload.problem_classes[name]
    plan = workload.parallel_plan(problem_class)
    assert plan is not None
    with torch.device("meta"):
        model = workload.model(problem_class)
    split = {n: division for n, _ in model.named_modules() if (division := plan.split_of(n))}
    for layer, division in split.items():
        assert _split_channels(model.get_submodule(layer), division) == division.channels, layer
    # Every pattern means something, and everything but two small predictions is divided.
    assert {division.layers for division in split.values()} == {
        division.layers for division in plan.splits
    }
    heavy = (torch.nn.Conv2d, torch.nn.Linear)
    whole = {n for n, layer in model.named_modules() if isinstance(layer, heavy) and n not in split}
    assert whole == ({"head.classify", "head.locate"} if workload is WEATHER else set())
    units = [model.get_submodule(name) for name in plan.units]
    held = sum(parameter.numel() for unit in units for parameter in unit.parameters())
    assert not units or held > 0.8 * sum(parameter.numel() for parameter in model.parameters())


def test_the_detector_is_split_and_cut() -> None:
    plan = WEATHER.parallel_plan(WEATHER.problem_classes["smoke"])
    mixed = {"parallel.mode": "mixed", "workload": "extreme_weather"}
    split = load(overrides={**mixed, "parallel.tensor_degree": 2, "parallel.data_degree": 2})
    assert shape(inside_member(split, degree=4, plan=plan, batch_size=8)) == (2, 1, 2)
    cut = load(overrides={**mixed, "parallel.pipeline_degree": 2, "parallel.data_degree": 2})
    assert shape(inside_member(cut, degree=4, plan=plan, batch_size=8)) == (2, 2, 1)
    assert plan is not None
    rowless = dataclasses.replace(plan, stages=())
    with pytest.raises(ConfigError) as raised:
        inside_member(cut, degree=4, plan=rowless, batch_size=8)
    assert raised.value.key == "parallel.mode"


def test_the_detectors_units_carry_what_its_pyramid_needs() -> None:
    problem_class = WEATHER.problem_classes["smoke"]
    model, plan = WEATHER.model(problem_class).eval(), WEATHER.parallel_plan(problem_class)
    assert plan is not None
    images = torch.randn(2, *problem_class.input_shape)
    carried: tuple[torch.Tensor, ...] = (images,)
    with torch.no_grad():
        for name in itertools.chain(*plan.stages):
            carried = forward_unit(model, name, carried)
        torch.testing.assert_close(finish(model, carried, None), model(images), rtol=0, atol=0)


def test_the_stages_in_a_row_are_the_model() -> None:
    problem_class = WORKLOAD.problem_classes["smoke"]
    plan = WORKLOAD.parallel_plan(problem_class)
    assert plan is not None
    model = WORKLOAD.model(problem_class).eval()
    inputs = torch.randn(2, *problem_class.input_shape)
    x = inputs
    for name in itertools.chain(*plan.stages):
        x = model.get_submodule(name)(x)
    assert torch.equal(x, model(inputs))


def test_a_star_is_one_part_of_a_name() -> None:
    split = Split("stages.*.*.conv1", "columns", 8)
    assert split.matches("stages.0.1.conv1")
    assert not split.matches("stages.0.1.conv2")
    assert not split.matches("stages.0.conv1")


@given(
    costs=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    parts=st.integers(1, 8),
)
def test_stages_are_balanced_as_well_as_can_be(costs: list[int], parts: int) -> None:
    parts = min(parts, len(costs))

    def worst(bounds: tuple[int, ...]) -> int:
        return max(sum(costs[first:last]) for first, last in itertools.pairwise(bounds))

    bounds = balanced(costs, parts)
    assert len(bounds) == parts + 1
    assert all(first < last for first, last in itertools.pairwise(bounds))
    inner = itertools.combinations(range(1, len(costs)), parts - 1)
    assert worst(tuple(bounds)) == min(worst((0, *cuts, len(costs))) for cuts in inner)
