"""Faster R-CNN (Ren et al. 2015) on a feature pyramid (Lin et al. 2017), in plain torch.

Every shape follows from the design and the image size, never from image content, and the host reads
nothing back during a training step: docs/adr/0005-faster-rcnn-in-plain-torch.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.data.climate.schema import MOST_BOXES
from ai500.workloads.detection import rpn
from ai500.workloads.detection.anchors import level_anchors
from ai500.workloads.detection.assignment import match_proposals, real_boxes, sample_proposals
from ai500.workloads.detection.boxes import clip_boxes, decode_boxes, encode_boxes
from ai500.workloads.detection.fpn import FeaturePyramid
from ai500.workloads.detection.losses import StageOutputs, TrainingOutputs
from ai500.workloads.detection.nms import nms_mask
from ai500.workloads.detection.roi_align import roi_align
from ai500.workloads.models.resnet import BasicBlock, Bottleneck, ResNet

GAIN = (10.0, 5.0)
POSITIVE_ABOVE = 0.5


@dataclass(frozen=True, slots=True)
class Design:
    """Fixed dimensions of a detector."""

    channels: int = 16
    classes: int = 4
    """Number of classes, without the background."""
    block: Literal["bottleneck", "basic"] = "bottleneck"
    depths: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    pyramid_channels: int = 256
    anchor_size: float = 32.0
    """Side of the first level's anchors in pixels; it doubles from level to level."""
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Height to width, as published. Rivers are long but diagonal, so their boxes are nearly
    square."""
    candidates: int = 1000
    """Candidates per level before suppression."""
    proposals: int = 1000
    """Proposals per image after suppression."""
    sampled: int = 512
    """Proposals sampled in a training step, at most a quarter of them positive."""
    bins: int = 7
    hidden: int = 1024
    scored: int = 400
    """Pairs of proposal and class that enter the last suppression."""
    detections: int = 50
    """Rows of an image's predictions; an ExtremeWeather image has at most 15 events."""
    least_score: float = 0.01
    overlap: float = 0.5
    """IoU above which the worse of two detections of one class is suppressed."""

    def __post_init__(self) -> None:
        pairs = min(self.scored, self.proposals * self.classes)
        if self.detections > pairs:
            raise ValueError(f"detections = {self.detections} exceeds {pairs} scored pairs")

    @property
    def strides(self) -> tuple[int, ...]:
        """Return pixels per cell: the stem divides by four, each stage after the first by two."""
        return tuple(4 * 2**level for level in range(len(self.depths) + 1))

    @property
    def stage_channels(self) -> tuple[int, ...]:
        """Return the channels of the residual network's stages."""
        expansion = Bottleneck.expansion if self.block == "bottleneck" else BasicBlock.expansion
        return tuple(self.width * 2**stage * expansion for stage in range(len(self.depths)))


RESNET50_FPN = Design()
# For images of about 96×144 pixels on a laptop's CPU.
SMALL = Design(
    block="basic",
    depths=(1, 1, 1),
    width=16,
    pyramid_channels=32,
    anchor_size=10.0,
    candidates=200,
    proposals=200,
    sampled=64,
    bins=5,
    hidden=128,
    scored=200,
)


