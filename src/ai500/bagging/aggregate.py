"""Aggregation: the members' predictions into the ensemble's, judged in the bag and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError, JobError
from ai500.data.bootstrap import Counts, out_of_bag_candidates
from ai500.records import EnsembleResult
from ai500.workloads.protocol import Workload


@dataclass(frozen=True)
class MemberPredictions:
    """What one finished member left for the aggregation."""

    member: int
    validation: NDArray[np.float32]
    out_of_bag: NDArray[np.float32]
    counts: Counts


def read_predictions(path: Path) -> NDArray[np.float32]:
    """A member's predictions, or an error that names the file."""
    try:
        array: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: can't be read: {error}. Delete the member's record.") from error
    return array


def aggregate(
    members: Sequence[MemberPredictions],
    *,
    workload: Workload,
    validation_labels: NDArray[Any],
    train_labels: NDArray[Any],
    ensemble_size: int,
    out_of_bag_limit: int,
) -> EnsembleResult:
    """Average (as the workload does it) over those members that finished."""
    if not members:
        raise JobError("no member finished: there is nothing to aggregate.")
    stacked = np.stack([member.validation for member in members])
    everyone = np.ones(stacked.shape[:2], dtype=np.bool_)
    qualities = [workload.quality(member.validation, validation_labels) for member in members]
    ensemble = workload.quality(workload.combine(stacked, voters=everyone), validation_labels)
    quality, samples = _out_of_bag(
        members, workload=workload, train_labels=train_labels, limit=out_of_bag_limit
    )
    present = {member.member for member in members}
    missing = tuple(m for m in range(ensemble_size) if m not in present)
    return EnsembleResult(
        complete=not missing,
        members=tuple(member.member for member in members),
        missing=missing,
        member_qualities=tuple(qualities),
        members_mean_quality=float(np.mean(qualities)),
        ensemble_quality=ensemble,
        out_of_bag_quality=quality,
        out_of_bag_samples=samples,
    )


def _out_of_bag(
    members: Sequence[MemberPredictions],
    *,
    workload: Workload,
    train_labels: NDArray[Any],
    limit: int,
) -> tuple[float | None, int]:
    """Each sample judged only by the members that never saw it; seen by all: not judged."""
    judged = out_of_bag_candidates(len(train_labels), limit=limit)
    voters = np.stack([member.counts[judged] == 0 for member in members])
    judgeable = voters.any(axis=0)
    if not judgeable.any():
        return None, 0
    shape = members[0].validation.shape[1:]
    predictions = np.zeros((len(members), len(judged), *shape), dtype=np.float32)
    for row, member in enumerate(members):
        if len(member.out_of_bag):
            predictions[row, voters[row]] = member.out_of_bag
    combined = workload.combine(predictions[:, judgeable], voters=voters[:, judgeable])
    labels = train_labels[judged][judgeable]
    try:
        quality = workload.quality(combined, labels)
    except DataError:  # few samples, and not one with anything to find: nothing to judge by
        return None, int(judgeable.sum())
    return quality, int(judgeable.sum())
