"""Greedy non-maximum suppression of many sets of boxes at once, without asking the host."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.workloads.detection.boxes import pairwise_iou

ROUNDS = 31
"""Odd: what is left undecided after so many rounds is dropped, never kept (see `survivors`)."""


def survivors(
    boxes: Tensor,
    eligible: Tensor,
    *,
    threshold: float,
    kinds: Tensor | None = None,
    rounds: int = ROUNDS,
) -> Tensor:
    """Which of [R, K, 4] boxes, best first, greedy suppression keeps: a mask [R, K].

    A box is kept if it is `eligible` and no better box that is itself kept overlaps it by more
    than `threshold` (of the same kind, where `kinds` [R, K] are given). That sentence, applied to
    all boxes at once, is a map from sets to sets whose only fixed point is the greedy result.
    Begun with every eligible box, an odd number of rounds gives a part of the result and an even
    one contains it; `n` rounds decide every box whose chain of suppressors is shorter than `n`,
    so always the best `n` boxes, and with `rounds` ≥ K all of them.
    """
    number = boxes.shape[1]
    # Eight flags are read as one number: a round then costs an eighth.
    filler = -number % 8
    better = (pairwise_iou(boxes, boxes) > threshold).tril(-1) & eligible.unsqueeze(1)
    if kinds is not None:
        better &= kinds.unsqueeze(1) == kinds.unsqueeze(2)
    eights = F.pad(better, (0, filler)).view(torch.int64)
    kept = eligible
    for _ in range(rounds):
        kept_eights = F.pad(kept, (0, filler)).view(torch.int64).unsqueeze(1)
        kept = eligible & ~(eights & kept_eights).any(dim=2)
    return kept
