"""Training outputs of the detector and their loss (Ren et al. 2015 Eq. 1, both stages).

Each image's terms are divided by its own number of sampled boxes and then averaged over images, so
that the loss of a batch does not depend on its division among ranks or micro-steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

# Smooth L1: quadratic below this error, linear above.
SMOOTH_BELOW = 1 / 9


class StageOutputs(NamedTuple):
    """Predictions of one stage at its [N, S] sampled boxes, with their targets; all FP32."""

    logits: Tensor
    """[N, S] objectness, or [N, S, 1 + classes] with the background first."""
    offsets: Tensor
    """[N, S, 4]"""
    target: Tensor
    """[N, S]: 1 for an object, or its class with 0 for the background."""
    target_offsets: Tensor
    weight: Tensor
    """[N, S]: 1 for a sampled box, 0 for an unused slot."""


class TrainingOutputs(NamedTuple):
    """Outputs of the region proposal network and of the box head."""

    proposing: StageOutputs
    classifying: StageOutputs


class Losses(NamedTuple):
    """Four terms of the loss."""

    objectness: Tensor
    proposal_offsets: Tensor
    classification: Tensor
    box_offsets: Tensor


def losses(outputs: TrainingOutputs) -> Losses:
    """Return the four terms of a batch."""
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
    """Return the sum of the four terms."""
    terms = losses(outputs)
    return terms.objectness + terms.proposal_offsets + terms.classification + terms.box_offsets


def _offsets_loss(outputs: StageOutputs) -> Tensor:
    """Average over all sampled boxes, though only positives contribute.

    This keeps the proportion of the two terms.
    """
    error = F.smooth_l1_loss(
        outputs.offsets, outputs.target_offsets, beta=SMOOTH_BELOW, reduction="none"
    )
    # Masked, not multiplied by 0: an unused slot may hold NaN or infinity.
    error = error.sum(dim=-1).masked_fill(outputs.target == 0, 0.0)
    return _mean(error, outputs.weight)


def _mean(terms: Tensor, weight: Tensor) -> Tensor:
    """Average over the sampled boxes of each image, then over images."""
    return ((terms * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)).mean()
