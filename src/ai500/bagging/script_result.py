"""Aggregation of a script's members: by their predictions where all left them, else by their mean.

A script reports its own quality. Where every member left predictions, the targets are known and the
quality is one that ai500 computes, members and ensemble are evaluated here; otherwise the
ensemble's quality is not measured, and the members' mean of what they reported stands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.bagging.aggregate import Targets, aggregate, member_qualities
from ai500.bagging.predictions import FinishedMember, ValidationPredictions
from ai500.core.errors import DataError
from ai500.data.store import Store
from ai500.records import EnsembleResult, Plan
from ai500.records.fields import target_names
from ai500.workloads.protocol import class_workload


def script_result(plan: Plan, members: Sequence[FinishedMember], *, store: Store) -> EnsembleResult:
    """Combine the members of a script that finished."""
    workload = class_workload(plan.workload, plan.definition)
    if not getattr(workload, "measures", True) or not all(
        member.record.validation_sha256 for member in members
    ):
        return _reported(plan, members)
    targets = _targets(plan, store)
    if targets is None:
        return _reported(plan, members)
    if store.splits and all(member.record.out_of_bag_sha256 for member in members):
        return aggregate(
            members,
            workload=workload,
            validation=store.splits["validation"],
            train=store.splits["train"],
            ensemble_size=plan.ensemble_size,
            out_of_bag_limit=plan.definition.out_of_bag_samples,
        ).result
    qualities = member_qualities(members, workload=workload, targets=targets)
    combined = workload.combine(ValidationPredictions.of(members))
    return dataclasses.replace(
        _reported(plan, members),
        member_qualities=tuple(qualities),
        members_mean_quality=fmean(qualities),
        ensemble_quality=workload.quality(combined, targets),
    )


def _reported(plan: Plan, members: Sequence[FinishedMember]) -> EnsembleResult:
    """Return the qualities that the members reported themselves."""
    records, finished = zip(*((m.record, m.member) for m in members), strict=True)
    missing = tuple(member for member in range(plan.ensemble_size) if member not in finished)
    return EnsembleResult(
        complete=not missing,
        members=finished,
        missing=missing,
        member_qualities=tuple(record.quality for record in records),
        members_mean_quality=fmean(record.quality for record in records),
        ensemble_quality=None,
        out_of_bag_quality=None,
        out_of_bag_samples=0,
    )


def _targets(plan: Plan, store: Store) -> Targets | None:
    """Return the targets of the validation samples: of the class's file, else of the store."""
    custom, count = plan.definition.custom, plan.definition.validation_samples
    file = None if custom is None else custom.validation_targets
    if file is None:
        split = store.splits.get("validation")
        names = target_names(store.fields)
        if split is None or (custom is not None and custom.base is None and len(names) != 1):
            return None  # a quality of METRICS compares one target
        return split.rows(np.arange(split.count, dtype=np.int64), names=names)
    return {"targets": read_targets(file, count=count)}


def read_targets(file: str, *, count: int) -> NDArray[Any]:
    """Map the file of the validation samples' targets; raise `DataError` unless it fits."""
    try:
        targets: NDArray[Any] = np.load(Path(file), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _bad_targets(file, f"can't be read: {error}.") from error
    if targets.ndim == 0 or len(targets) != count or targets.dtype.kind not in "fiu":
        raise _bad_targets(
            file, f"expected numbers of {count} samples, found {targets.dtype} {targets.shape}."
        )
    return targets


def _bad_targets(file: str, problem: str) -> DataError:
    return DataError(
        f"{file}: {problem}", key="custom_class.validation_targets", value=file, path=file
    )
