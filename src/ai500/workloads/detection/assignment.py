"""Which reference box learns which true box, and which of them a step looks at.

Everything is batched over images and of fixed size. "At most 128 of 256 at random" is a fixed
number of places with a weight of 0 or 1 each, so that no count has to reach the host.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ai500.workloads.detection.boxes import pairwise_iou


class Matches(NamedTuple):
    """For each of [N, A] reference boxes the true box it overlaps most, and what it is for it."""

    truth: Tensor
    """Row of the image's labels."""
    positive: Tensor
    negative: Tensor


class Sampled(NamedTuple):
    """[N, S] places: which reference box, and whether it counts (1 or 0) and as what."""

    chosen: Tensor
    positive: Tensor
    weight: Tensor


def real_boxes(labels: Tensor) -> Tensor:
    """Which rows of [N, G, 5] labels are boxes and not padding."""
    return labels[..., 4] >= 0


def match_anchors(anchors: Tensor, labels: Tensor, *, above: float, below: float) -> Matches:
    """Anchors [A, 4] to [N, G, 5] labels (Ren et al. 2015 §3.1.2).

    Positive: an overlap of `above` or more, or the largest one that a true box has with any
    anchor; negative: less than `below` with every true box.
    """
    overlaps = _overlaps(anchors, labels)
    largest, truth = overlaps.max(dim=1)
    best = overlaps.amax(dim=2, keepdim=True)
    is_best = ((overlaps == best) & (best > 0)).any(dim=1)
    positive = (largest >= above) | is_best
    return Matches(truth, positive, (largest < below) & ~positive)


def match_proposals(proposals: Tensor, usable: Tensor, labels: Tensor, *, above: float) -> Matches:
    """[N, P, 4] proposals: positive from an overlap of `above` on, else negative."""
    largest, truth = _overlaps(proposals, labels).max(dim=1)
    return Matches(truth, (largest >= above) & usable, (largest < above) & usable)


def _overlaps(boxes: Tensor, labels: Tensor) -> Tensor:
    """[N, G, boxes]; −1 for padding, which is then never the largest of anything."""
    overlaps = pairwise_iou(labels[..., :4], boxes)
    return overlaps.masked_fill_(~real_boxes(labels).unsqueeze(-1), -1.0)


def sample_anchors(matches: Matches, *, places: int, positives: int) -> Sampled:
    """At random up to `positives` positives, and negatives up to `places` in all."""
    draws = torch.rand(matches.positive.shape, device=matches.positive.device)
    positive_draw, positive_index = draws.masked_fill(~matches.positive, -1.0).topk(
        min(positives, draws.shape[1]), sorted=False
    )
    negative_draw, negative_index = draws.masked_fill(~matches.negative, -1.0).topk(
        min(places, draws.shape[1])
    )
    is_positive = positive_draw >= 0
    wanted = places - is_positive.sum(dim=1, keepdim=True)
    number = torch.arange(negative_draw.shape[1], device=draws.device)
    is_negative = (negative_draw >= 0) & (number < wanted)
    return Sampled(
        chosen=torch.cat([positive_index, negative_index], dim=1),
        positive=torch.cat([is_positive, torch.zeros_like(is_negative)], dim=1),
        weight=torch.cat([is_positive, is_negative], dim=1).float(),
    )


def sample_proposals(matches: Matches, *, places: int, positives: int) -> Sampled:
    """The same in exactly `places` places: positives first, then negatives, then unused ones."""
    draws = torch.rand(matches.positive.shape, device=matches.positive.device)
    # Sorted by this key come all positives in random order, all negatives, and the unusable.
    key = draws + 2 * matches.positive + matches.negative.float()
    order = key.argsort(dim=1, descending=True)
    there = matches.positive.sum(dim=1, keepdim=True)
    taken = there.clamp(max=positives)
    usable = there + matches.negative.sum(dim=1, keepdim=True)
    place = torch.arange(places, device=draws.device).expand(len(draws), -1)
    at = torch.where(place < taken, place, place - taken + there)
    return Sampled(
        chosen=order.gather(1, at.clamp(max=draws.shape[1] - 1)),
        positive=place < taken,
        weight=(at < usable).float(),
    )
