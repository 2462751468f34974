"""Boxes as ymin, xmin, ymax, xmax: overlap, clipping, and the regression encoding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Upper bound of a predicted side over its reference's: exp() of early predictions overflows.
MAX_LOG_SCALE = math.log(1000 / 16)


def areas(boxes: Tensor) -> Tensor:
    """Return height times width; 0 for an inverted box."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def pairwise_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the intersection over union of [..., P, 4] and [..., Q, 4] as [..., P, Q].

    0 if both boxes are empty. Computed coordinate by coordinate: a [P, Q, 2] array of corners takes
    twice the memory.
    """
    a, b = first.unsqueeze(-2), second.unsqueeze(-3)
    height = torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])
    width = torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])
    overlap = height.clamp_(min=0).mul_(width.clamp_(min=0))
    union = areas(first).unsqueeze(-1) + areas(second).unsqueeze(-2) - overlap
    return overlap.div_(union.clamp_(min=torch.finfo(union.dtype).tiny))


def clip_boxes(boxes: Tensor, *, height: int, width: int) -> Tensor:
    """Return the part of each box inside the image."""
    y, x = boxes[..., 0::2].clamp(0, height), boxes[..., 1::2].clamp(0, width)
    return torch.stack([y, x], dim=-1).flatten(-2)


def _centre_and_size(boxes: Tensor) -> tuple[Tensor, Tensor]:
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + size / 2, size


def encode_boxes(boxes: Tensor, references: Tensor, *, gain: tuple[float, float]) -> Tensor:
    """Return offsets dy, dx, dh, dw of `boxes` from `references` (Girshick et al. 2014, appendix
    C).

    `gain` multiplies offsets of centres and of sizes, to bring both near unit variance."""
    centre, size = _centre_and_size(boxes)
    reference_centre, reference_size = _centre_and_size(references)
    # Rows of padding have no size: any finite value will do, their weight is 0.
    reference_size, size = reference_size.clamp(min=1e-3), size.clamp(min=1e-3)
    centre_offsets = (centre - reference_centre) / reference_size * gain[0]
    return torch.cat([centre_offsets, (size / reference_size).log() * gain[1]], dim=-1)


def decode_boxes(offsets: Tensor, references: Tensor, *, gain: tuple[float, float]) -> Tensor:
    """Return the boxes of offsets from `references`: the inverse of `encode_boxes`."""
    reference_centre, reference_size = _centre_and_size(references)
    centre = offsets[..., :2] / gain[0] * reference_size + reference_centre
    scale = (offsets[..., 2:] / gain[1]).clamp(max=MAX_LOG_SCALE).exp()
    half = scale * reference_size / 2
    return torch.cat([centre - half, centre + half], dim=-1)
