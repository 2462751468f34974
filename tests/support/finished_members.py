"""Members that finished, as workers leave them: predictions on disk, digests in the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.bagging.predictions import FinishedMember
from ai500.core.reading import file_sha256
from ai500.data.bootstrap import Counts
from ai500.records import TrainRecord
from ai500.records.run_folder import MemberFolder, RunFolder


def record_of(folder: MemberFolder, *, member: int, quality: float) -> TrainRecord:
    """The record of a worker that leaves these files."""
    files = (folder.validation, folder.out_of_bag)
    validation, out_of_bag = (file_sha256(file) if file.exists() else None for file in files)
    return TrainRecord(
        member=member, parameters=1, samples=1, steps=1, epochs=1, world_size=1, device="cpu",
        device_name="x86_64", quality=quality, weights_sha256="0" * 64, operations=None,
        effective={}, versions={}, validation_sha256=validation, out_of_bag_sha256=out_of_bag,
    )  # fmt: skip


def finished_member(
    path: Path,
    member: int,
    *,
    validation: NDArray[Any],
    out_of_bag: NDArray[Any],
    counts: Counts,
    quality: float,
) -> FinishedMember:
    """Write a member's files below a run folder."""
    folder = RunFolder(path).trial(1).member(member)
    folder.path.mkdir(parents=True, exist_ok=True)
    np.save(folder.validation, validation)
    np.save(folder.out_of_bag, out_of_bag)
    record = record_of(folder, member=member, quality=quality)
    return FinishedMember(member, folder, record, path, lambda: counts)


def members_of(run: RunFolder, *, size: int) -> list[FinishedMember]:
    """The members of a run folder that left validation predictions."""
    folders = {member: run.trial(1).member(member) for member in range(size)}
    return [
        FinishedMember(
            member, folder, record_of(folder, member=member, quality=0.0), run.path, _no_counts
        )
        for member, folder in folders.items()
        if folder.validation.exists()
    ]


def _no_counts() -> Counts:
    raise AssertionError("pictures need no bootstrap")
