"""One rank of one worker of a search (AIPerf §IV-C): rounds of one model each until time is up.

Rank 0 decides what is trained (`coordinator.py`), the other ranks follow. The state of a worker is
in the histories: a worker that failed resumes from them, one that starts late reads them.

A worker's record describes its best model, and how it trained: `quality` is the least error of the
model's epochs; `weights_sha256` is that of the weights after its last epoch, which are those on
disk and those that its children inherited.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from ai500.automl.candidates import Prepared
from ai500.automl.coordinator import Coordinator
from ai500.automl.finish_request import FinishRequest
from ai500.automl.history import (
    EXHAUSTED,
    FINISHED,
    HISTORY_FILE,
    Candidate,
    Ended,
    Model,
    Reader,
    State,
    Work,
)
from ai500.automl.memory import OUT_OF_MEMORY, is_out_of_memory
from ai500.automl.morphism import Weights
from ai500.automl.score import WorkCounter
from ai500.automl.training import Limits, ModelLog, model_task, out_of_memory, train
from ai500.automl.tuning import import_optuna
from ai500.core.errors import AI500Error
from ai500.core.events import Event
from ai500.parallel.engines.mesh import make_mesh
from ai500.parallel.engines.state import gather_objects, gather_weights
from ai500.records import Task, TrainRecord, run_folder
from ai500.train import provenance
from ai500.train.checkpoint import weights_sha256
from ai500.train.member import Member, build_member
from ai500.train.member_process import synchronize_ranks, worker_context
from ai500.train.task_files import event_log, open_data
from ai500.train.timed_window import timed_window
from ai500.train.training_facts import seeds
from ai500.train.worker import Interrupted, Rank, StopRequest
from ai500.workloads.models.architecture import Architecture
from ai500.workloads.models.architecture_network import Network

T = TypeVar("T")


def run(
    task: Task, *, rank: Rank, device: str | torch.device, threads: int | None, stop: StopRequest
) -> None:
    """Search until the worker's time is up, and write the record on rank 0."""
    device = torch.device(device)
    import_optuna()  # fail at the start, not in the fifth round
    with worker_context(task, rank=rank, device=device, threads=threads) as meters:
        worker = Worker(task, rank=rank, device=device, stop=stop)
        window = timed_window(
            task, rank=rank, meters=meters, emit=worker.emit, synchronize=synchronize_ranks
        )
        with window as ready:
            worker.search(ready)
        worker.finish()


