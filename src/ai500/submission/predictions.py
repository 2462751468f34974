"""Quality recomputed from the members' predictions, which a submitter hands over on demand.

A submission carries the SHA-256 of each member's predictions (`record.json`). The files themselves
stay with the submitter; from them and the class's data, the quality of members and ensemble is
computed again, by the code that aggregated the run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ai500.bagging.aggregate import aggregate
from ai500.bagging.data_sampler import SAMPLERS
from ai500.bagging.predictions import QUALITY_TOLERANCE, FinishedMember
from ai500.core.errors import DataError, InputError
from ai500.data.bootstrap import Counts
from ai500.data.open_store import VerifiedSplit, open_store
from ai500.data.resumable_work import Progress
from ai500.data.store import Samples, Store
from ai500.pipeline.programs import program_of
from ai500.records import EnsembleResult, Plan, TrainRecord, TrialRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission.archive import printable
from ai500.submission.manifest import Submission
from ai500.workloads.class_data import generate_store
from ai500.workloads.protocol import load_workload


@dataclasses.dataclass(frozen=True, slots=True)
class PredictionCheck:
    """Result of checking a submission's predictions."""

    problems: tuple[str, ...]
    """Files that are missing or not those that the members recorded, and other qualities."""
    members: int
    """Number of members whose predictions have the recorded digest and quality."""
    qualities: tuple[float, ...]
    """Recomputed quality of each trial's ensemble."""

    @property
    def confirmed(self) -> bool:
        """True if every quality follows from the predictions."""
        return not self.problems


def check_predictions(submission: Submission, folder: Path, store: Store) -> PredictionCheck:
    """Compare the predictions in a run folder with their digests, and compute the qualities."""
    plan = run_folder.read(Plan, submission.run.plan)
    problems: list[str] = []
    qualities: list[float] = []
    confirmed = 0
    for trial in range(1, plan.trials + 1):
        try:
            result = _aggregated(submission.run, plan, trial, RunFolder(folder), store)
        except DataError as error:
            # The remedy is the submitter's: to resume the run.
            text = str(error).removesuffix(f" {error.remedy}").replace(f"{folder}/", "")
            problems.append(printable(f"trial {trial}: {text}"))
            continue
        claimed = run_folder.read(EnsembleResult, submission.run.trial(trial).ensemble)
        differences = list(_differences(claimed, result))
        problems += [f"trial {trial}: {text}" for text in differences]
        confirmed += 0 if differences else len(result.members)
        if result.ensemble_quality is not None:
            qualities.append(result.ensemble_quality)
    return PredictionCheck(tuple(problems), confirmed, tuple(qualities))


def class_store(submission: Submission, path: Path | None, *, progress: Progress | None) -> Store:
    """Open the data that the run says it trained on; generate a class's own."""
    plan = run_folder.read(Plan, submission.run.plan)
    program = program_of(plan)
    if not program.trains_class_model or plan.framework.kind == "script":
        kind = "script" if program.trains_class_model else program.name
        raise InputError(
            f"{submission.path}: a {kind} records no predictions.", key="--predictions"
        )
    if path is not None:
        store = open_store(path)
    elif plan.definition.custom is None:
        store = generate_store(plan.workload, plan.problem_class, progress=progress)
    else:
        raise InputError(
            f"{submission.path}: the data of a class of the submitter's own is not known.",
            key="--data",
            remedy="Name a copy of it with --data.",
        )
    store.require_fit(plan.definition)
    for trial in range(1, plan.trials + 1):
        recorded = run_folder.read(TrialRecord, submission.run.trial(trial).trial).store_sha256
        if recorded != store.sha256:
            raise DataError(
                f"{store.path}: its SHA-256 is {store.sha256}; trial {trial} ran on {recorded}.",
                key="store_sha256",
                value=store.sha256,
                path=store.path,
                remedy="Name the data of the class with --data.",
            )
    return store


def _aggregated(
    run: RunFolder, plan: Plan, trial: int, predictions: RunFolder, store: Store
) -> EnsembleResult:
    """Aggregate the predictions of a folder, as the submission's records say they are."""
    seed = run_folder.read(TrialRecord, run.trial(trial).trial).seed
    members = [
        FinishedMember(
            member=member,
            folder=predictions.trial(trial).member(member),
            record=run_folder.read(TrainRecord, run.trial(trial).member(member).record),
            run=predictions.path,
            read_counts=partial(_counts, plan, seed, member),
        )
        for member in range(plan.ensemble_size)
    ]
    splits: dict[str, Samples] = {
        name: VerifiedSplit(store.splits[name], store.digests(name))
        for name in ("train", "validation")
    }
    return aggregate(
        members,
        workload=load_workload(plan.workload),
        validation=splits["validation"],
        train=splits["train"],
        ensemble_size=plan.ensemble_size,
        out_of_bag_limit=plan.definition.out_of_bag_samples,
    ).result


def _counts(plan: Plan, seed: int, member: int) -> Counts:
    """Draw a member's bootstrap again; verification has compared its digest."""
    return SAMPLERS[plan.sampler].draw(plan.definition.train_samples, seed=seed, member=member)


def _differences(claimed: EnsembleResult, recomputed: EnsembleResult) -> Iterator[str]:
    for field in dataclasses.fields(EnsembleResult):
        values = getattr(claimed, field.name), getattr(recomputed, field.name)
        if not _equal(*values):
            yield (
                f"{field.name.replace('_', ' ')} is {printable(str(values[0]))}, the predictions "
                f"give {printable(str(values[1]))}"
            )


def _equal(claimed: object, recomputed: object) -> bool:
    if isinstance(claimed, tuple) and isinstance(recomputed, tuple):
        return len(claimed) == len(recomputed) and all(map(_equal, claimed, recomputed))
    if isinstance(claimed, float) and isinstance(recomputed, float):
        return math.isclose(claimed, recomputed, rel_tol=QUALITY_TOLERANCE, abs_tol=1e-12)
    return claimed == recomputed
