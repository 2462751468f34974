"""Greedy non-maximum suppression of many sets of boxes at once, without synchronizing the host."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.workloads.detection.boxes import pairwise_iou

# Odd: boxes that are undecided after this many rounds are dropped, never kept (see `nms_mask`).
ROUNDS = 31


def nms_mask(
    boxes: Tensor,
    eligible: Tensor,
    *,
    threshold: float,
    classes: Tensor | None = None,
    rounds: int = ROUNDS,
) -> Tensor:
    """Return which of [R, K, 4] boxes, best first, greedy suppression keeps: a mask [R, K].

    A box is kept if it is `eligible` and no better box that is itself kept overlaps it by more than
    `threshold` (within one class, if `classes` [R, K] is passed). Applied to all boxes at once,
    this rule maps sets to sets, and its only fixed point is the greedy result. Starting from all
    eligible boxes, an odd number of rounds yields a subset of the result and an even one a
    superset; `n` rounds decide every box whose chain of suppressors is shorter than `n`: always the
    best `n` boxes, and all of them with `rounds` ≥ K.
    """
    number = boxes.shape[1]
    # Eight flags are packed in an int64: a round then costs an eighth.
    padding = -number % 8
    better = (pairwise_iou(boxes, boxes) > threshold).tril(-1) & eligible.unsqueeze(1)
    if classes is not None:
        better &= classes.unsqueeze(1) == classes.unsqueeze(2)
    packed = F.pad(better, (0, padding)).view(torch.int64)
    kept = eligible
    for _ in range(rounds):
        packed_kept = F.pad(kept, (0, padding)).view(torch.int64).unsqueeze(1)
        kept = eligible & ~(packed & packed_kept).any(dim=2)
    return kept
