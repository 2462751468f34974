"""Frames of a detection task to show, and the true and predicted boxes on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.records.illustrations import Box, Kind, Role
from ai500.workloads.detection.mean_average_precision import match_detections

# Members whose boxes are drawn.
MAX_MEMBERS = 8
# Boxes of one member on one picture.
MAX_BOXES = 40
# Used where no detection is right, so that no threshold is better than another.
DEFAULT_THRESHOLD = 0.5

Floats = NDArray[np.float64]
Detections = NDArray[np.floating]


@dataclass(frozen=True)
class ChosenFrame:
    """Frame to show, and the reason."""

    frame: int
    reason: str
    events: int
    hits: int
    false_alarms: int


@dataclass(frozen=True)
class Thresholded:
    """Detections above the score threshold of a member or of the ensemble."""

    threshold: float
    boxes: Floats
    """[S, K, 6], padded with −1."""


def apply_threshold(detections: Detections, labels: Detections) -> Thresholded:
    """Keep detections above the score with the best F1 over all frames and classes."""
    ranked, correct = match_detections(detections, labels)
    valid = ranked[..., 4] > 0
    scores, right = ranked[valid][:, 4], correct[valid]
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    threshold = DEFAULT_THRESHOLD
    if hits.size and hits[-1]:
        f1 = 2 * hits / (np.arange(1, len(hits) + 1) + np.sum(labels[..., 4] >= 0))
        threshold = float(scores[order][f1.argmax()])
    kept = valid & (ranked[..., 4] >= threshold)
    columns = max(1, int(kept.sum(axis=1).max(initial=0)))  # best first, so kept boxes lead
    return Thresholded(threshold, np.where(kept[..., None], ranked, -1.0)[:, :columns])


def choose_frames(
    members: Iterable[Thresholded], ensemble: Thresholded, labels: Detections
) -> tuple[ChosenFrame, ...]:
    """Choose up to three frames: most events, most disagreement among members, most errors."""
    events = np.sum(labels[..., 4] >= 0, axis=1)
    hits, false_alarms = _count_hits(ensemble.boxes, labels)
    fused = ensemble.boxes[..., [0, 1, 2, 3, 5]]
    disputed = np.zeros(len(labels), dtype=np.int64)
    for member in members:
        shared, unmatched = _count_hits(member.boxes, fused)
        disputed += unmatched + np.sum(fused[..., 4] >= 0, axis=1) - shared
    reasons: dict[int, str] = {}
    for measure, reason in (
        (events, "Most events"),
        (disputed, "Members differ most"),
        (events - hits + false_alarms, "The ensemble errs most"),
    ):
        score = np.where(np.isin(np.arange(len(labels)), list(reasons)), 0, measure)
        if score.max(initial=0) > 0:
            reasons[int(score.argmax())] = reason
    return tuple(
        ChosenFrame(frame, reason, int(events[frame]), int(hits[frame]), int(false_alarms[frame]))
        for frame, reason in reasons.items()
    )


def _count_hits(
    detections: Detections, labels: Detections
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count right and wrong detections in each frame."""
    ranked, correct = match_detections(detections, labels)
    right = np.sum(correct, axis=1)
    return right, np.sum(ranked[..., 4] > 0, axis=1) - right


def picture_boxes(
    frame: int,
    *,
    labels: Detections,
    members: Mapping[int, Thresholded],
    ensemble: Thresholded,
    kinds: Sequence[Kind],
    size: tuple[int, int],
) -> tuple[Box, ...]:
    """Return true boxes, those of each member by its number, and the ensemble's.

    Row 0 is at the bottom; `size` is the height and width of the boxes' coordinates.
    """
    boxes = [
        _box(row, "truth", size=size, kinds=kinds, name="true", score=None)
        for row in labels[frame][labels[frame, :, 4] >= 0]
    ]
    predicted: list[tuple[Role, str, Floats]] = [
        ("member", f"member {number}", member.boxes[frame])
        for number, member in list(members.items())[:MAX_MEMBERS]
    ]
    for role, name, rows in (*predicted, ("ensemble", "ensemble", ensemble.boxes[frame])):
        boxes += [
            _box(row[[0, 1, 2, 3, 5]], role, size=size, kinds=kinds, name=name, score=float(row[4]))
            for row in rows[rows[:, 4] > 0][:MAX_BOXES]
        ]
    return tuple(boxes)


def _box(
    row: NDArray[np.floating],
    role: Role,
    *,
    size: tuple[int, int],
    kinds: Sequence[Kind],
    name: str,
    score: float | None,
) -> Box:
    low, left, high, right = (float(value) for value in row[:4])
    height, width = size
    number = int(row[4])
    kind = kinds[number]
    labels = {"truth": kind.short, "ensemble": f"{kind.short} {score or 0:.2f}", "member": ""}
    return Box(
        role=role,
        kind=number,
        left=_fraction(left / width),
        top=_fraction(1 - high / height),
        right=_fraction(right / width),
        bottom=_fraction(1 - low / height),
        label=labels[role],
        tip=f"{name}: {kind.name}" + ("" if score is None else f", score {score:.2f}"),
    )


def _fraction(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)
