"""mAP@[IoU=0.5] as COCO defines it, in NumPy: no torch, no compiled extension.

docs/adr/0005-faster-rcnn-in-plain-torch.md has the reasons against pycocotools; a test compares
the two on thousands of random cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Recalls at which COCO samples a precision–recall curve.
RECALLS = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True)
class Curve:
    """Precision of one class at each of `RECALLS`: the best at that recall or a higher one."""

    precision: Floats
    events: int
    """Number of true boxes of the class."""

    @property
    def average_precision(self) -> float:
        """Return the mean precision; a recall that is never reached counts as 0."""
        return float(self.precision.mean())


def mean_average_precision(
    predictions: NDArray[np.floating],
    labels: NDArray[np.floating],
    *,
    classes: int,
    overlap: float = 0.5,
) -> float:
    """Average over the classes that occur in the labels [S, G, 5]; predictions are [S, D, 6]."""
    curves = precision_recall(predictions, labels, classes=classes, overlap=overlap)
    occurring = [curve.average_precision for curve in curves if curve is not None]
    if not occurring:
        raise DataError(
            f"None of the {len(labels)} labelled samples has a box: mAP is undefined.",
            key="labels",
            value=len(labels),
            remedy="Check the labels (rows of −1 are padding).",
        )
    return float(np.mean(occurring))


def precision_recall(
    predictions: NDArray[np.floating],
    labels: NDArray[np.floating],
    *,
    classes: int,
    overlap: float = 0.5,
) -> list[Curve | None]:
    """Return a curve per class; None for a class without a true box."""
    detections, correct = match_detections(predictions, labels, overlap=overlap)
    curves: list[Curve | None] = []
    for class_number in range(classes):
        events = int(np.sum(labels[..., 4] == class_number))
        of_class = detections[..., 5] == class_number
        ranked = np.argsort(-detections[of_class][:, 4], kind="stable")
        curves.append(_curve(correct[of_class][ranked], events=events) if events else None)
    return curves


def match_detections(
    predictions: NDArray[np.floating], labels: NDArray[np.floating], *, overlap: float = 0.5
) -> tuple[Floats, Flags]:
    """Sort the detections of each sample, best first, and return which of them are right."""
    detections = np.asarray(predictions, dtype=np.float64)
    # Stable: equal scores keep their order, within an image and over images.
    order = np.argsort(-detections[..., 4], axis=1, kind="stable")
    detections = np.take_along_axis(detections, order[..., None], axis=1)
    return detections, _correct(detections, np.asarray(labels, dtype=np.float64), overlap=overlap)


def _correct(predictions: Floats, truth: Floats, *, overlap: float) -> Flags:
    """Return which detections are right.

    Best first, each takes the free true box it overlaps most.
    """
    samples, detections = predictions.shape[:2]
    correct = np.zeros((samples, detections), dtype=np.bool_)
    free = truth[..., 4] >= 0
    sample_index = np.arange(samples)
    for rank in range(detections):
        ranked = predictions[:, rank]
        same = free & (truth[..., 4] == ranked[:, None, 5])
        overlaps = np.where(same, box_overlaps(ranked[:, None, :4], truth[..., :4]), -1.0)
        # COCO takes the last of equals.
        best = overlaps.shape[1] - 1 - overlaps[:, ::-1].argmax(axis=1)
        correct[:, rank] = overlaps[sample_index, best] >= overlap
        free[sample_index, best] &= ~correct[:, rank]
    return correct


def box_overlaps(first: Floats, second: Floats) -> Floats:
    """Return the intersection over union, box by box."""
    corner = np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(
        first[..., :2], second[..., :2]
    )
    shared = corner.clip(min=0).prod(axis=-1)
    size = (first[..., 2:] - first[..., :2]).prod(-1) + (second[..., 2:] - second[..., :2]).prod(-1)
    union = size - shared
    result: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return result


def _curve(correct: Flags, *, events: int) -> Curve:
    """Build the curve of detections sorted best first."""
    right = np.cumsum(correct)
    precision = right / np.arange(1, len(right) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(right / events, RECALLS, side="left")
    return Curve(np.append(precision, 0.0)[at], events)
