"""RoI align over a pyramid of features (He et al. 2017; Lin et al. 2017), in plain torch.

Each output is a weighted sum of 16 feature vectors (2×2 sampling points, 4 neighbours each), which
is what an embedding bag computes: one kernel gathers, weighs and adds without writing the 16 down.
Its gradient sorts instead of adding atomically, so it is the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.workloads.detection.boxes import areas

POINTS = 2
"""Sampling points of a bin along each side."""


def level_of(boxes: Tensor, *, levels: int, first_size: float) -> Tensor:
    """Which level a box is read from: one further for each doubling of its size (FPN Eq. 1).

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
    """Features [N, R, bins·bins, C] of boxes [N, R, 4], each from its level of `pyramid`."""
    images, regions = boxes.shape[:2]
    level = level_of(boxes, levels=len(pyramid), first_size=first_size)
    shape = [tuple(features.shape[2:]) for features in pyramid]
    cells = [rows * columns for rows, columns in shape]
    begins = [sum(cells[:number]) for number in range(len(cells))]
    columns = _per_level(level, [columns for _, columns in shape])
    rows = _per_level(level, [rows for rows, _ in shape])
    scale = _per_level(level, [1 / stride for stride in strides])
    at_row, row_weight = _taps(boxes[..., 0], boxes[..., 2], scale, rows, bins=bins)
    at_column, column_weight = _taps(boxes[..., 1], boxes[..., 3], scale, columns, bins=bins)
    image = torch.arange(images, device=boxes.device, dtype=torch.int32) * sum(cells)
    begin = image.view(-1, 1) + _per_level(level, begins)
    at_row = at_row * columns.view(images, regions, 1, 1) + begin.view(images, regions, 1, 1)
    # [N, R, bins, bins, 2·POINTS, 2·POINTS]: every row tap with every column tap.
    index = at_row[:, :, :, None, :, None] + at_column[:, :, None, :, None, :]
    weight = row_weight[:, :, :, None, :, None] * column_weight[:, :, None, :, None, :]
    # Channels last, the table is a view of each level.
    table = torch.cat([one.permute(0, 2, 3, 1).flatten(1, 2) for one in pyramid], dim=1)
    taps = (2 * POINTS) ** 2
    pooled = F.embedding_bag(
        index.reshape(-1, taps),
        table.flatten(0, 1),
        mode="sum",
        per_sample_weights=weight.reshape(-1, taps).to(table.dtype),
    )
    return pooled.view(images, regions, bins * bins, -1)


def _per_level(level: Tensor, values: Sequence[float]) -> Tensor:
    """`values[level]` without a table that would have to be copied from the host."""
    kind = torch.int32 if isinstance(values[0], int) else torch.float32
    chosen = torch.full_like(level, values[0], dtype=kind)
    for number, value in enumerate(values[1:], start=1):
        chosen.masked_fill_(level == number, value)
    return chosen


def _taps(
    low: Tensor, high: Tensor, scale: Tensor, length: Tensor, *, bins: int
) -> tuple[Tensor, Tensor]:
    """Cells [N, R, bins, 2·POINTS] that the sampling points lie between on one axis, and weights.

    Half a cell is taken off because a cell's value belongs to its middle ("aligned"). Points more
    than a cell outside count as 0, points within the last half cell as the border's value.
    """
    start = (low * scale - 0.5)[..., None]
    step = ((high - low) * scale)[..., None] / (bins * POINTS)
    number = torch.arange(bins * POINTS, device=low.device)
    at = start + (number + 0.5) * step
    size = length[..., None]
    weight = ((at >= -1) & (at <= size)) / POINTS
    at = torch.minimum(at.clamp(min=0), size - 1.0)
    lower = at.floor()
    upper = torch.minimum(lower + 1, size - 1.0)
    fraction = at - lower
    cells = torch.stack([lower, upper], dim=-1).to(torch.int32)
    weights = torch.stack([weight * (1 - fraction), weight * fraction], dim=-1)
    by_bin = (*low.shape, bins, 2 * POINTS)
    return cells.view(by_bin), weights.view(by_bin)