class Worker:
    """One rank of a worker."""

    def __init__(self, task: Task, *, rank: Rank, device: torch.device, stop: StopRequest) -> None:
        assert task.search is not None
        self._task, self._search = task, task.search
        self._device, self._stop = device, stop
        self._mesh = make_mesh(task.parallel, device=device)
        self._samples = open_data(task).splits
        self._log = event_log(task, rank=rank, device=device)
        self._coordinator = None if self._log is None else Coordinator(task, self._log)
        self._deadline = math.inf
        self._finish = FinishRequest(Path(task.folder).parents[1])
        self._trained: tuple[Member, ModelLog | None] | None = None

    def emit(self, event: str, **fields: object) -> None:
        """Log an event on rank 0."""
        if self._log is not None:
            self._log.emit(event, **fields)

    def search(self, ready: Callable[[], None]) -> None:
        """Train one model after another; all ranks go through the same rounds."""
        coordinator = self._coordinator
        exhausted = False
        try:
            while self._from_rank_0(self._time_left):
                prepared = self._from_rank_0(lambda: self._rank_0_coordinator().next_model())
                if prepared is None:
                    exhausted = True
                    break
                self._round(prepared, ready)
        except Interrupted:
            if coordinator is not None:
                coordinator.close("interrupted")
            raise
        if coordinator is not None:
            finished = FINISHED if self._end() == -math.inf else "time is up"
            coordinator.close(EXHAUSTED if exhausted else finished)
        self.emit("end")

    def finish(self) -> None:
        """Write the record that ends the job, outside the timed window."""
        if self._trained is None:  # an earlier attempt used up the time
            prepared = self._from_rank_0(lambda: self._rank_0_coordinator().initial)
            self._trained = self._member(prepared, on_ready=lambda: None), None
        member, log = self._trained
        write_record(
            self._task, member, self._coordinator, events=[] if log is None else log.events
        )

    def _rank_0_coordinator(self) -> Coordinator:
        assert self._coordinator is not None
        return self._coordinator

    def _time_left(self) -> bool:
        coordinator = self._rank_0_coordinator()
        return coordinator.seconds_left > 0 and time.monotonic() < self._end()

    def _end(self) -> float:
        """Return the search's end on the monotonic clock: the past once `finish` requested it.

        A worker without a validated model has nothing to be scored yet, and trains one first.
        """
        coordinator = self._coordinator
        if coordinator is None or not self._finish.seen():
            return self._deadline
        return -math.inf if coordinator.validated else self._deadline

    def _round(self, prepared: Prepared, ready: Callable[[], None]) -> None:
        """Train one model, from its candidate to its last line in the history."""
        log = self._model_log(prepared)

        def on_ready() -> None:
            if math.isinf(self._deadline):
                ready()
                self._begin()
            if log is not None:
                log.begin()

        self._trained = None  # free its memory
        member = self._build_if_it_fits(prepared, log=log, on_ready=on_ready)
        if member is None:
            self._lost(prepared, f"{OUT_OF_MEMORY} while it was built")
            return
        self._trained = member, log
        if self._coordinator is not None:
            self._coordinator.prepare_next()
        limits = Limits(self._search, deadline=self._end, stop_requested=self._stop)
        state, reason = train(member, log, limits)
        if state == "lost":
            self._lost(prepared, reason)
        else:
            self._finish_model(prepared, member, log, state=state, reason=reason)

    def _build_if_it_fits(
        self, prepared: Prepared, *, log: ModelLog | None, on_ready: Callable[[], None]
    ) -> Member | None:
        """Build a model; return None if memory is too small, with the partial model freed."""
        try:
            return self._member(prepared, log=log, on_ready=on_ready)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            out_of_memory(
                prepared.candidate.batch_size, rank=self._mesh.rank, ranks=self._mesh.size
            )
            return None

    def _lost(self, prepared: Prepared, reason: str) -> None:
        if self._coordinator is not None:
            self.emit("model_lost", model=prepared.candidate.model, reason=reason)
            self._coordinator.finish_model(
                prepared.candidate, Ended(prepared.candidate.model, "lost", None, reason), {}
            )

    def _finish_model(
        self, prepared: Prepared, member: Member, log: ModelLog | None, *, state: State, reason: str
    ) -> None:
        weights = gather_weights(member.engine.module, member.engine.layout)
        described = gather_objects(member.engine.describe(), size=member.engine.mesh.size)
        if self._coordinator is None or weights is None or log is None:
            return
        candidate = prepared.candidate
        sent = provenance.total_traffic(described or [{}]).get("communication", {}).get("traffic")
        counted = {} if sent is None else {
            "counted_steps": log.steps,
            "bytes_inside_node": int(sent["inside_node"]),
            "bytes_between_nodes": int(sent["between_nodes"]),
        }  # fmt: skip
        ended = Ended(candidate.model, state, None, reason, **counted)
        self._coordinator.finish_model(candidate, ended, weights)

    def _begin(self) -> None:
        """Start the worker's clock at the first batch of this attempt."""
        if self._coordinator is not None:
            self._coordinator.begin()
            self._deadline = time.monotonic() + self._coordinator.seconds_left
        else:
            self._deadline = math.nextafter(math.inf, 0)  # rank 0 decides when time is up

    def _member(
        self,
        prepared: Prepared,
        *,
        log: ModelLog | None = None,
        on_ready: Callable[[], None],
    ) -> Member:
        candidate = prepared.candidate
        task = model_task(self._task, candidate, batch_size=prepared.batch_size, seed=prepared.seed)
        member = build_member(
            task,
            model=network(Architecture(candidate.architecture), prepared.weights).to(self._device),
            mesh=self._mesh,
            device=self._device,
            splits=self._samples,
            log=log,
            stop=self._stop,
        )
        member.on_ready = on_ready
        member.folder.checkpoint = Path(task.folder) / f"checkpoint-{candidate.model}.pt"
        return member

    def _model_log(self, prepared: Prepared) -> ModelLog | None:
        coordinator = self._coordinator
        if coordinator is None:
            return None
        epochs = coordinator.history.models[prepared.candidate.model].epochs
        return ModelLog(
            candidate=prepared.candidate,
            accuracies={number: epoch.accuracy for number, epoch in epochs.items()},
            max_epochs=self._task.hyperparameters.epochs,
            write=coordinator.write,
            on_validated=coordinator.prepare_next,
            log=coordinator.log,
            device=self._device,
        )

    def _from_rank_0(self, decide: Callable[[], T]) -> T:
        """Return rank 0's decision on every rank, without weights: DDP broadcasts those."""
        if self._mesh.size == 1:
            return decide()
        decision = decide() if self._coordinator is not None else None
        message = [_without_weights(decision)]
        dist.broadcast_object_list(message, src=0)
        return decision if self._coordinator is not None else message[0]  # type: ignore[return-value]


