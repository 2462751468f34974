"""Histories of a search from known numbers, without training anything."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ai500.automl import history
from ai500.automl.counting import count_architecture
from ai500.automl.history import Candidate, Ended, Entry, Epoch, History, Presence, Work
from ai500.automl.score import search_result
from ai500.bagging.data_sampler import SAMPLERS, bootstrap_header
from ai500.core import events, schema
from ai500.core.randomness import Stream, derive
from ai500.pipeline import scoring
from ai500.records import (
    BootstrapRecord,
    InitialNetwork,
    JobRecord,
    Operations,
    Placement,
    Plan,
    ProblemClass,
    TrainRecord,
    TrialRecord,
    run_folder,
)
from ai500.records.run_folder import RunFolder
from ai500.workloads.models.architecture import (
    Architecture,
    Layer,
    initial_architecture,
)
from ai500.workloads.protocol import load_workload
from tests.support.synthetic_run import (
    Shape,
    describe_node,
    make_plan,
    make_system,
    what_ran,
)

INPUT = (3, 24, 24)
START = initial_architecture(InitialNetwork("basic", (1, 1), 8), classes=10)
STEPS, BATCH, VALIDATION = 10, 32, 100
BEGAN = 1_790_000_000.0
BOOT = "00000000-0000-0000-0000-000000000000"


def candidate(
    model: str, parent: str | None = None, *, architecture: Architecture = START, **changes: object
) -> Candidate:
    """A model as a worker takes it up."""
    made = Candidate(
        model=model,
        parent=parent,
        round=1,
        digest=architecture.digest,
        architecture=architecture.layers,
        batch_size=BATCH,
        operations=count_architecture(architecture, input_shape=INPUT, convention="aiperf"),
        steps_per_epoch=STEPS,
        validation_samples=VALIDATION,
        epochs=2,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def train_operations(steps: int = STEPS) -> int:
    """Count the operations of training steps of the initial model."""
    count = count_architecture(START, input_shape=INPUT, convention="aiperf")
    return steps * (
        BATCH * (count.forward_per_sample + count.backward_per_sample) + count.update_per_step
    )


def validation_operations(images: int = VALIDATION) -> int:
    """Count the operations of validating images by the initial model."""
    count = count_architecture(START, input_shape=INPUT, convention="aiperf")
    return images * count.forward_per_sample


def epoch(
    made: Candidate, number: int, *, at: float, accuracy: float, seconds: float = 10.0
) -> list[tuple[float, Entry]]:
    """An epoch of training in two chunks and its validation, of which it takes a tenth."""
    name, steps, part = made.model, made.steps_per_epoch, 0.45 * seconds
    half, end = steps // 2, at + seconds
    return [
        (at + part, Work(name, "train", number, 0, half, part)),
        (at + 2 * part, Work(name, "train", number, half, steps - half, part)),
        (end, Work(name, "validate", number, 0, made.validation_samples, seconds - 2 * part)),
        (end, Epoch(name, number, 2.0 / number, accuracy, min(1.0, accuracy + 0.01))),
    ]


def trained(
    made: Candidate, *, at: float, accuracies: Sequence[float], seconds: float = 10.0
) -> list[tuple[float, Entry]]:
    """A model from its first batch to its end."""
    lines: list[tuple[float, Entry]] = [(at, made)]
    for number, accuracy in enumerate(accuracies, start=1):
        begin = at + (number - 1) * seconds
        lines += epoch(made, number, at=begin, accuracy=accuracy, seconds=seconds)
    done = at + len(accuracies) * seconds
    return [*lines, (done, Ended(made.model, "trained", f"weights/{made.model}.pt"))]


def write_history(
    members: Path,
    worker: int,
    lines: Sequence[tuple[float, Entry]],
    *,
    attempt: int = 1,
    host: str = "host",
    wall_offset: float = 0.0,
) -> Path:
    """A worker's file as `Writer` writes it, at times of our own."""
    path = members / f"{worker:03d}" / history.HISTORY_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    before = sum(1 for _ in events.read(path))
    events.append(
        path,
        [
            {
                "event": history.NAMES[type(entry)],
                "wall": BEGAN + at + wall_offset,
                "monotonic": 100.0 + at,
                "host": host,
                "boot": BOOT,
                "sequence": before + number,
                "worker": worker,
                "attempt": attempt,
                "entry": schema.encode(entry),
            }
            for number, (at, entry) in enumerate(lines, start=1)
        ],
    )
    return path


