"""Anchors of the region proposal network: a few shapes at every cell of every level."""

from __future__ import annotations

import torch
from torch import Tensor


def anchor_shapes(size: float, ratios: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return height and width of anchors of area size², one per ratio of height to width."""
    return [(size * ratio**0.5, size / ratio**0.5) for ratio in ratios]


def level_anchors(
    rows: int,
    columns: int,
    *,
    stride: int,
    size: float,
    ratios: tuple[float, ...],
    device: torch.device,
) -> Tensor:
    """Return [rows · columns · ratios, 4] anchors in FP32, centred on the cells.

    Built from device tensors and plain numbers only: a copy from the host would synchronize.
    """
    y = ((torch.arange(rows, device=device) + 0.5) * stride).view(-1, 1).expand(rows, columns)
    x = ((torch.arange(columns, device=device) + 0.5) * stride).expand(rows, columns)
    corners = [
        torch.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], dim=-1)
        for height, width in anchor_shapes(size, ratios)
    ]
    return torch.stack(corners, dim=2).view(-1, 4)
