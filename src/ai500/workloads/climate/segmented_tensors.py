"""Normalization and loss of segmented climate, on any device and without synchronizing with it."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from ai500.data.climate.schema import CHANNELS
from ai500.workloads.climate.segmented import NORMALIZATION


def normalize(images: Tensor) -> Tensor:
    """Normalize channels [N, 16, H, W], channels last in memory."""
    mean, deviation = _statistics(images.device)
    normalized = (images - mean) / deviation
    return normalized.contiguous(memory_format=torch.channels_last)


def weighted_cross_entropy(logits: Tensor, masks: Tensor, *, weights: tuple[float, ...]) -> Tensor:
    """Average over all pixels, not over their weights, as MLPerf HPC's DeepCAM does."""
    # As rows of pixels: torch's loss of images is not deterministic on a GPU.
    rows = logits.float().permute(0, 2, 3, 1).flatten(0, 2)
    losses = functional.cross_entropy(
        rows,
        masks.long().flatten(),
        weight=_weights(weights, logits.device).to(rows.dtype),
        reduction="none",
    )
    return losses.mean()


@cache
def _statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    """Copy the statistics to a device once: a copy per step would synchronize with it."""
    values = torch.tensor([NORMALIZATION[name] for name in CHANNELS]).view(-1, 2, 1, 1)
    return values[:, 0].to(device), values[:, 1].to(device)


@cache
def _weights(weights: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(weights, device=device)
