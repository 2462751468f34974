"""What a training pass leaves for the loss, and the loss (Ren et al. 2015 Eq. 1, both stages).

Each image's terms are divided by its own number of sampled boxes and then averaged over images, so
that the loss of a batch does not depend on how ranks or micro-steps share it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

SMOOTH_BELOW = 1 / 9
"""Errors below it are squared, above it they count as they are."""


class Stage(NamedTuple):
    """Predictions of one stage at its [N, S] sampled places, with their targets; all FP32."""

    logits: Tensor
    """[N, S] of an event being there, or [N, S, 1 + classes] with the background first."""
    offsets: Tensor
    """[N, S, 4]"""
    target: Tensor
    """[N, S]: 1 where there is an event, or its class with 0 for the background."""
    target_offsets: Tensor
    weight: Tensor
    """[N, S]: 1 for a place that counts, 0 for one that is empty."""


class TrainingOutputs(NamedTuple):
    """Of the region proposal network and of the box head."""

    proposing: Stage
    classifying: Stage


class Losses(NamedTuple):
    """The four terms; their sum is trained."""

    objectness: Tensor
    proposal_offsets: Tensor
    classification: Tensor
    box_offsets: Tensor


def losses(outputs: TrainingOutputs) -> Losses:
    """The four terms of a batch."""
    proposing, classifying = outputs
    objectness = F.binary_cross_entropy_with_logits(
        proposing.logits, proposing.target.float(), reduction="none"
    )
    classification = F.cross_entropy(
        classifying.logits.flatten(0, 1), classifying.target.flatten(), reduction="none"
    ).view_as(classifying.target)
    return Losses(
        _mean(objectness, proposing.weight),
        _offsets_loss(proposing),
        _mean(classification, classifying.weight),
        _offsets_loss(classifying),
    )


def detection_loss(outputs: TrainingOutputs) -> Tensor:
    """The sum of the four terms."""
    terms = losses(outputs)
    return terms.objectness + terms.proposal_offsets + terms.classification + terms.box_offsets


def _offsets_loss(stage: Stage) -> Tensor:
    """Of positives only, but divided by all sampled: so the two terms keep their proportion."""
    error = F.smooth_l1_loss(
        stage.offsets, stage.target_offsets, beta=SMOOTH_BELOW, reduction="none"
    )
    # Chosen and not multiplied by 0: an empty place may hold anything.
    error = error.sum(dim=-1).masked_fill(stage.target == 0, 0.0)
    return _mean(error, stage.weight)


def _mean(terms: Tensor, weight: Tensor) -> Tensor:
    """Over the sampled places of each image, then over images."""
    return ((terms * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)).mean()
