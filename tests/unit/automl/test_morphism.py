"""A child computes what its parent does, whatever was done to it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500.automl.morphism import Weights, WideningError, apply, moves
from ai500.automl.moves import Move
from ai500.records import InitialNetwork
from ai500.workloads.models import architecture as architectures
from ai500.workloads.models.architecture import Architecture, initial_architecture
from ai500.workloads.models.architecture_network import Network

pytestmark = pytest.mark.slow


def trained_looking(architecture: Architecture, *, seed: int, dtype: torch.dtype) -> Network:
    """Weights and running statistics as training leaves them: no zeros, no ones."""
    torch.manual_seed(seed)
    network = Network(architecture).to(dtype)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.weight, 1.0, 0.2)
            torch.nn.init.normal_(module.bias, 0.0, 0.3)
            module.running_mean.normal_(0.0, 0.3)
            module.running_var.uniform_(0.5, 2.0)
    return network.eval()


def weights_of(network: Network) -> Weights:
    return {name: value.clone() for name, value in network.state_dict().items()}


def grown(architecture: Architecture, weights: Weights, *, dtype: torch.dtype) -> Network:
    network = Network(architecture).to(dtype)
    network.load_state_dict(weights)
    return network.eval()


SMALL = [
    initial_architecture(InitialNetwork("basic", (1, 1), 4), classes=5),
    initial_architecture(InitialNetwork("bottleneck", (1, 1), 4), classes=5),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@settings(max_examples=25)
@given(data=st.data())
def test_random_sequences_keep_the_function(
    dtype: torch.dtype, tolerance: float, data: st.DataObject
) -> None:
    shape = data.draw(st.sampled_from(SMALL))
    seed = data.draw(st.integers(0, 2**31))
    parent = trained_looking(shape, seed=seed, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    child, weights = shape, weights_of(parent)
    for _ in range(data.draw(st.integers(1, 6))):
        move = data.draw(st.sampled_from(list(moves(child))))
        try:
            child, weights = apply(child, weights, move, generator=generator)
        except WideningError:
            continue
    images = torch.randn(2, 3, 16, 16, dtype=dtype)
    with torch.no_grad():
        before, after = parent(images), grown(child, weights, dtype=dtype)(images)
    scale = before.abs().max()
    assert (after - before).abs().max() <= tolerance * max(1.0, float(scale))
    assert architectures.decode(architectures.encode(child)) == child


@pytest.mark.parametrize("kind", ["deeper", "wider", "kernel", "skip_add", "skip_concat"])
def test_each_move_changes_the_network_and_can_be_trained(kind: str) -> None:
    parent = trained_looking(SMALL[0], seed=1, dtype=torch.float64)
    move = next(possible for possible in moves(SMALL[0]) if possible.kind == kind)
    generator = torch.Generator().manual_seed(1)
    child, weights = apply(SMALL[0], weights_of(parent), move, generator=generator)
    assert child.digest != SMALL[0].digest
    network = grown(child, weights, dtype=torch.float64).train()
    network(torch.randn(4, 3, 16, 16, dtype=torch.float64)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, f"{name} could never learn"


def test_copies_are_read_differently() -> None:
    """Channels that every reader weighs alike would stay copies for ever (Net2Net)."""
    parent = trained_looking(SMALL[0], seed=2, dtype=torch.float64)
    convolution = next(layer for layer in SMALL[0].layers if layer.kind == "convolution")
    reader = SMALL[0].layers[4]
    assert reader.kind == "convolution"
    move = Move("wider", convolution.number, size=convolution.channels * 2)
    generator = torch.Generator().manual_seed(3)
    _, weights = apply(SMALL[0], weights_of(parent), move, generator=generator)
    written = weights[f"layers.{convolution.number}.weight"].flatten(1)
    read = weights[f"layers.{reader.number}.weight"]
    for index in range(len(written)):
        for other in range(index):
            if torch.equal(written[index], written[other]):
                assert not torch.allclose(read[:, index], read[:, other])


def test_widening_reaches_through_additions_and_concatenations() -> None:
    parent = trained_looking(SMALL[0], seed=4, dtype=torch.float64)
    generator = torch.Generator().manual_seed(4)
    concat = next(move for move in moves(SMALL[0]) if move.kind == "skip_concat")
    child, weights = apply(SMALL[0], weights_of(parent), concat, generator=generator)
    for layer in SMALL[0].layers:
        if layer.kind == "convolution":
            move = Move("wider", layer.number, size=child[layer.number].channels + 3)
            child, weights = apply(child, weights, move, generator=generator)
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        difference = grown(child, weights, dtype=torch.float64)(images) - parent(images)
    assert difference.abs().max() < 1e-9


def test_resnet_50_is_the_start_of_full() -> None:
    network = Network(
        initial_architecture(InitialNetwork("bottleneck", (3, 4, 6, 3), 64), classes=1000)
    )
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032
