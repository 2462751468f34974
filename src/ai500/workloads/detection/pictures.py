"""Which frames of a detection task to show, and the true and predicted boxes on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.records.illustrations import Box, Kind, Role
from ai500.workloads.detection.mean_average_precision import judged

MOST_MEMBERS = 8
"""Of more members, only the boxes of the first so many are drawn."""
MOST_BOXES = 40
"""Of one member on one picture."""
NO_THRESHOLD = 0.5
"""Where no detection is right, so that no threshold is better than another."""

Floats = NDArray[np.float64]
Detections = NDArray[np.floating]


@dataclass(frozen=True)
class Choice:
    """A frame that is worth a look, and why."""

    frame: int
    why: str
    events: int
    found: int
    false_alarms: int


@dataclass(frozen=True)
class Shown:
    """Detections above the threshold of whoever made them."""

    threshold: float
    boxes: Floats
    """[S, K, 6], −1 where there are no more."""


def shown(detections: Detections, labels: Detections) -> Shown:
    """Those with a score of at least that which gives the best F1 over all frames and classes."""
    found, correct = judged(detections, labels)
    valid = found[..., 4] > 0
    scores, right = found[valid][:, 4], correct[valid]
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    threshold = NO_THRESHOLD
    if hits.size and hits[-1]:
        f1 = 2 * hits / (np.arange(1, len(hits) + 1) + np.sum(labels[..., 4] >= 0))
        threshold = float(scores[order][f1.argmax()])
    kept = valid & (found[..., 4] >= threshold)
    most = max(1, int(kept.sum(axis=1).max(initial=0)))  # best first: those kept lead each frame
    return Shown(threshold, np.where(kept[..., None], found, -1.0)[:, :most])


def choices(members: Sequence[Shown], ensemble: Shown, labels: Detections) -> tuple[Choice, ...]:
    """Up to three frames: rich in events, disputed among the members, badly judged."""
    events = np.sum(labels[..., 4] >= 0, axis=1)
    found, false_alarms = _hits_and_rest(ensemble.boxes, labels)
    fused = ensemble.boxes[..., [0, 1, 2, 3, 5]]
    disputed = np.zeros(len(labels), dtype=np.int64)
    for member in members:
        agreed, alone = _hits_and_rest(member.boxes, fused)
        disputed += alone + np.sum(fused[..., 4] >= 0, axis=1) - agreed
    picked: dict[int, str] = {}
    for measure, why in (
        (events, "Most events"),
        (disputed, "Members differ most"),
        (events - found + false_alarms, "The ensemble errs most"),
    ):
        free = np.where(np.isin(np.arange(len(labels)), list(picked)), 0, measure)
        if free.max(initial=0) > 0:
            picked[int(free.argmax())] = why
    return tuple(
        Choice(frame, why, int(events[frame]), int(found[frame]), int(false_alarms[frame]))
        for frame, why in picked.items()
    )


def _hits_and_rest(
    detections: Detections, labels: Detections
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """In each frame, how many detections are right and how many are not."""
    found, correct = judged(detections, labels)
    right = np.sum(correct, axis=1)
    return right, np.sum(found[..., 4] > 0, axis=1) - right


def boxes_of(
    frame: int,
    *,
    labels: Detections,
    members: Mapping[int, Shown],
    ensemble: Shown,
    kinds: Sequence[Kind],
    size: tuple[int, int],
) -> tuple[Box, ...]:
    """True boxes, those of each member by its number, and the ensemble's; row 0 is at the bottom.

    `size` is the height and width that the boxes' coordinates are in.
    """
    made = [
        _box(row, "truth", size=size, kinds=kinds, who="true", score=None)
        for row in labels[frame][labels[frame, :, 4] >= 0]
    ]
    several: list[tuple[Role, str, Floats]] = [
        ("member", f"member {number}", one.boxes[frame])
        for number, one in list(members.items())[:MOST_MEMBERS]
    ]
    for role, who, rows in (*several, ("ensemble", "ensemble", ensemble.boxes[frame])):
        made += [
            _box(row[[0, 1, 2, 3, 5]], role, size=size, kinds=kinds, who=who, score=float(row[4]))
            for row in rows[rows[:, 4] > 0][:MOST_BOXES]
        ]
    return tuple(made)


def _box(
    row: NDArray[np.floating],
    role: Role,
    *,
    size: tuple[int, int],
    kinds: Sequence[Kind],
    who: str,
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
        left=_share(left / width),
        top=_share(1 - high / height),
        right=_share(right / width),
        bottom=_share(1 - low / height),
        label=labels[role],
        tip=f"{who}: {kind.name}" + ("" if score is None else f", score {score:.2f}"),
    )


def _share(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)
