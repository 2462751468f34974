"""RoI align over a feature pyramid (He et al. 2017; Lin et al. 2017), in plain torch.

Each output is a weighted sum of 16 feature vectors (2×2 sampling points, 4 neighbours each): an
embedding bag, whose single kernel gathers, weighs and adds without storing the 16 vectors. Its
gradient sorts instead of adding atomically, so it is the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.workloads.detection.boxes import areas

# Sampling points of a bin along each side.
POINTS = 2


def pyramid_level(boxes: Tensor, *, levels: int, first_size: float) -> Tensor:
    """Return the level of each box: one higher for each doubling of its size (FPN Eq. 1).

    Boxes of up to twice `first_size` belong to the first level.
    """
    size = areas(boxes).sqrt().clamp(min=1e-6)
    return (size / first_size).log2().floor().clamp(0, levels - 1).to(torch.int32)


def roi_align(
    pyramid: Sequence[Tensor],
    boxes: Tensor,
    *,
    strides: Sequence[int],
    first_size: float,
    bins: int,
) -> Tensor:
    """Return features [N, R, bins·bins, C] of boxes [N, R, 4], each from its pyramid level."""
    images, regions = boxes.shape[:2]
    level = pyramid_level(boxes, levels=len(pyramid), first_size=first_size)
    shape = [tuple(features.shape[2:]) for features in pyramid]
    cells = [rows * columns for rows, columns in shape]
    begins = [sum(cells[:number]) for number in range(len(cells))]
    columns = _per_level(level, [columns for _, columns in shape])
    rows = _per_level(level, [rows for rows, _ in shape])
    scale = _per_level(level, [1 / stride for stride in strides])
    row_index, row_weight = _taps(boxes[..., 0], boxes[..., 2], scale, rows, bins=bins)
    column_index, column_weight = _taps(boxes[..., 1], boxes[..., 3], scale, columns, bins=bins)
    image = torch.arange(images, device=boxes.device, dtype=torch.int32) * sum(cells)
    begin = image.view(-1, 1) + _per_level(level, begins)
    row_index = row_index * columns.view(images, regions, 1, 1) + begin.view(images, regions, 1, 1)
    # [N, R, bins, bins, 2·POINTS, 2·POINTS]: every row tap with every column tap.
    index = row_index[:, :, :, None, :, None] + column_index[:, :, None, :, None, :]
    weight = row_weight[:, :, :, None, :, None] * column_weight[:, :, None, :, None, :]
    # With channels-last features, the permutation is a view.
    table = torch.cat([features.permute(0, 2, 3, 1).flatten(1, 2) for features in pyramid], dim=1)
    taps = (2 * POINTS) ** 2
    pooled = F.embedding_bag(
        index.reshape(-1, taps),
        table.flatten(0, 1),
        mode="sum",
        per_sample_weights=weight.reshape(-1, taps).to(table.dtype),
    )
    return pooled.view(images, regions, bins * bins, -1)


def _per_level(level: Tensor, values: Sequence[float]) -> Tensor:
    """Return `values[level]` without a lookup table, which would be copied from the host."""
    dtype = torch.int32 if isinstance(values[0], int) else torch.float32
    selected = torch.full_like(level, values[0], dtype=dtype)
    for number, value in enumerate(values[1:], start=1):
        selected.masked_fill_(level == number, value)
    return selected


def _taps(
    low: Tensor, high: Tensor, scale: Tensor, length: Tensor, *, bins: int
) -> tuple[Tensor, Tensor]:
    """Return the cells [N, R, bins, 2·POINTS] around the sampling points on one axis, and weights.

    Half a cell is subtracted because a cell's value belongs to its centre ("aligned"). Points more
    than a cell outside count as 0, points within the last half cell take the border's value.
    """
    start = (low * scale - 0.5)[..., None]
    step = ((high - low) * scale)[..., None] / (bins * POINTS)
    number = torch.arange(bins * POINTS, device=low.device)
    position = start + (number + 0.5) * step
    size = length[..., None]
    weight = ((position >= -1) & (position <= size)) / POINTS
    position = torch.minimum(position.clamp(min=0), size - 1.0)
    lower = position.floor()
    upper = torch.minimum(lower + 1, size - 1.0)
    fraction = position - lower
    cells = torch.stack([lower, upper], dim=-1).to(torch.int32)
    weights = torch.stack([weight * (1 - fraction), weight * fraction], dim=-1)
    by_bin = (*low.shape, bins, 2 * POINTS)
    return cells.view(by_bin), weights.view(by_bin)
