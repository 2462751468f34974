"""Weighted boxes fusion (Solovyev, Wang, Gabruseva 2019) of several detectors' boxes.

Unlike non-maximum suppression it uses every member's box: coordinates are averaged by score, and
boxes that few members predict lose score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ai500.workloads.detection.mean_average_precision import box_overlaps
from ai500.workloads.member_predictions import MemberPredictions, sample_blocks

Floats = NDArray[np.float64]
# IoU above which a box joins a fused one: the paper's optimum.
OVERLAP = 0.55
BLOCK_VALUES = 1 << 22
"""Numbers of all members' boxes that are fused at a time: 32 MiB in FP64."""


def weighted_boxes_fusion(
    members: MemberPredictions, *, overlap: float = OVERLAP
) -> NDArray[np.floating]:
    """Fuse the voters' detections [S, D, 6] into [S, D, 6], best first.

    A sample's boxes are sorted over all members, so a block holds those of every member: blocks
    are as small as the ensemble is large.
    """
    samples, rows, fields = members.shape
    result = np.full((samples, rows, fields), -1.0, members.dtype)
    for block in sample_blocks(members, values=BLOCK_VALUES // max(1, len(members))):
        boxes, voters = _boxes_by_sample(members, block)
        for index, sample in enumerate(range(block.start, block.stop)):
            best = _fuse_sample(boxes[index], voters=int(voters[index]), overlap=overlap)[:rows]
            result[sample, : len(best)] = best
    return result


def _boxes_by_sample(
    members: MemberPredictions, block: slice
) -> tuple[list[Floats], NDArray[np.int64]]:
    """Return the boxes [B, 6] of all voters, and the number of voters, for each sample."""
    size = block.stop - block.start
    voters = np.zeros(size, dtype=np.int64)
    valid_boxes, samples = [], []
    for voting, rows in members.block(block):
        voters[voting] += 1
        valid = rows[..., 4] > 0
        valid_boxes.append(rows[valid].astype(np.float64))
        samples.append(np.arange(size)[voting][np.nonzero(valid)[0]])
    boxes, of_sample = np.concatenate(valid_boxes), np.concatenate(samples)
    order = np.argsort(of_sample, kind="stable")
    bounds = np.searchsorted(of_sample[order], np.arange(1, size))
    return np.split(boxes[order], bounds), voters


def _fuse_sample(boxes: Floats, *, voters: int, overlap: float) -> Floats:
    """Fuse the boxes of one sample, class by class, and sort them best first."""
    parts = [
        fuse_class(boxes[boxes[:, 5] == class_number], voters=voters, overlap=overlap)
        for class_number in np.unique(boxes[:, 5])
    ]
    return _sorted_boxes(np.concatenate(parts)) if parts else boxes


def fuse_class(boxes: Floats, *, voters: int, overlap: float) -> Floats:
    """Fuse each cluster of boxes of one class [B, 6]; the order of the boxes does not matter."""
    boxes = _sorted_boxes(boxes)
    averages = np.empty_like(boxes)
    weighted = np.zeros((len(boxes), 4))
    scores = np.zeros(len(boxes))
    sizes = np.zeros(len(boxes), dtype=np.int64)
    clusters = 0
    for box in boxes:
        cluster = _best_cluster(box, averages[:clusters], overlap=overlap)
        if cluster is None:
            cluster, clusters = clusters, clusters + 1
        weighted[cluster] += box[4] * box[:4]
        scores[cluster] += box[4]
        sizes[cluster] += 1
        averages[cluster, :4] = weighted[cluster] / scores[cluster]
    result = averages[:clusters]
    # §3.2 steps 5 and 6: the mean score, lowered where fewer boxes than voters agree.
    agreeing = np.minimum(sizes[:clusters], voters)
    result[:, 4] = scores[:clusters] / sizes[:clusters] * agreeing / voters
    result[:, 5] = boxes[:1, 5]
    return result


def _sorted_boxes(boxes: Floats) -> Floats:
    """Sort best first; equal scores by coordinates, so that the order of members has no effect."""
    keys = (boxes[:, 5], *(boxes[:, field] for field in (3, 2, 1, 0)), -boxes[:, 4])
    return boxes[np.lexsort(keys)]


def _best_cluster(box: Floats, averages: Floats, *, overlap: float) -> int | None:
    """Return the fused box that this box overlaps most, if by more than `overlap`."""
    if len(averages) == 0:
        return None
    overlaps = box_overlaps(averages[:, :4], box[:4])
    best = int(overlaps.argmax())
    return best if overlaps[best] > overlap else None
