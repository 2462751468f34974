"""Boxes as ymin, xmin, ymax, xmax: overlap, clipping, and the coding that a detector learns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_LOG_SCALE = math.log(1000 / 16)
"""A predicted side is at most so many times its reference's: exp() of more overflows early on."""


def areas(boxes: Tensor) -> Tensor:
    """Height times width, 0 for a box turned inside out."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def pairwise_iou(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of [..., P, 4] and [..., Q, 4] as [..., P, Q]; 0 if both are empty.

    Coordinate by coordinate: a [P, Q, 2] array of corners would be twice the memory.
    """
    one, other = first.unsqueeze(-2), second.unsqueeze(-3)
    height = torch.minimum(one[..., 2], other[..., 2]) - torch.maximum(one[..., 0], other[..., 0])
    width = torch.minimum(one[..., 3], other[..., 3]) - torch.maximum(one[..., 1], other[..., 1])
    overlap = height.clamp_(min=0).mul_(width.clamp_(min=0))
    union = areas(first).unsqueeze(-1) + areas(second).unsqueeze(-2) - overlap
    return overlap.div_(union.clamp_(min=torch.finfo(union.dtype).tiny))


def clipped(boxes: Tensor, *, height: int, width: int) -> Tensor:
    """The part of each box that lies in the image."""
    y, x = boxes[..., 0::2].clamp(0, height), boxes[..., 1::2].clamp(0, width)
    return torch.stack([y, x], dim=-1).flatten(-2)


def _centre_and_size(boxes: Tensor) -> tuple[Tensor, Tensor]:
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + size / 2, size


def encoded(boxes: Tensor, references: Tensor, *, gain: tuple[float, float]) -> Tensor:
    """Offsets dy, dx, dh, dw of `boxes` from `references` (Girshick et al. 2014, appendix C).

    `gain` multiplies offsets of centres and of sizes, to bring both near unit variance.
    """
    centre, size = _centre_and_size(boxes)
    from_centre, from_size = _centre_and_size(references)
    # Rows of padding have no size: anything finite will do, their weight is 0.
    from_size, size = from_size.clamp(min=1e-3), size.clamp(min=1e-3)
    moved = (centre - from_centre) / from_size * gain[0]
    return torch.cat([moved, (size / from_size).log() * gain[1]], dim=-1)


def decoded(offsets: Tensor, references: Tensor, *, gain: tuple[float, float]) -> Tensor:
    """The boxes whose offsets from `references` these are: `encoded` turned round."""
    from_centre, from_size = _centre_and_size(references)
    centre = offsets[..., :2] / gain[0] * from_size + from_centre
    grown = (offsets[..., 2:] / gain[1]).clamp(max=LARGEST_LOG_SCALE).exp()
    half = grown * from_size / 2
    return torch.cat([centre - half, centre + half], dim=-1)