@dataclass(frozen=True)
class SearchShape:
    """Kind of search to write: of a registered class, on a machine of its own."""

    name: str = "smoke"
    workers: int = 2
    trials: int = 1
    minutes: float = 2.0
    epoch_seconds: float = 2.0
    gap_seconds: float = 0.05
    """Between two trainings."""
    killed: frozenset[int] = frozenset()
    """Workers that die in their second round and go on in a second attempt."""
    spoiled: bool = False
    """The first worker's history has a line that cannot be read."""

    @property
    def trial_seconds(self) -> float:
        """From the start of a trial to that of the next: longer than its last model takes."""
        return max(1000.0, 150 * self.minutes)


def smoke() -> ProblemClass:
    """The class as it is registered."""
    return search_class("smoke")


def search_class(name: str) -> ProblemClass:
    """A class as it is registered."""
    return load_workload("automl").problem_classes[name]


def write_synthetic_search(path: Path, shape: SearchShape) -> RunFolder:
    """The folder as `ai500 run` leaves it, scored, without the report."""
    with RunFolder.creating(path, version="0.0"):
        run = RunFolder(path)
    definition = search_class(shape.name)
    like = Shape(
        workload="automl",
        members=shape.workers,
        slots=shape.workers,
        trials=shape.trials,
        epochs=definition.reference.epochs,
        batch_size=definition.reference.batch_size,
        definition=definition,
    )
    plan = dataclasses.replace(make_plan(like), sampler="whole", search=definition.search)
    run_folder.write(run.plan, plan)
    run_folder.write(run.system, make_system(like))
    run.config.write_text(
        f'workload = "automl"\nproblem_class = "{shape.name}"\n', encoding="utf-8"
    )
    for trial in range(1, shape.trials + 1):
        _write_trial(run, shape, like, plan, trial)
    scoring.score_run(run)
    return run


def _write_trial(run: RunFolder, shape: SearchShape, like: Shape, plan: Plan, trial: int) -> None:
    folder, seed = run.trial(trial), derive(plan.seed, Stream.TRIAL, trial)
    zero = shape.trial_seconds * trial
    random = Random(trial)
    grown: dict[str, Architecture] = {}
    recorded = [_event("trial_start", zero, trial=trial, seed=seed)]
    for worker in range(shape.workers):
        start = zero + 0.01 * worker
        lines = _rounds(shape, plan, worker, start, grown, random)
        cut = len(lines)
        if worker in shape.killed:
            second = f"{worker:03d}-0002"
            cut = 3 + next(i for i, (_, e) in enumerate(lines) if getattr(e, "model", "") == second)
        write_history(folder.members, worker, [(start, Presence("begin")), *lines[:cut]])
        later = [(at + 5.0, entry) for at, entry in lines[cut - 2 :]] if cut < len(lines) else []
        if later:
            write_history(folder.members, worker, later, attempt=2)
        end = (later or lines)[-1][0]
        about = {"trial": trial, "member": worker, "attempt": 1}
        recorded.append(_event("job_submitted", start - 1, job=f"j{worker}", **about))
        recorded.append(_event("first_batch", start, **about))
        if later:
            about["attempt"] = 2
            recorded.append(_event("resumed", later[0][0], **about))
        recorded.append(_event("end", end, **about))
        run_folder.write(
            folder.node_description("host", worker),
            describe_node("host", before=BEGAN + start, after=BEGAN + end, cores=like.cores),
        )
        run_folder.write(folder.member(worker).record, _record(plan, like, worker, trial, lines))
    if shape.spoiled:
        with folder.member(0).history.open("a", encoding="utf-8") as file:
            file.write('{"event": "epoch", "wall"\n')
    history = History(folder.members)
    result = search_result(history, finished=range(shape.workers), ensemble_size=shape.workers)
    recorded.append(
        _event(
            "aggregate", zero + 0.9 * shape.trial_seconds, trial=trial, result=schema.encode(result)
        )
    )
    events.append(run.events, sorted(recorded, key=lambda event: float(event["wall"])))
    run_folder.write(folder.ensemble, result)
    store = plan.definition.store_sha256 or "0" * 64
    run_folder.write(folder.trial, TrialRecord(trial, seed, store))
    samples = plan.definition.train_samples
    drawn = bootstrap_header(SAMPLERS["whole"], samples, seed=seed, member=0)
    run_folder.write(
        folder.bootstraps,
        [
            BootstrapRecord(m, "", samples, drawn.drawn, drawn.distinct, drawn.sha256)
            for m in range(shape.workers)
        ],
    )
    run_folder.write(
        folder.placement,
        [Placement(n.name, "/store", store, None, 0, 0, 0.0) for n in plan.nodes],
    )
    run_folder.write(folder.jobs, [JobRecord(m, f"j{m}", 1, "done") for m in range(shape.workers)])