def _without_weights(decision: object) -> object:
    if isinstance(decision, Prepared):
        return Prepared(decision.candidate, decision.batch_size, (), decision.seed, None)
    return decision


def network(architecture: Architecture, weights: Weights | None) -> Network:
    """Build the network with copies of the weights, drawing no random number.

    Without weights, a checkpoint or rank 0 provides them. Copies, because a child shares tensors
    with its parent, which the other thread may be writing.
    """
    if weights is None:
        built = Network(architecture)
    else:
        with torch.device("meta"):
            built = Network(architecture)
        copies = {name: value.clone() for name, value in weights.items()}
        built.load_state_dict(copies, assign=True)
    return built.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


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
    samples, steps, epochs = _totals(Path(task.folder))
    effective = provenance.effective(
        member, groups=groups, described=described or [], events=events
    )
    # Epochs of a model vary; its own seed follows from the worker's.
    effective["hyperparameters"]["epochs"] = task.hyperparameters.epochs
    record = TrainRecord(
        member=task.member,
        parameters=best.candidate.operations.parameters,
        samples=samples,
        steps=steps,
        epochs=epochs,
        world_size=member.engine.mesh.size,
        device=str(member.feed.device),
        device_name=provenance.device_name(member.feed.device),
        quality=1.0 - (best.accuracy or 0.0),
        weights_sha256="" if weights is None else weights_sha256(weights),
        operations=coordinator.initial.candidate.operations,
        effective=effective | {"seeds": seeds(task)},
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
            remedy="Start a new run with a larger automl.minutes: this one's time is used up.",
        )
    return max(validated, key=lambda model: (model.accuracy or 0.0, model.id))


def _totals(folder: Path) -> tuple[int, int, int]:
    """Count samples, steps and epochs of the worker's models; repeated work counts once."""
    counter, known = WorkCounter(), dict[str, Candidate]()
    epochs: set[tuple[str, int]] = set()
    samples = steps = 0
    for line in Reader(folder / HISTORY_FILE).new_lines():
        entry = line.entry
        if isinstance(entry, Candidate):
            known[entry.model] = entry
        elif isinstance(entry, Work) and entry.phase == "train":
            new = counter.count(entry, known[entry.model])
            epochs.add((entry.model, entry.epoch))
            steps += new
            samples += new * known[entry.model].batch_size
    return samples, steps, len(epochs)
