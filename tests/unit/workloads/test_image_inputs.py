"""Crops, flips and scaling of image inputs."""

from __future__ import annotations

import dataclasses

import torch

from ai500.records.fields import image_fields
from ai500.workloads.image_classification import CLASSES, WORKLOAD
from ai500.workloads.image_inputs import centre_crop, flipped, random_resized_crop, shrunk


def test_evaluation_sees_the_whole_of_a_much_larger_image() -> None:
    """Its class shows in the frame alone: 224 of every 256 pixels must reach the model."""
    images = torch.zeros(1, 96, 96, 3, dtype=torch.uint8)
    images[:, 8:88, 8:88] = 255
    smoke = dataclasses.replace(CLASSES["smoke"], fields=image_fields(96, 96, classes=12))
    inputs = WORKLOAD.evaluation_inputs(smoke, {"images": images})
    assert inputs.shape == (1, 3, 24, 24)
    assert inputs[0, 0, 0, 0] < inputs[0, 0, 12, 12]


def test_stored_256_is_cropped_to_224_without_scaling() -> None:
    images = torch.randn(2, 3, 256, 256)
    assert shrunk(images, height=224, width=224) is images
    assert torch.equal(centre_crop(images, height=224, width=224), images[:, :, 16:240, 16:240])


def test_a_flip_mirrors_exactly_those_drawn() -> None:
    images = torch.arange(2 * 1 * 2 * 3.0).view(2, 1, 2, 3)
    out = flipped(images, torch.tensor([0.1, 0.9]))
    assert torch.equal(out[0], images[0].flip(2))
    assert torch.equal(out[1], images[1])


def test_a_crop_of_everything_scales_the_image() -> None:
    """Draws of area 1 and aspect 1 take the whole; a corner crop takes its corner."""
    ramp = torch.linspace(0, 1, 32).view(1, 1, 1, 32).expand(1, 1, 32, 32).contiguous()
    whole = random_resized_crop(ramp, torch.tensor([[1.0, 0.5, 0.5, 0.5]]), height=32, width=32)
    assert torch.allclose(whole, ramp, atol=1e-5)
    left = random_resized_crop(ramp, torch.tensor([[0.0, 0.5, 0.0, 0.0]]), height=8, width=8)
    right = random_resized_crop(ramp, torch.tensor([[0.0, 0.5, 0.0, 1.0]]), height=8, width=8)
    assert left.max() < 0.3
    assert right.min() > 0.7