def _event(kind: str, at: float, **fields: Any) -> events.Event:
    return {
        "event": kind, "wall": BEGAN + at, "monotonic": 100.0 + at, "host": "host", "boot": BOOT,
        "sequence": 0, **fields,
    }  # fmt: skip


def deeper(architecture: Architecture, after: int, *, kernel: int) -> Architecture:
    """A block behind a ReLU, as morphism adds it; layers alone."""
    number = architecture.next_number
    consumers = [layer.number for layer in architecture.consumers(after)]
    block = (
        Layer(number, "convolution", (after,), architecture.channels()[after], kernel),
        Layer(number + 1, "batch_norm", (number,)),
        Layer(number + 2, "relu", (number + 1,)),
    )
    return architecture.inserted(block, after=after).rewired(after, number + 2, consumers=consumers)


def _rounds(
    shape: SearchShape,
    plan: Plan,
    worker: int,
    start: float,
    grown: dict[str, Architecture],
    random: Random,
) -> list[tuple[float, Entry]]:
    """A worker's rounds until its time is up; children of models that anybody trained."""
    definition, search = plan.definition, plan.search
    assert search is not None
    at, lines, number = start, list[tuple[float, Entry]](), 0
    initial = initial_architecture(
        search.initial, classes=definition.classes, input_channels=definition.input_shape[0]
    )

    def counted(architecture: Architecture) -> Operations:
        return count_architecture(
            architecture, input_shape=definition.input_shape, convention="aiperf"
        )

    cap = search.max_growth * counted(initial).forward_per_sample
    while at - start <= 60 * shape.minutes:
        number += 1
        name, parent, kernel = f"{worker:03d}-{number:04d}", None, None
        made, operations = initial, counted(initial)
        parents = [earlier for earlier in grown if earlier < name or random.random() < 0.3]
        while number > 1 and (parent is None or operations.forward_per_sample > cap):
            parent, kernel = random.choice(parents[-6:]), random.choice(search.kernel_sizes)
            places = [layer.number for layer in grown[parent].layers if layer.kind == "relu"]
            made = deeper(grown[parent], random.choice(places), kernel=kernel)
            operations = counted(made)
            if operations.forward_per_sample > cap and len(parents) > 1:
                parents.remove(parent)  # it is near the cap; the start never is
        grown[name] = made
        tuned = search.tunes(number)
        batch = random.choice(search.batch_sizes) if tuned else definition.reference.batch_size
        epochs = search.epochs_of(number, epochs=definition.reference.epochs)
        taken = candidate(
            name,
            parent,
            architecture=made,
            round=number,
            moves=() if parent is None else (f"a {kernel}×{kernel} block",),
            operations=operations,
            batch_size=batch,
            kernel=kernel,
            tuned=tuned,
            steps_per_epoch=definition.train_samples // batch,
            validation_samples=definition.validation_samples,
            epochs=epochs,
        )
        best = 0.5 + 0.35 * (1 - math.exp(-(number + worker) / 6)) + 0.05 * random.random()
        curve = [best * (1 - math.exp(-1.2 * n)) for n in range(1, epochs + 1)]
        lines += trained(taken, at=at, accuracies=curve, seconds=shape.epoch_seconds)
        at += epochs * shape.epoch_seconds + shape.gap_seconds
    return lines


def _record(
    plan: Plan, like: Shape, worker: int, trial: int, lines: Sequence[tuple[float, Entry]]
) -> TrainRecord:
    """A worker's own word on what it did."""
    made = {entry.model: entry for _, entry in lines if isinstance(entry, Candidate)}
    work = [e for _, e in lines if isinstance(e, Work) and e.phase == "train"]
    judged = [e for _, e in lines if isinstance(e, Epoch)]
    best = max(judged, key=lambda model: model.accuracy)
    return TrainRecord(
        member=worker,
        parameters=made[best.model].operations.parameters,
        samples=sum(chunk.count * made[chunk.model].batch_size for chunk in work),
        steps=sum(chunk.count for chunk in work),
        epochs=len(judged),
        world_size=1,
        device="cpu",
        device_name="x86_64",
        quality=1 - best.accuracy,
        weights_sha256=f"{1000 * trial + worker:064x}",
        operations=made[best.model].operations,
        effective=what_ran(plan, like, worker, trial),
        versions={"ai500": "0.0", "source": "0" * 64, "torch": "2.0"},
    )
