"""Pictures that the workload draws of a trial, for the report.

They are drawn from the members' predictions and written to `pictures/` in the trial's folder; a
resumed trial with more members draws again. A failure here never fails the run: it is noted.
"""

from __future__ import annotations

import contextlib

import numpy as np

from ai500.core import atomic
from ai500.data.store import Samples
from ai500.records import Plan, run_folder
from ai500.records.illustrations import Drawn, Illustrations
from ai500.records.run_folder import TrialFolder
from ai500.workloads.protocol import load_workload


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
    workload = load_workload(plan.workload)
    folders = {member: trial.member(member) for member in range(plan.ensemble_size)}
    predictions = {
        member: np.load(folder.validation, mmap_mode="r", allow_pickle=False)
        for member, folder in folders.items()
        if folder.record.exists()
    }
    return workload.illustrations(predictions, samples=samples)


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
