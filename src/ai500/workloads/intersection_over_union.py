"""Mean intersection over union of per-pixel classes, in constant memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FULL = 255
"""Stored value of a probability of 1."""
BLOCK_PIXELS = 1 << 22
"""Pixels that are compared at a time."""


def predicted_classes(predictions: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the most likely class of each pixel from events' probabilities [N, events, H, W].

    The background has the rest. Of equal probabilities the first class's counts.
    """
    rest = FULL - predictions.sum(axis=1, dtype=np.int16, keepdims=True)
    ranked = np.concatenate([rest, predictions], axis=1)
    chosen: NDArray[np.uint8] = ranked.argmax(axis=1).astype(np.uint8)
    return chosen


def class_overlaps(
    predictions: NDArray[np.uint8], masks: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pixels of each class's intersection and union over all samples."""
    classes = predictions.shape[1] + 1
    pairs = np.zeros((classes, classes), np.int64)
    step = max(1, BLOCK_PIXELS // max(1, int(np.prod(masks.shape[1:]))))
    for first in range(0, len(masks), step):
        block = slice(first, first + step)
        chosen = predicted_classes(predictions[block])
        codes = masks[block].astype(np.int64) * classes + chosen
        pairs += np.bincount(codes.ravel(), minlength=classes**2).reshape(classes, classes)
    intersection = pairs.diagonal()
    return intersection, pairs.sum(axis=0) + pairs.sum(axis=1) - intersection


def class_ious(predictions: NDArray[np.uint8], masks: NDArray[Any]) -> NDArray[np.float64]:
    """Return each class's IoU over all samples; NaN for a class that is nowhere."""
    intersection, union = class_overlaps(predictions, masks)
    ious: NDArray[np.float64] = np.full(len(union), np.nan)
    np.divide(intersection, union, out=ious, where=union > 0)
    return ious


def mean_iou(predictions: NDArray[np.uint8], masks: NDArray[Any]) -> float:
    """Average the IoUs of the classes that are in the masks or the predictions."""
    return float(np.nanmean(class_ious(predictions, masks)))
