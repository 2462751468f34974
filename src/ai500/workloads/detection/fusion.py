"""Weighted boxes fusion (Solovyev, Wang, Gabruseva 2019) of several detectors' boxes.

Unlike non-maximum suppression it uses every member's box: coordinates are averaged by score, and
boxes that few members predict lose score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ai500.workloads.detection.mean_average_precision import box_overlaps

Floats = NDArray[np.float64]
# IoU above which a box joins a fused one: the paper's optimum.
OVERLAP = 0.55


def weighted_boxes_fusion(
    members: NDArray[np.floating], *, voters: NDArray[np.bool_], overlap: float = OVERLAP
) -> NDArray[np.floating]:
    """Fuse detections [M, S, D, 6] of the voters [M, S] into [S, D, 6], best first."""
    _, samples, rows, fields = members.shape
    result = np.full((samples, rows, fields), -1.0)
    for sample in range(samples):
        voting = voters[:, sample]
        boxes = members[voting, sample].reshape(-1, fields).astype(np.float64)
        boxes = boxes[boxes[:, 4] > 0]
        boxes_by_class = [
            boxes[boxes[:, 5] == class_number] for class_number in np.unique(boxes[:, 5])
        ]
        parts = [
            fuse_class(class_boxes, voters=int(voting.sum()), overlap=overlap)
            for class_boxes in boxes_by_class
        ]
        best = _sorted_boxes(np.concatenate(parts))[:rows] if parts else boxes
        result[sample, : len(best)] = best
    fused_boxes: NDArray[np.floating] = result.astype(members.dtype)
    return fused_boxes


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
