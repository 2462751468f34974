"""Region proposal network (Ren et al. 2015 §3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.workloads.detection.assignment import match_anchors, sample_anchors
from ai500.workloads.detection.boxes import clip_boxes, decode_boxes, encode_boxes
from ai500.workloads.detection.losses import StageOutputs
from ai500.workloads.detection.nms import nms_mask

GAIN = (1.0, 1.0)
POSITIVE_ABOVE, NEGATIVE_BELOW = 0.7, 0.3
SAMPLED, SAMPLED_POSITIVES = 256, 128
# IoU above which the worse of two proposals of one level is suppressed.
OVERLAP = 0.7


class Proposals(NamedTuple):
    """[N, P, 4] boxes, best first, and [N, P] whether a slot holds one."""

    boxes: Tensor
    usable: Tensor


class RegionProposals(nn.Module):
    """Convolutional head shared by all levels: objectness and offsets of every anchor."""

    def __init__(self, channels: int, *, ratios: int) -> None:
        super().__init__()
        self.ratios = ratios
        self.shared = nn.Conv2d(channels, channels, 3, padding=1)
        # Objectness and four offsets of each anchor in one convolution.
        self.predict = nn.Conv2d(channels, 5 * ratios, 1)
        for convolution in (self.shared, self.predict):
            nn.init.normal_(convolution.weight, std=0.01)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(self, pyramid: Sequence[Tensor]) -> list[Tensor]:
        """Return [N, anchors of the level, 5] for each level, in FP32."""
        return [self._level(features) for features in pyramid]

    def _level(self, features: Tensor) -> Tensor:
        predicted: Tensor = self.predict(F.relu(self.shared(features), inplace=True))
        by_cell = predicted.permute(0, 2, 3, 1)
        return by_cell.reshape(len(by_cell), -1, 5).float()


@torch.no_grad()
def select_proposals(
    predicted: Sequence[Tensor],
    anchors: Sequence[Tensor],
    *,
    height: int,
    width: int,
    candidates: int,
    kept: int,
) -> Proposals:
    """Take the best `candidates` of each level, suppress overlaps, keep the best `kept`."""
    best = [
        _best_of_level(level, level_anchors, candidates=candidates)
        for level, level_anchors in zip(predicted, anchors, strict=True)
    ]
    scores = torch.stack([score for score, _ in best], dim=1)
    boxes = clip_boxes(torch.stack([box for _, box in best], dim=1), height=height, width=width)
    sides = boxes[..., 2:] - boxes[..., :2]
    usable = (sides >= 1).all(dim=-1) & (scores > -torch.inf)
    # A diverged model predicts NaN: no features can be read there.
    boxes = boxes.masked_fill(~usable.unsqueeze(-1), 0.0)
    survives = nms_mask(boxes.flatten(0, 1), usable.flatten(0, 1), threshold=OVERLAP)
    scores = scores.masked_fill(~survives.view_as(scores), -torch.inf).flatten(1)
    top, order = scores.topk(min(kept, scores.shape[1]))
    picked = boxes.flatten(1, 2).gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
    return Proposals(picked, top > -torch.inf)


def _best_of_level(predicted: Tensor, anchors: Tensor, *, candidates: int) -> tuple[Tensor, Tensor]:
    """Return scores and boxes of one level's best, padded to `candidates`."""
    number = min(candidates, predicted.shape[1])
    scores, order = predicted[..., 0].topk(number)
    offsets = predicted[..., 1:].gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
    boxes = decode_boxes(offsets, anchors[order], gain=GAIN)
    missing = candidates - number
    return F.pad(scores, (0, missing), value=-torch.inf), F.pad(boxes, (0, 0, 0, missing))


def sample_outputs(
    predicted: Sequence[Tensor], anchors: Sequence[Tensor], labels: Tensor
) -> StageOutputs:
    """Sample anchors at random and return their predictions with targets."""
    all_predictions, references = torch.cat(list(predicted), dim=1), torch.cat(list(anchors))
    with torch.no_grad():
        matches = match_anchors(references, labels, above=POSITIVE_ABOVE, below=NEGATIVE_BELOW)
        sampled = sample_anchors(matches, sample_size=SAMPLED, max_positives=SAMPLED_POSITIVES)
        truth = matches.truth.gather(1, sampled.indices).unsqueeze(-1).expand(-1, -1, 4)
        targets = encode_boxes(
            labels[..., :4].gather(1, truth), references[sampled.indices], gain=GAIN
        )
    sampled_predictions = all_predictions.gather(1, sampled.indices.unsqueeze(-1).expand(-1, -1, 5))
    return StageOutputs(
        logits=sampled_predictions[..., 0],
        offsets=sampled_predictions[..., 1:],
        target=sampled.positive,
        target_offsets=targets,
        weight=sampled.weight,
    )
