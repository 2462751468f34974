"""Learnable climate has the same bytes on a GPU as on a CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ai500.data.climate.schema import CHANNELS
from ai500.workloads.climate.generator import draw
from ai500.workloads.climate.recipe import SMOKE, WORKSTATION, ClimateRecipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: not tested here"),
]


@pytest.mark.parametrize(
    ("recipe", "first", "last"),
    [(SMOKE, 0, 24), (replace(SMOKE, seed=11, distractors=12.0), 100, 112), (WORKSTATION, 0, 3)],
)
def test_a_gpu_makes_the_same_bytes(recipe: ClimateRecipe, first: int, last: int) -> None:
    on_gpu, gpu_boxes, gpu_masks = draw(recipe, "train", first, last, device="cuda")
    on_cpu, cpu_boxes, cpu_masks = draw(recipe, "train", first, last, device="cpu")
    different = np.argwhere((on_gpu != on_cpu).any(axis=(0, 2, 3))).ravel()
    assert [CHANNELS[channel] for channel in different] == []
    assert on_gpu.tobytes() == on_cpu.tobytes()
    assert gpu_boxes.tobytes() == cpu_boxes.tobytes()
    assert gpu_masks.tobytes() == cpu_masks.tobytes()
