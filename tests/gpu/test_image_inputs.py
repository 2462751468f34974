"""The one-pass crop against the ordinary path."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ai500.workloads import crop_kernel
from ai500.workloads.image_classification import CHANNEL_DEVIATION, CHANNEL_MEAN, CLASSES, WORKLOAD
from ai500.workloads.image_inputs import flipped, normalized, random_resized_crop

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: not tested here"),
]


@pytest.mark.parametrize(
    ("stored", "input_size"), [((256, 256), (224, 224)), ((40, 56), (24, 17)), ((7, 5), (3, 11))]
)
def test_the_fused_kernel_equals_separate_operations(
    stored: tuple[int, int], input_size: tuple[int, int]
) -> None:
    torch.manual_seed(sum(stored))
    images = torch.randint(0, 256, (9, *stored, 3), dtype=torch.uint8, device="cuda")
    draws = torch.rand(9, 5, device="cuda")
    draws[0] = torch.tensor([1.0, 0.5, 0.5, 0.5, 0.1])
    draws[1] = torch.tensor([0.0, 0.0, 0.0, 0.9999, 0.9])
    assert crop_kernel.supports(images)
    problem = dataclasses.replace(CLASSES["full"], input_shape=(3, *input_size))
    labels = torch.zeros(9, dtype=torch.int64, device="cuda")
    inputs, _ = WORKLOAD.train_inputs(problem, {"images": images, "labels": labels}, draws)
    plain = normalized(images, mean=CHANNEL_MEAN, deviation=CHANNEL_DEVIATION)
    plain = random_resized_crop(plain, draws[:, :4], height=input_size[0], width=input_size[1])
    expected = flipped(plain, draws[:, 4])
    assert inputs.shape == expected.shape
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    # Rounding of a coordinate times the steepest edge between two pixels.
    torch.testing.assert_close(inputs, expected, rtol=0, atol=1e-3)
