"""Operations of an architecture without torch are those of the module that trains."""

from __future__ import annotations

from random import Random

import pytest
import torch

from ai500.automl.counting import count_architecture
from ai500.automl.morphism import apply, moves
from ai500.operations.count import count_trace
from ai500.operations.graph import with_loss
from ai500.operations.shipped import shipped_operations
from ai500.operations.torch_trace import trace
from ai500.records import InitialNetwork
from ai500.workloads.models.architecture import (
    Architecture,
    Builder,
    initial_architecture,
)
from ai500.workloads.models.architecture_network import Network


def every_kind() -> Architecture:
    """A network with each kind of layer; one sum is of three."""
    build = Builder(3)
    first = build.block(0, 4, 3)
    second = build.block(first, 4, 5)
    wide = build.block(build.add("concat", first, second), 6, 3, stride=2)
    pooled = build.add("max_pool", wide, kernel=3, stride=2)
    summed = build.add("add", pooled, pooled, pooled)
    build.add("dense", build.add("global_pool", summed), channels=5)
    return Architecture(tuple(build.layers))


@pytest.mark.parametrize(
    ("architecture", "size"),
    [
        (every_kind(), 23),
        (initial_architecture(InitialNetwork("basic", (1, 2), 8), classes=10), 24),
        (initial_architecture(InitialNetwork("bottleneck", (1, 1, 2), 8), classes=7), 65),
    ],
)
@pytest.mark.parametrize("convention", ["aiperf", "v3"])
def test_the_count_is_that_of_the_traced_module(
    architecture: Architecture, size: int, convention: str
) -> None:
    traced = with_loss(trace(Network(architecture), torch.zeros(2, 3, size, size)), "softmax")
    expected = count_trace(traced, convention=convention)
    counted = count_architecture(architecture, input_shape=(3, size, size), convention=convention)
    assert counted.forward_per_sample == expected.forward_per_sample
    assert counted.backward_per_sample == expected.backward_per_sample
    assert counted.update_per_step == expected.update
    assert counted.parameters == expected.parameters


def test_resnet_50_is_counted_as_the_one_of_image_classification() -> None:
    start = initial_architecture(InitialNetwork("bottleneck", (3, 4, 6, 3), 64), classes=1000)
    counted = count_architecture(start, input_shape=(3, 224, 224), convention="aiperf")
    assert counted == shipped_operations("image_classification", "full")


def test_children_are_counted_as_they_are_traced() -> None:
    generator, random = torch.Generator().manual_seed(3), Random(3)
    child = initial_architecture(InitialNetwork("basic", (1, 1), 4), classes=5)
    weights = dict(Network(child).state_dict())
    for kind in ("deeper", "wider", "kernel", "skip_add", "skip_concat"):
        move = random.choice([candidate for candidate in moves(child) if candidate.kind == kind])
        child, weights = apply(child, weights, move, generator=generator)
        traced = with_loss(trace(Network(child), torch.zeros(2, 3, 20, 20)), "softmax")
        expected = count_trace(traced, convention="aiperf")
        counted = count_architecture(child, input_shape=(3, 20, 20), convention="aiperf")
        assert (
            counted.forward_per_sample,
            counted.backward_per_sample,
            counted.update_per_step,
        ) == (
            expected.forward_per_sample,
            expected.backward_per_sample,
            expected.update,
        )
