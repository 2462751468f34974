"""Before the timed window no sample is read, and nothing of it is left [D18]."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ai500.core.errors import DataError
from ai500.data.values import require_arrays
from ai500.records.fields import Field
from ai500.train.generated_samples import generated_samples
from ai500.train.loop import prepare
from ai500.train.member import Member
from ai500.train.step_strategies import graph_strategies
from ai500.train.warm_up import random_streams_preserved
from ai500.workloads.protocol import load_workload
from tests.support.noise_members import Shape, make_member, make_tasks

TINY = Shape("batch 8, 32×32", 8, 32, 32, 64, problem_class="smoke")


class Sealed:
    """A split whose samples must not be read."""

    def __init__(self, samples: Any) -> None:
        self.count, self.fields = samples.count, samples.fields

    def rows(self, indices: Any, **_: object) -> Any:
        raise AssertionError(f"{len(indices)} samples were read before the timed window")


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """A member whose training and validation samples are sealed."""
    (task,) = make_tasks(TINY, tmp_path, members=1, precision="fp32")
    made = make_member(task, torch.device("cpu"))
    made.feed = replace(made.feed, samples=Sealed(made.feed.samples))
    made.evaluator.samples = Sealed(made.evaluator.samples)  # type: ignore[assignment]
    return made


def state(member: Member) -> dict[str, Any]:
    """Everything that a warm-up could leave behind."""
    module, optimizer = member.engine.module, member.optimizer
    tensors = {f"module.{name}": value.clone() for name, value in module.state_dict().items()}
    slots = [value.clone() for slot in optimizer.state.values() for value in slot.values()]
    gradients = [parameter.grad for parameter in module.parameters()]
    return {
        **tensors,
        "optimizer": [value for value in slots if value.any()],
        "rates": [group["lr"] for group in optimizer.param_groups],
        "gradients": [gradient for gradient in gradients if gradient is not None],
        "random": torch.get_rng_state(),
    }


def same(before: Any, after: Any) -> bool:
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(same(before[k], after[k]) for k in before)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(same, before, after))
    return torch.equal(before, after) if torch.is_tensor(before) else bool(before == after)


def test_preparing_reads_no_sample_and_leaves_no_trace(member: Member) -> None:
    before = state(member)
    position = prepare(member)
    assert (position.epoch, position.step) == (0, 0)
    assert same(before, state(member))


def test_choosing_a_strategy_reads_no_sample(member: Member) -> None:
    before = state(member)
    graph_strategies({0: member})
    member.optimizer.zero_grad()
    assert same({**before, "random": None}, {**state(member), "random": None})


def test_the_warm_up_of_evaluation_reads_no_sample(member: Member) -> None:
    """On an accelerator `Evaluator.warm_up` calls this."""
    before = state(member)
    with random_streams_preserved(torch.device("cpu")):
        member.evaluator.predict_generated()
        torch.rand(3)
    assert same(before, state(member))
    assert member.engine.module.training


@pytest.mark.parametrize(
    "workload",
    ["image_classification", "extreme_weather", "climate_segmentation", "cosmology",
     "language_model"],
)  # fmt: skip
def test_generated_samples_are_valid_for_every_workload(workload: str, tmp_path: Path) -> None:
    """Types, shapes and limits of the class's fields; a step on them has a loss."""
    loaded = load_workload(workload)
    problem_class = loaded.problem_classes["smoke"]
    if (
        problem_class.fields
        and problem_class.fields[0].name == "images"
        and workload.startswith(("extreme", "climate"))
    ):
        channels = problem_class.input_shape[0]
        ones = (0.0,) * channels, (1.0,) * channels
        problem_class = replace(problem_class, normalization=ones)
    arrays = generated_samples(problem_class.fields, 2)
    require_arrays(
        arrays, problem_class.fields, numbers=range(2), path=tmp_path, samples="generated"
    )
    fields = {name: torch.from_numpy(values) for name, values in arrays.items()}
    torch.manual_seed(1)
    model = loaded.model(problem_class)
    draws = torch.full((2, loaded.draws_per_sample), 0.5)
    inputs, targets = loaded.train_inputs(problem_class, fields, draws)
    outputs = loaded.forward(model, inputs, targets)
    loss = loaded.loss(outputs, targets, hyperparameters=problem_class.reference)
    assert torch.isfinite(loss)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_generated_samples_of_ragged_and_bounded_fields(tmp_path: Path) -> None:
    fields = (
        Field("tokens", "input", "uint16", (-1,), limits=(0, 49_999)),
        Field("signs", "input", "int8", (4,), limits=(-1, 1)),
        Field("flags", "target", "bool", ()),
        Field("bytes", "target", "int32", (), limits=(1, 2**31 - 1)),
    )
    arrays = generated_samples(fields, 3)
    require_arrays(arrays, fields, numbers=range(3), path=tmp_path, samples="generated")
    assert set(np.unique(arrays["signs"])) <= {-1, 0, 1}
    assert arrays["bytes"].min() >= 1
    with pytest.raises(DataError):
        require_arrays(arrays, fields, numbers=range(4), path=tmp_path, samples="generated")
