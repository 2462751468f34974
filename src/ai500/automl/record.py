"""The record of a search's worker: its best model, and how it trained.

`quality` is the least error of the model's epochs; `weights_sha256` is that of the weights after
its last epoch, which are those on disk and those that its children inherited.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ai500.automl.coordinator import Coordinator
from ai500.automl.history import HISTORY_FILE, Candidate, Model, Reader, Work
from ai500.automl.score import WorkCounter
from ai500.core.errors import AI500Error
from ai500.core.events import Event
from ai500.parallel.engines.state import gather_objects
from ai500.records import Task, TrainRecord, run_folder
from ai500.train import provenance
from ai500.train.checkpoint import weights_sha256
from ai500.train.member import Member


def write_record(
    task: Task, member: Member, coordinator: Coordinator | None, *, events: Sequence[Event]
) -> None:
    """Write the record on rank 0; every rank describes its part of `member`, the last model."""
    groups = provenance.optimizer_groups(member)
    described = gather_objects(member.engine.describe(), size=member.engine.mesh.size)
    if coordinator is None:
        return
    best = best_model(coordinator, worker=task.member)
    weights = coordinator.weights_of(best.id)
    images, steps, epochs = _totals(Path(task.folder))
    effective = provenance.effective(
        member, groups=groups, described=described or [], events=events
    )
    # Epochs of a model vary; its own seed follows from the worker's.
    effective["hyperparameters"]["epochs"] = task.hyperparameters.epochs
    record = TrainRecord(
        member=task.member,
        parameters=best.candidate.operations.parameters,
        images=images,
        steps=steps,
        epochs=epochs,
        world_size=member.engine.mesh.size,
        device=str(member.feed.device),
        device_name=provenance.device_name(member.feed.device),
        quality=1.0 - (best.accuracy or 0.0),
        weights_sha256="" if weights is None else weights_sha256(weights),
        operations=coordinator.initial.candidate.operations,
        effective=effective | {"seeds": provenance.seeds(task)},
        versions=provenance.versions(),
    )
    run_folder.write(member.folder.record, record)


def best_model(coordinator: Coordinator, *, worker: int) -> Model:
    """Return the worker's own model with the highest accuracy."""
    validated = [m for m in coordinator.history.models.values() if m.worker == worker and m.epochs]
    if not validated:
        raise AI500Error(
            f"worker {worker} validated no model: its time was up before the first epoch's end.",
            key="automl.minutes",
            remedy="Set a larger automl.minutes.",
        )
    return max(validated, key=lambda model: (model.accuracy or 0.0, model.id))


def _totals(folder: Path) -> tuple[int, int, int]:
    """Count images, steps and epochs of the worker's models; repeated work counts once."""
    counter, known = WorkCounter(), dict[str, Candidate]()
    epochs: set[tuple[str, int]] = set()
    images = steps = 0
    for line in Reader(folder / HISTORY_FILE).new_lines():
        entry = line.entry
        if isinstance(entry, Candidate):
            known[entry.model] = entry
        elif isinstance(entry, Work) and entry.phase == "train":
            new = counter.count(entry, known[entry.model])
            epochs.add((entry.model, entry.epoch))
            steps += new
            images += new * known[entry.model].batch_size
    return images, steps, len(epochs)
