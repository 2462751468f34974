"""Inputs of cosmology: density contrasts of stored volumes, mirrored at random for training."""

from __future__ import annotations

import torch
from torch import Tensor

from ai500.workloads import volume_kernels
from ai500.workloads.learnable_volumes import SCALE


def contrasts(volumes: Tensor) -> Tensor:
    """Scale the stored integers to density contrasts, with channels last in memory."""
    return (volumes.float() * (1 / SCALE)).contiguous(memory_format=torch.channels_last_3d)


def mirrored_contrasts(volumes: Tensor, draws: Tensor) -> Tensor:
    """Return the contrasts of volumes, mirrored along each edge whose draw is not below 0.5."""
    if volume_kernels.supports_mirroring(volumes):
        return volume_kernels.mirrored(volumes, draws, scale=SCALE)
    values = contrasts(volumes)
    for axis in range(3):
        kept = (draws[:, axis] < 0.5).view(-1, 1, 1, 1, 1)
        values = values.where(kept, values.flip(2 + axis))
    return values