class BoxHead(nn.Module):
    """Classify and refine regions: two dense layers and two predictions."""

    def __init__(self, features: int, *, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.classify = nn.Linear(hidden, 1 + classes)
        self.locate = nn.Linear(hidden, 4 * classes)
        for layer, std in ((self.classify, 0.01), (self.locate, 0.001)):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Return FP32 logits [N, R, 1 + classes] and offsets [N, R, classes, 4] of [N, R,
        features]."""
        x = F.relu(self.first(regions), inplace=True)
        x = F.relu(self.second(x), inplace=True)
        offsets = self.locate(x).float()
        return self.classify(x).float(), offsets.unflatten(-1, (-1, 4))


class FasterRCNN(nn.Module):
    """Detector from images [N, C, H, W] to detections [N, D, 6], or training outputs with labels.

    A detection is ymin, xmin, ymax, xmax, score, class; best first, rows of −1 at the end.
    """

    fixed_shapes = True
    """True: a training step can be captured in a CUDA graph."""

    def __init__(self, design: Design = RESNET50_FPN) -> None:
        super().__init__()
        self.design = design
        block = Bottleneck if design.block == "bottleneck" else BasicBlock
        body = ResNet(block, design.depths, width=design.width, channels=design.channels, classes=1)
        self.pyramid = FeaturePyramid(
            body, stage_channels=design.stage_channels, channels=design.pyramid_channels
        )
        self.proposing = rpn.RegionProposals(design.pyramid_channels, ratios=len(design.ratios))
        self.head = BoxHead(
            design.pyramid_channels * design.bins**2, hidden=design.hidden, classes=design.classes
        )

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor | TrainingOutputs:
        """Detect objects, or in training return outputs for the loss.

        Without `labels` [N, G, 5], training treats every frame as empty.
        """
        height, width = images.shape[2:]
        return self._outputs(self.pyramid(images), labels, height=height, width=width)

    def forward_unit(self, name: str, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Apply one pipeline unit to the outputs of the residual stages so far, the latest last.

        Units after the residual stages are left to `forward_end`.
        """
        module = self.get_submodule(name)
        if name == "pyramid.stem":
            return (module(*carried),)
        if not name.startswith("pyramid.stages."):
            return carried
        stage, block = map(int, name.split(".")[2:])
        kept = carried if stage > 0 and block == 0 else carried[:-1]
        return (*kept, module(carried[-1]))

    def forward_end(
        self, carried: tuple[Tensor, ...], labels: Tensor | None
    ) -> Tensor | TrainingOutputs:
        """Return the outputs from those of the residual stages; image sides are whole cells."""
        height, width = (self.design.strides[0] * cells for cells in carried[0].shape[2:])
        return self._outputs(self.pyramid.merge(carried), labels, height=height, width=width)

    def _outputs(
        self, pyramid: list[Tensor], labels: Tensor | None, *, height: int, width: int
    ) -> Tensor | TrainingOutputs:
        predicted = self.proposing(pyramid)
        anchors = self._anchors(pyramid)
        proposals = rpn.select_proposals(
            predicted,
            anchors,
            height=height,
            width=width,
            candidates=self.design.candidates,
            kept=self.design.proposals,
        )
        if not self.training:
            return self._detections(pyramid, proposals, height=height, width=width)
        if labels is None:
            shape = (len(pyramid[0]), MOST_BOXES, 5)
            labels = torch.full(shape, -1.0, device=pyramid[0].device)
        labels = labels.float()
        return TrainingOutputs(
            proposing=rpn.sample_outputs(predicted, anchors, labels),
            classifying=self._sample_regions(pyramid, proposals, labels),
        )

    def _anchors(self, pyramid: Sequence[Tensor]) -> list[Tensor]:
        return [
            level_anchors(
                features.shape[2],
                features.shape[3],
                stride=stride,
                size=self.design.anchor_size * 2**number,
                ratios=self.design.ratios,
                device=features.device,
            )
            for number, (features, stride) in enumerate(
                zip(pyramid, self.design.strides, strict=True)
            )
        ]

    def _regions(self, pyramid: Sequence[Tensor], boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and offsets of boxes [N, R, 4], read from all but the coarsest level."""
        pooled = roi_align(
            pyramid[:-1],
            boxes,
            strides=self.design.strides[:-1],
            # FPN Eq. 1: a box of 224 pixels (seven anchors of 32) belongs to the third level.
            first_size=self.design.anchor_size * 1.75,
            bins=self.design.bins,
        )
        logits, offsets = self.head(pooled.flatten(2))
        return logits, offsets

    def _sample_regions(
        self, pyramid: Sequence[Tensor], proposals: rpn.Proposals, labels: Tensor
    ) -> StageOutputs:
        """Sample proposals and true boxes at random and return their predictions with targets."""
        with torch.no_grad():
            boxes = torch.cat([proposals.boxes, labels[..., :4]], dim=1)
            usable = torch.cat([proposals.usable, real_boxes(labels)], dim=1)
            matches = match_proposals(boxes, usable, labels, above=POSITIVE_ABOVE)
            sampled = sample_proposals(
                matches, sample_size=self.design.sampled, max_positives=self.design.sampled // 4
            )
            boxes = boxes.gather(1, sampled.indices.unsqueeze(-1).expand(-1, -1, 4))
            truth = matches.truth.gather(1, sampled.indices)
            true_boxes = labels.gather(1, truth.unsqueeze(-1).expand(-1, -1, 5))
            class_number = true_boxes[..., 4].long().clamp(min=0)
            target = (class_number + 1) * sampled.positive
            target_offsets = encode_boxes(true_boxes[..., :4], boxes, gain=GAIN)
        logits, offsets = self._regions(pyramid, boxes)
        of_class = class_number[..., None, None].expand(-1, -1, 1, 4)
        return StageOutputs(
            logits=logits,
            offsets=offsets.gather(2, of_class).squeeze(2),
            target=target,
            target_offsets=target_offsets,
            weight=sampled.weight,
        )

    def _detections(
        self, pyramid: Sequence[Tensor], proposals: rpn.Proposals, *, height: int, width: int
    ) -> Tensor:
        design = self.design
        logits, offsets = self._regions(pyramid, proposals.boxes)
        scores = logits.softmax(dim=-1)[..., 1:].masked_fill(~proposals.usable.unsqueeze(-1), 0.0)
        pairs = scores.flatten(1)
        score, order = pairs.topk(min(design.scored, pairs.shape[1]))
        region, class_number = order // design.classes, order % design.classes
        class_offsets = offsets.flatten(1, 2).gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
        proposed = proposals.boxes.gather(1, region.unsqueeze(-1).expand(-1, -1, 4))
        boxes = clip_boxes(
            decode_boxes(class_offsets, proposed, gain=GAIN), height=height, width=width
        )
        valid = ((boxes[..., 2:] - boxes[..., :2]) > 0).all(dim=-1) & (score > design.least_score)
        survives = nms_mask(boxes, valid, threshold=design.overlap, classes=class_number)
        top, best = score.masked_fill(~survives, -1.0).topk(design.detections)
        rows = torch.cat([boxes, score.unsqueeze(-1), class_number.unsqueeze(-1).float()], dim=-1)
        rows = rows.gather(1, best.unsqueeze(-1).expand(-1, -1, 6))
        return rows.masked_fill((top < 0).unsqueeze(-1), -1.0)
