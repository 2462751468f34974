"""Aggregation: combine the members' predictions, and evaluate them on validation and out of bag.

The workload draws pictures of the predictions for the report, to `pictures/` in the trial's
folder; a resumed trial with more members draws again. A failure there never fails the run: it is
noted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.errors import DataError, JobError
from ai500.data.bootstrap import Counts, out_of_bag_candidates
from ai500.data.store import Samples
from ai500.records import EnsembleResult, Plan, run_folder
from ai500.records.fields import target_names
from ai500.records.illustrations import Drawn, Illustrations
from ai500.records.run_folder import TrialFolder
from ai500.workloads.protocol import Workload, load_workload

BLOCK_BYTES = 1 << 30
"""Members' predictions that are combined at a time; a workload combines sample by sample."""


@dataclass(frozen=True)
class MemberPredictions:
    """Predictions of one finished member, and the repeat counts of its bootstrap."""

    member: int
    validation: NDArray[Any]
    out_of_bag: NDArray[Any]
    counts: Counts


def read_predictions(path: Path) -> NDArray[Any]:
    """Map a member's predictions into memory."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path}: can't be read: {error}.",
            path=path,
            remedy="Delete the member's record, then resume the run.",
        ) from error
    return array


def aggregate(
    members: Sequence[MemberPredictions],
    *,
    workload: Workload,
    validation: Samples,
    train: Samples,
    ensemble_size: int,
    out_of_bag_limit: int,
) -> EnsembleResult:
    """Combine the predictions of the members that finished, as the workload does it."""
    if not members:
        raise JobError("no member finished: there is nothing to aggregate.")
    everything = np.arange(validation.count, dtype=np.int64)
    targets = validation.rows(everything, names=target_names(validation.fields))
    qualities = [workload.quality(member.validation, targets) for member in members]
    ensemble = workload.quality(_combined(members, workload=workload), targets)
    quality, samples = _out_of_bag(members, workload=workload, train=train, limit=out_of_bag_limit)
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


def _combined(members: Sequence[MemberPredictions], *, workload: Workload) -> NDArray[Any]:
    """Combine the validation predictions of all members, in blocks of samples."""
    first = members[0].validation
    step = max(1, BLOCK_BYTES // max(1, len(members) * first[:1].nbytes))
    blocks = []
    for start in range(0, max(1, len(first)), step):
        stacked = np.stack([member.validation[start : start + step] for member in members])
        all_voters = np.ones(stacked.shape[:2], dtype=np.bool_)
        blocks.append(workload.combine(stacked, voters=all_voters))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _out_of_bag(
    members: Sequence[MemberPredictions],
    *,
    workload: Workload,
    train: Samples,
    limit: int,
) -> tuple[float | None, int]:
    """Evaluate each sample by the members that never saw it; skip samples that all have seen."""
    candidates = out_of_bag_candidates(train.count, limit=limit)
    voters = np.stack([member.counts[candidates] == 0 for member in members])
    evaluated = voters.any(axis=0)
    if not evaluated.any():
        return None, 0
    first = members[0].validation
    shape = (len(members), len(candidates), *first.shape[1:])
    predictions = np.zeros(shape, dtype=first.dtype)
    for row, member in enumerate(members):
        if len(member.out_of_bag):
            predictions[row, voters[row]] = member.out_of_bag
    combined = workload.combine(predictions[:, evaluated], voters=voters[:, evaluated])
    targets = train.rows(candidates[evaluated], names=target_names(train.fields))
    try:
        quality = workload.quality(combined, targets)
    except DataError:  # too few samples: quality is not defined on them
        return None, int(evaluated.sum())
    return quality, int(evaluated.sum())


def illustrate(trial: TrialFolder, *, plan: Plan, samples: Samples) -> None:
    """Draw and write the pictures of a trial, if its workload has any."""
    try:
        drawn = _drawn(trial, plan=plan, samples=samples)
        if drawn is not None:
            _write(trial, drawn)
    except Exception as error:
        note = f"Nothing could be drawn: {type(error).__name__}: {error}"
        with contextlib.suppress(Exception):  # such as a full disk, which the next stage reports
            _write(trial, Drawn(Illustrations("Pictures", (note,)), {}))


def _drawn(trial: TrialFolder, *, plan: Plan, samples: Samples) -> Drawn | None:
    folders = {member: trial.member(member) for member in range(plan.ensemble_size)}
    predictions = {
        member: np.load(folder.validation, mmap_mode="r", allow_pickle=False)
        for member, folder in folders.items()
        if folder.record.exists()
    }
    return load_workload(plan.workload).illustrations(predictions, samples=samples)


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
