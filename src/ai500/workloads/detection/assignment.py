"""Match anchors and proposals to true boxes, and sample them for a training step.

Everything is batched over images and has a fixed size. "At most 128 of 256 at random" is a fixed
number of slots with a weight of 0 or 1 each, so that no count is read by the host.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ai500.workloads.detection.boxes import pairwise_iou


class Matches(NamedTuple):
    """Best-overlapping true box of each of [N, A] reference boxes, and its label."""

    truth: Tensor
    """Row of the image's labels."""
    positive: Tensor
    negative: Tensor


class Sampled(NamedTuple):
    """[N, S] sampled reference boxes."""

    indices: Tensor
    """Row of the reference box."""
    positive: Tensor
    weight: Tensor
    """1 for a sampled box, 0 for an unused slot."""


def real_boxes(labels: Tensor) -> Tensor:
    """Return which rows of [N, G, 5] labels are boxes and not padding."""
    return labels[..., 4] >= 0


def match_anchors(anchors: Tensor, labels: Tensor, *, above: float, below: float) -> Matches:
    """Match anchors [A, 4] to [N, G, 5] labels (Ren et al. 2015 §3.1.2).

    Positive: an overlap of `above` or more, or the largest overlap of a true box with any anchor.
    Negative: an overlap of less than `below` with every true box.
    """
    overlaps = _overlaps(anchors, labels)
    largest, truth = overlaps.max(dim=1)
    best = overlaps.amax(dim=2, keepdim=True)
    is_best = ((overlaps == best) & (best > 0)).any(dim=1)
    positive = (largest >= above) | is_best
    return Matches(truth, positive, (largest < below) & ~positive)


def match_proposals(proposals: Tensor, usable: Tensor, labels: Tensor, *, above: float) -> Matches:
    """Match [N, P, 4] proposals: positive at an overlap of `above` or more, else negative."""
    largest, truth = _overlaps(proposals, labels).max(dim=1)
    return Matches(truth, (largest >= above) & usable, (largest < above) & usable)


def _overlaps(boxes: Tensor, labels: Tensor) -> Tensor:
    """Return [N, G, boxes] overlaps; −1 for padding, which is then never a maximum."""
    overlaps = pairwise_iou(labels[..., :4], boxes)
    return overlaps.masked_fill_(~real_boxes(labels).unsqueeze(-1), -1.0)


def sample_anchors(matches: Matches, *, sample_size: int, max_positives: int) -> Sampled:
    """Draw up to `max_positives` positives, and negatives up to `sample_size` in all."""
    draws = torch.rand(matches.positive.shape, device=matches.positive.device)
    positive_draw, positive_index = draws.masked_fill(~matches.positive, -1.0).topk(
        min(max_positives, draws.shape[1]), sorted=False
    )
    negative_draw, negative_index = draws.masked_fill(~matches.negative, -1.0).topk(
        min(sample_size, draws.shape[1])
    )
    is_positive = positive_draw >= 0
    remaining = sample_size - is_positive.sum(dim=1, keepdim=True)
    rank = torch.arange(negative_draw.shape[1], device=draws.device)
    is_negative = (negative_draw >= 0) & (rank < remaining)
    return Sampled(
        indices=torch.cat([positive_index, negative_index], dim=1),
        positive=torch.cat([is_positive, torch.zeros_like(is_negative)], dim=1),
        weight=torch.cat([is_positive, is_negative], dim=1).float(),
    )


def sample_proposals(matches: Matches, *, sample_size: int, max_positives: int) -> Sampled:
    """Draw exactly `sample_size` slots: positives, then negatives, then unused slots."""
    draws = torch.rand(matches.positive.shape, device=matches.positive.device)
    # Descending by this key: positives in random order, negatives, unusable boxes.
    key = draws + 2 * matches.positive + matches.negative.float()
    order = key.argsort(dim=1, descending=True)
    positive_count = matches.positive.sum(dim=1, keepdim=True)
    sampled_positives = positive_count.clamp(max=max_positives)
    usable = positive_count + matches.negative.sum(dim=1, keepdim=True)
    slot = torch.arange(sample_size, device=draws.device).expand(len(draws), -1)
    rank = torch.where(slot < sampled_positives, slot, slot - sampled_positives + positive_count)
    return Sampled(
        indices=order.gather(1, rank.clamp(max=draws.shape[1] - 1)),
        positive=slot < sampled_positives,
        weight=(rank < usable).float(),
    )
