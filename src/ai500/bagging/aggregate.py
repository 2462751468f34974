"""Aggregation: combine the members' predictions, and evaluate them on validation and out of bag.

Every member's predictions are verified first. Combining is a running reduction over mapped files:
peak memory does not depend on the size of the ensemble.

The workload draws pictures of the predictions for the report, to `pictures/` in the trial's
folder; a resumed trial with more members draws again. A failure there never fails the run: it is
noted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.bagging.predictions import (
    FinishedMember,
    MappedValidation,
    OutOfBagPredictions,
    ValidationPredictions,
)
from ai500.core import atomic
from ai500.core.errors import DataError, JobError
from ai500.data.bootstrap import out_of_bag_candidates
from ai500.data.store import Samples
from ai500.records import EnsembleResult, run_folder
from ai500.records.fields import target_names
from ai500.records.illustrations import Drawn, Illustrations
from ai500.records.run_folder import TrialFolder
from ai500.workloads.protocol import Workload

Targets = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Aggregated:
    """Qualities of an ensemble, and its combined predictions of the validation samples."""

    result: EnsembleResult
    predictions: NDArray[Any]


def aggregate(
    members: Sequence[FinishedMember],
    *,
    workload: Workload,
    validation: Samples,
    train: Samples,
    ensemble_size: int,
    out_of_bag_limit: int,
) -> Aggregated:
    """Verify and combine the predictions of the members that finished, as the workload does it."""
    if not members:
        raise JobError("no member finished: there is nothing to aggregate.")
    everything = np.arange(validation.count, dtype=np.int64)
    targets = validation.rows(everything, names=target_names(validation.fields))
    qualities = member_qualities(members, workload=workload, targets=targets)
    combined = workload.combine(ValidationPredictions.of(members))
    quality, samples = _out_of_bag(members, workload=workload, train=train, limit=out_of_bag_limit)
    present = {member.member for member in members}
    missing = tuple(m for m in range(ensemble_size) if m not in present)
    result = EnsembleResult(
        complete=not missing,
        members=tuple(member.member for member in members),
        missing=missing,
        member_qualities=tuple(qualities),
        members_mean_quality=float(np.mean(qualities)),
        ensemble_quality=workload.quality(combined, targets),
        out_of_bag_quality=quality,
        out_of_bag_samples=samples,
    )
    return Aggregated(result, combined)


def member_qualities(
    members: Sequence[FinishedMember], *, workload: Workload, targets: Targets
) -> list[float]:
    """Verify the validation predictions of each member and compute their quality.

    A worker of ai500 computed the quality that it recorded from these predictions: the two must
    agree. A script may measure its own way.
    """
    samples = len(next(iter(targets.values())))
    qualities = []
    for member in members:
        member.verify_validation(samples=samples)
        member.verify_shape(member.folder.validation, members[0].validation().shape[1:])
        quality = workload.quality(member.validation(), targets)
        if member.record.weights_sha256 is not None:
            member.verify_quality(quality)
        qualities.append(quality)
    return qualities


def _out_of_bag(
    members: Sequence[FinishedMember], *, workload: Workload, train: Samples, limit: int
) -> tuple[float | None, int]:
    """Evaluate each sample by the members that never saw it; skip samples that all have seen."""
    candidates = out_of_bag_candidates(train.count, limit=limit)
    first = members[0].validation()
    evaluated = np.zeros(len(candidates), dtype=np.bool_)
    for member in members:
        unseen = member.read_counts()[candidates] == 0
        member.verify_out_of_bag(samples=int(unseen.sum()))
        member.verify_shape(member.folder.out_of_bag, first.shape[1:])
        evaluated |= unseen
    samples = candidates[evaluated]
    if len(samples) == 0:
        return None, 0
    predictions = OutOfBagPredictions(members, samples, first.shape[1:], first.dtype)
    combined = workload.combine(predictions)
    targets = train.rows(samples, names=target_names(train.fields))
    try:
        quality = workload.quality(combined, targets)
    except DataError:  # too few samples: quality is not defined on them
        return None, len(samples)
    return quality, len(samples)


def illustrate(
    trial: TrialFolder,
    members: Sequence[FinishedMember],
    *,
    workload: Workload,
    ensemble: NDArray[Any],
    samples: Samples,
) -> None:
    """Draw and write the pictures of a trial, if its workload has any."""
    try:
        predictions = MappedValidation(members)
        drawn = workload.illustrations(predictions, ensemble=ensemble, samples=samples)
        if drawn is not None:
            _write(trial, drawn)
    except Exception as error:  # a plugin's drawing may raise anything; the score does not need it
        note = f"Nothing could be drawn: {type(error).__name__}: {error}"
        with contextlib.suppress(Exception):  # such as a full disk, which the next stage reports
            _write(trial, Drawn(Illustrations("Pictures", (note,)), {}))


def _write(trial: TrialFolder, drawn: Drawn) -> None:
    """Write the images, then the record that names them; then remove older images."""
    with atomic.explaining_write_errors(trial.pictures):
        trial.pictures.mkdir(parents=True, exist_ok=True)
    for name, data in drawn.images.items():
        atomic.write_bytes(trial.pictures / name, data)
    run_folder.write(trial.pictures_record, drawn.illustrations)
    for old in trial.pictures.glob("*.png"):
        if old.name not in drawn.images:
            old.unlink(missing_ok=True)
