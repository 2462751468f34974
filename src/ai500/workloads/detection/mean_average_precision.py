"""mAP@[IoU=0.5] as COCO defines it, on arrays: no torch, no compiled part.

Why not pycocotools itself: docs/adr/0005-faster-rcnn-in-plain-torch.md. A test holds the two equal
on thousands of random cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

RECALLS = np.linspace(0.0, 1.0, 101)
"""Where COCO reads a precision–recall curve."""


@dataclass(frozen=True)
class Curve:
    """Precision of one class at each of `RECALLS`: the best that is had at that recall or more."""

    precision: Floats
    events: int
    """True boxes of the class."""

    @property
    def average_precision(self) -> float:
        """The mean of the precisions; a recall that is never reached counts as 0."""
        return float(self.precision.mean())


def mean_average_precision(
    predictions: NDArray[np.floating],
    labels: NDArray[np.floating],
    *,
    classes: int,
    overlap: float = 0.5,
) -> float:
    """The mean over those classes that occur in the labels [S, G, 5]; predictions are [S, D, 6]."""
    curves = precision_recall(predictions, labels, classes=classes, overlap=overlap)
    occurring = [curve.average_precision for curve in curves if curve is not None]
    if not occurring:
        raise DataError(
            f"none of the {len(labels)} labelled samples has a box: mAP is not defined without "
            "one. Check the labels (rows of −1 are padding)."
        )
    return float(np.mean(occurring))


def precision_recall(
    predictions: NDArray[np.floating],
    labels: NDArray[np.floating],
    *,
    classes: int,
    overlap: float = 0.5,
) -> list[Curve | None]:
    """A curve per class; None for a class without a true box."""
    found, correct = judged(predictions, labels, overlap=overlap)
    curves: list[Curve | None] = []
    for kind in range(classes):
        events = int(np.sum(labels[..., 4] == kind))
        mine = found[..., 5] == kind
        ranked = np.argsort(-found[mine][:, 4], kind="stable")
        curves.append(_curve(correct[mine][ranked], events=events) if events else None)
    return curves


def judged(
    predictions: NDArray[np.floating], labels: NDArray[np.floating], *, overlap: float = 0.5
) -> tuple[Floats, Flags]:
    """The detections of each sample best first, and which of them are right."""
    found = np.asarray(predictions, dtype=np.float64)
    # Equal scores stay in the order they came in, within an image and over images.
    order = np.argsort(-found[..., 4], axis=1, kind="stable")
    found = np.take_along_axis(found, order[..., None], axis=1)
    return found, _correct(found, np.asarray(labels, dtype=np.float64), overlap=overlap)


def _correct(found: Floats, truth: Floats, *, overlap: float) -> Flags:
    """Which detections are right: best first, each takes the free true box it overlaps most."""
    samples, detections = found.shape[:2]
    correct = np.zeros((samples, detections), dtype=np.bool_)
    free = truth[..., 4] >= 0
    everyone = np.arange(samples)
    for rank in range(detections):
        one = found[:, rank]
        same = free & (truth[..., 4] == one[:, None, 5])
        overlaps = np.where(same, _overlaps(one[:, None, :4], truth[..., :4]), -1.0)
        # COCO takes the last of equals.
        best = overlaps.shape[1] - 1 - overlaps[:, ::-1].argmax(axis=1)
        correct[:, rank] = overlaps[everyone, best] >= overlap
        free[everyone, best] &= ~correct[:, rank]
    return correct


def _overlaps(one: Floats, other: Floats) -> Floats:
    """Intersection over union, box by box."""
    corner = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    shared = corner.clip(min=0).prod(axis=-1)
    size = (one[..., 2:] - one[..., :2]).prod(-1) + (other[..., 2:] - other[..., :2]).prod(-1)
    union = size - shared
    result: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return result


def _curve(correct: Flags, *, events: int) -> Curve:
    """Of detections, best first."""
    right = np.cumsum(correct)
    precision = right / np.arange(1, len(right) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(right / events, RECALLS, side="left")
    return Curve(np.append(precision, 0.0)[at], events)
