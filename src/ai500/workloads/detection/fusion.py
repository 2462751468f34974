"""Weighted boxes fusion (Solovyev, Wang, Gabruseva 2019): many detectors' boxes into one set.

Unlike non-maximum suppression it uses every member's box: coordinates are averaged by score, and a
box that few members see loses score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
OVERLAP = 0.55
"""Boxes that overlap the fused one more belong to it: the paper's optimum."""


def fused(
    members: NDArray[np.floating], *, voters: NDArray[np.bool_], overlap: float = OVERLAP
) -> NDArray[np.floating]:
    """Detections [M, S, D, 6] of the voters [M, S] to the ensemble's [S, D, 6], best first."""
    _, samples, rows, fields = members.shape
    result = np.full((samples, rows, fields), -1.0)
    for sample in range(samples):
        voting = voters[:, sample]
        boxes = members[voting, sample].reshape(-1, fields).astype(np.float64)
        boxes = boxes[boxes[:, 4] > 0]
        kinds = [boxes[boxes[:, 5] == kind] for kind in np.unique(boxes[:, 5])]
        parts = [fuse_one_class(each, voters=int(voting.sum()), overlap=overlap) for each in kinds]
        best = _ranked(np.concatenate(parts))[:rows] if parts else boxes
        result[sample, : len(best)] = best
    fused_boxes: NDArray[np.floating] = result.astype(members.dtype)
    return fused_boxes


def fuse_one_class(boxes: Floats, *, voters: int, overlap: float) -> Floats:
    """Clusters of boxes of one class [B, 6] as one box each, whatever order they come in."""
    boxes = _ranked(boxes)
    averages = np.empty_like(boxes)
    weighted = np.zeros((len(boxes), 4))
    scores = np.zeros(len(boxes))
    sizes = np.zeros(len(boxes), dtype=np.int64)
    clusters = 0
    for box in boxes:
        cluster = _cluster_of(box, averages[:clusters], overlap=overlap)
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


def _ranked(boxes: Floats) -> Floats:
    """Best first; equal scores by their coordinates, so that no order of members shows."""
    keys = (boxes[:, 5], *(boxes[:, field] for field in (3, 2, 1, 0)), -boxes[:, 4])
    return boxes[np.lexsort(keys)]


def _cluster_of(box: Floats, averages: Floats, *, overlap: float) -> int | None:
    """The fused box that this one overlaps most, if it overlaps enough."""
    if len(averages) == 0:
        return None
    top, left = (np.maximum(averages[:, side], box[side]) for side in (0, 1))
    bottom, right = (np.minimum(averages[:, side], box[side]) for side in (2, 3))
    shared = (bottom - top).clip(min=0) * (right - left).clip(min=0)
    sizes = (averages[:, 2] - averages[:, 0]) * (averages[:, 3] - averages[:, 1])
    overlaps = shared / (sizes + (box[2] - box[0]) * (box[3] - box[1]) - shared)
    best = int(overlaps.argmax())
    return best if overlaps[best] > overlap else None
