"""Parts that other frameworks share with PyTorch: the model's layers, its weights, the inputs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ai500.train import provenance
from ai500.train.batch_order import augmentation_draws, rank_indices
from ai500.workloads import image_arrays, language_model
from ai500.workloads.image_classification import WORKLOAD
from ai500.workloads.models import resnet, resnet_layers, transformer_layers
from ai500.workloads.models.transformer_layers import parameters
from ai500.workloads.models.transformer_plan import SHAPES

SEED = 2**62 + 7


@pytest.mark.parametrize("name", ["smoke", "workstation", "full"])
def test_initial_weights_are_the_references(name: str) -> None:
    definition = WORKLOAD.problem_classes[name]
    torch.manual_seed(SEED)
    state = WORKLOAD.model(definition).state_dict()
    expected = {key: value.numpy() for key, value in state.items() if "num_batches" not in key}
    weights = resnet_layers.initial_weights(resnet_layers.class_resnet(definition), seed=SEED)
    assert list(weights) == list(expected)
    for key, value in weights.items():
        assert value.shape == expected[key].shape, key
        assert np.abs(value - expected[key]).max() < 2e-7, key


@pytest.mark.parametrize("name", ["smoke", "workstation"])
def test_initial_weights_of_the_language_model(name: str) -> None:
    torch.manual_seed(SEED)
    model = language_model.WORKLOAD.model(language_model.CLASSES[name])
    weights = transformer_layers.initial_weights(SHAPES[name], seed=SEED)
    expected = {key: value.detach().numpy() for key, value in model.named_parameters()}
    assert list(weights) == list(expected)
    for key, value in weights.items():
        assert value.shape == expected[key].shape, key
        assert np.abs(value - expected[key]).max() < 2e-7, key
    kinds = {parameter.name: parameter.kind for parameter in parameters(SHAPES[name])}
    assert kinds == {key: provenance.kind_of(model, key) for key in expected}


def test_parameters_of_both_versions() -> None:
    for version in ("v1", "v1.5"):
        layers = resnet_layers.parameters(resnet_layers.resnet50(version=version))
        trained = {p.name: p.shape for p in layers if p.trained}
        model = resnet.resnet50(version=version)
        assert trained == {name: tuple(p.shape) for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("name", "height", "width"),
    [("smoke", 32, 32), ("workstation", 256, 256), ("workstation", 300, 421)],
)
def test_inputs_agree_with_torchs(name: str, height: int, width: int) -> None:
    definition = WORKLOAD.problem_classes[name]
    random = np.random.default_rng(1)
    stored = random.integers(0, 256, (4, height, width, 3), dtype=np.uint8)
    images = torch.from_numpy(stored)
    draws = random.random((4, WORKLOAD.draws_per_sample), dtype=np.float32)
    fields = {"images": images, "labels": torch.zeros(4, dtype=torch.int64)}
    expected, _ = WORKLOAD.train_inputs(definition, fields, torch.from_numpy(draws))
    arrays = image_arrays.train_inputs(np, definition, stored, draws, dtype="float32")
    assert arrays.dtype == np.float32
    # Neighbouring pixels of noise differ by up to 5: positions agree to 1e-4 of a pixel.
    assert np.abs(arrays - expected.permute(0, 2, 3, 1).numpy()).max() < 5e-4
    expected = WORKLOAD.evaluation_inputs(definition, fields)
    arrays = image_arrays.evaluation_inputs(np, definition, stored, dtype="float32")
    assert np.abs(arrays - expected.permute(0, 2, 3, 1).numpy()).max() < 5e-4


def test_ranks_share_the_order_and_the_draws_of_a_step() -> None:
    order = np.arange(48)
    parts = [
        rank_indices(order, range(1, 3), rank=rank, batch_size=4, world_size=3) for rank in range(3)
    ]
    whole = rank_indices(order, range(1, 3), rank=0, batch_size=12, world_size=1)
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    first, again = (augmentation_draws(1, 2, 3, 4, samples=6, draws_per_sample=5) for _ in range(2))
    other = augmentation_draws(1, 2, 3, 5, samples=6, draws_per_sample=5)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_a_class_with_other_classes_has_another_classifier() -> None:
    definition = dataclasses.replace(WORKLOAD.problem_classes["smoke"], classes=7)
    shapes = {
        p.name: p.shape for p in resnet_layers.parameters(resnet_layers.class_resnet(definition))
    }
    assert shapes["classifier.weight"] == (7, 64)
