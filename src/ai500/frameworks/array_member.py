"""A member in a framework other than PyTorch: its process, its training, its record.

The loop is `train/loop.py`, the same as the reference's; the model is a framework's `Backend`. This
file and what it imports need NumPy and the framework, nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ai500.core import __version__, atomic, events, schema
from ai500.core.processes import usable_cores
from ai500.core.randomness import Stream, derive
from ai500.core.source import source_sha256
from ai500.data.bootstrap import Counts, expected_counts, out_of_bag_indices
from ai500.data.open_store import VerifiedSplit, open_store
from ai500.data.store import Samples
from ai500.frameworks import array_checkpoint
from ai500.frameworks.array_feed import ArrayEvaluator, ArrayFeed
from ai500.frameworks.backend import Backend, Description, Setting, adam_epsilon
from ai500.frameworks.class_models import initial_state, trained_parameters
from ai500.meters.recorder import recorder_of
from ai500.operations.graph import IDENTITY_BATCH, graph_sha256, with_loss
from ai500.operations.graph_file import graph_bytes, recount
from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.records import Operations, Task, checkpoint_file, run_folder
from ai500.records.run_folder import MemberFolder
from ai500.train.loop import StepRequest, has_logged, report_damaged, train
from ai500.train.position import Position
from ai500.train.task_files import event_log, open_data, staged_folder
from ai500.train.timed_window import lock_member, timed_window
from ai500.train.training_facts import training_facts, training_record, warn_of_uncounted
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.protocol import Workload, load_workload


class HostSum:
    """Sum of losses: kept on the device until it is read, so that steps do not wait."""

    def __init__(self) -> None:
        self._losses: list[tuple[Any, int]] = []

    def add(self, loss: Any, *, weight: int) -> None:
        """Add a loss times its weight."""
        self._losses.append((loss, weight))

    def take(self) -> float:
        """Return the sum and set it to zero."""
        losses, self._losses = self._losses, []
        return sum(float(loss) * weight for loss, weight in losses)


@dataclass
class ArrayMember:
    """One rank of a member whose model a `Backend` holds; a `Trainable` of the loop."""

    task: Task
    folder: MemberFolder
    workload: Workload
    backend: Backend
    feed: ArrayFeed
    evaluator: ArrayEvaluator
    counts: Counts
    events: events.EventLog | None
    """Log of rank 0; None on the other ranks."""
    checkpoints: array_checkpoint.ArrayWriter
    stop_requested: Callable[[], bool]
    operations: Operations | None = None
    """Operations of the framework's graph, counted by rank 0 before training."""
    other_conventions: tuple[Operations, ...] = ()
    """The same by the conventions that are not the score's [D20]."""
    graph: bytes | None = None
    """File of the graph whose operations were counted; None on other ranks than 0."""
    on_ready: Callable[[], None] = lambda: None
    on_step: Callable[[Position], None] = lambda _: None
    on_epoch: Callable[[int], bool] = lambda _: False

    @property
    def validation_file(self) -> Path:
        """File for the last validation predictions."""
        return self.folder.validation

    @property
    def checkpoint_file(self) -> Path:
        """File of the member's checkpoint."""
        return self.folder.array_checkpoint

    @property
    def reports_progress(self) -> bool:
        """True on the rank that writes the file of the live view."""
        return self.events is not None

    def emit(self, event: str, **fields: object) -> None:
        """Emit an event of this member; only rank 0 has a log."""
        if self.events is not None:
            self.events.emit(event, **fields)

    def warm_up(self) -> None:
        """Compile and run a step and an evaluation; then put the initial state back."""
        initial = self.backend.state()
        batch = self.feed.warm_up_batch()
        float(self.backend.train_step(batch, learning_rate=0.0))
        self.evaluator.warm_up()
        self.backend.load_state(initial)

    def restore(self) -> Position | None:
        """Load the newest good checkpoint on every rank; return None if there is none."""
        return array_checkpoint.restore(
            self.checkpoint_file,
            self.backend,
            owner=array_checkpoint.owner_of(self.task),
            rank=self.feed.rank,
            world_size=self.feed.world_size,
            on_damaged=functools.partial(report_damaged, self),
            accepts=functools.partial(has_logged, self),
        )

    def begin_epoch(self) -> None:
        """Do nothing: training and prediction are two functions of a backend."""

    def step(self, request: StepRequest) -> Any:
        """Train on a batch; return the mean loss over this rank's share."""
        return self.backend.train_step(request.batch, learning_rate=request.learning_rate)

    def loss_sum(self) -> HostSum:
        """Return an empty sum of losses."""
        return HostSum()

    def step_clock(self) -> None:
        """Return None: calls may return before the step ends on the device."""

    def mean_over_replicas(self, value: float) -> float:
        """Average a value over the ranks; the same result on every rank."""
        return self.backend.mean(value) if self.feed.world_size > 1 else value

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action on every rank: the others would wait for a rank that stopped."""
        if self.feed.world_size == 1:
            return action
        return CheckpointAction(self.backend.broadcast(int(action)))

    def optimizer_sha256(self) -> str:
        """Hash the optimizer's group, without the rate."""
        return hashlib.sha256(json.dumps(self.groups(), sort_keys=True).encode()).hexdigest()

    def groups(self) -> list[dict[str, Any]]:
        """Describe the optimizer's only group: every parameter, those of norms included."""
        hyper, trained = self.task.hyperparameters, trained_parameters(self.task)
        names = sorted(parameter.name for parameter in trained)
        if hyper.optimizer == "adamw":
            settings: dict[str, Any] = {"betas": hyper.betas, "eps": adam_epsilon(hyper)}
        else:
            settings = {"momentum": hyper.momentum}
        return [
            {
                **settings,
                "weight_decay": hyper.weight_decay,
                "parameters": len(trained),
                "elements": sum(parameter.size for parameter in trained),
                "kinds": dict(sorted(Counter(p.kind for p in trained).items())),
                "names_sha256": hashlib.sha256("\n".join(names).encode()).hexdigest(),
            }
        ]

    def count(self) -> dict[str, Operations]:
        """Count the framework's graph at the member's batch size, by every convention [D20]."""
        trace, loss = self.backend.trace(batch=self.feed.batch_size), self.workload.loss_operator
        counted = with_loss(trace, loss) if loss else trace
        self.graph = graph_bytes(counted)
        return recount(counted)

    def model_identity(self) -> dict[str, Any]:
        """Identify the model by the framework's graph."""
        trace = self.backend.trace(batch=IDENTITY_BATCH)
        return {
            "graph_sha256": graph_sha256(trace),
            "parameters": trace.parameters,
            "operators": len(trace.ops),
        }


def run(task: Task, *, rank: Rank, device: str, threads: int | None, stop: StopRequest) -> None:
    """Train this rank's part of the member; rank 0 writes the record."""
    meters = recorder_of(task, local_rank=rank.local_rank)
    backend: Backend | None = None
    try:
        lock = lock_member(task) if rank.rank == 0 else None
        meters.start()
        backend = make_backend(task, rank=rank, device=device, threads=threads)
        member = build_member(task, backend, rank=rank, device=device, stop=stop)
        if rank.rank == 0:  # before training: a graph that can't be counted fails at once
            counts = member.count()
            member.operations = counts.pop(task.convention)
            member.other_conventions = tuple(counts.values())
            warn_of_uncounted(member.operations)

        def synchronize() -> None:
            member.backend.broadcast(0)

        window = timed_window(
            task,
            rank=rank,
            meters=meters,
            emit=member.emit,
            synchronize=synchronize,
            stopped=stop,
        )
        with window as member.on_ready:
            train(member)
        finish(member, rank=rank, device=device, threads=threads)
        del lock
    finally:
        meters.close()
        if backend is not None:
            backend.close()


def make_backend(task: Task, *, rank: Rank, device: str, threads: int | None) -> Backend:
    """Make the backend of the task's framework, with the reference's initial weights."""
    module = import_module(f"ai500.frameworks.{task.framework.kind}_backend")
    seed = derive(task.seed, Stream.INITIAL_WEIGHTS, task.member)
    backend: Backend = module.make_backend(
        Setting(
            problem_class=task.definition,
            hyperparameters=task.hyperparameters,
            weights=initial_state(task, seed=seed),
            rank=rank,
            device=device,
            threads=threads,
            workload=task.workload,
        )
    )
    return backend


def build_member(
    task: Task, backend: Backend, *, rank: Rank, device: str, stop: Callable[[], bool]
) -> ArrayMember:
    """Build this rank's part of a member around a backend."""
    workload, hyper = load_workload(task.workload), task.hyperparameters
    splits = open_data(task).splits
    return ArrayMember(
        task=task,
        folder=MemberFolder(Path(task.folder)),
        workload=workload,
        backend=backend,
        feed=ArrayFeed(
            samples=splits["train"],
            backend=backend,
            seed=task.seed,
            member=task.member,
            rank=rank.rank,
            world_size=rank.world_size,
            batch_size=hyper.samples_per_step,
            draws_per_sample=workload.draws_per_sample,
            reads_ahead=device != "cpu",
        ),
        evaluator=ArrayEvaluator(
            problem_class=task.definition,
            backend=backend,
            samples=splits["validation"],
            rank=rank.rank,
            world_size=rank.world_size,
            batch_size=hyper.batch_size,
        ),
        counts=expected_counts(Path(task.bootstrap), sha256=task.bootstrap_sha256),
        events=event_log(task, rank=rank, device=device),
        checkpoints=array_checkpoint.ArrayWriter(
            array_checkpoint.owner_of(task), writes=rank.rank == 0
        ),
        stop_requested=stop,
    )


def finish(member: ArrayMember, *, rank: Rank, device: str, threads: int | None) -> None:
    """Predict out-of-bag samples, then write the record that ends the job. Not timed."""
    task = member.task
    # Samples the member never drew are not in its node's copy: they come from the shared store.
    store = open_store(Path(task.store))
    shared: Samples = store.splits["train"]
    if staged_folder(task):
        # Staging verified only what it copied.
        shared = VerifiedSplit(store.splits["train"], store.digests("train"))
    indices = out_of_bag_indices(member.counts, limit=task.definition.out_of_bag_samples)
    predictions = member.evaluator.predict(shared, indices)
    if predictions is None:
        return
    operations = member.operations
    assert operations is not None, "rank 0 counted before it trained"
    atomic.write_array(member.folder.out_of_bag, predictions)
    member.emit("operations", **schema.encode(operations))
    logged = list(events.read(member.folder.events))
    described = member.backend.describe()
    record = training_record(
        task,
        operations=operations,
        effective=effective(member, described, logged, rank=rank, threads=threads),
        events=logged,
        device=device,
        device_name=described.device_name,
        weights_sha256=array_checkpoint.weights_sha256(member.backend.state()),
        versions=_versions() | described.versions,
        other_conventions=member.other_conventions,
        graph=member.graph,
    )
    run_folder.write(member.folder.record, record)
    # Two generations are kept while the member trains; its weights stay in the last one.
    checkpoint_file.previous(member.checkpoint_file).unlink(missing_ok=True)


def effective(
    member: ArrayMember,
    described: Description,
    logged: list[events.Event],
    *,
    rank: Rank,
    threads: int | None,
) -> dict[str, Any]:
    """Return the effective settings as plain data, under the keys of the reference's record."""
    task, hyper = member.task, member.task.hyperparameters
    facts = training_facts(
        task,
        groups=member.groups(),
        events=logged,
        batch_size=hyper.batch_size,
        global_batch_size=member.feed.global_batch_size,
    )
    communication = described.communication
    parallel: dict[str, Any] = {
        "mode": task.parallel.mode,
        "sharded": False,
        "data_degree": rank.world_size,
        "pipeline_degree": 1,
        "tensor_degree": 1,
        "batch_norm": "replica",
    }
    if communication["mode"] is not None:
        parallel["communication"] = {key: communication[key] for key in ("mode", "precision")}
    return facts | {
        "optimizer": described.optimizer_class.rpartition(".")[2],
        "optimizer_class": described.optimizer_class,
        "dtype": described.numerics["parameter_dtypes"][0],
        "threads": threads or len(usable_cores()),
        "parallel": parallel,
        "numerics": described.numerics,
        "model": member.model_identity(),
        "framework": described.framework,
        "communication": communication,
        "own_code": {},
    }


def _versions() -> dict[str, str]:
    return {
        "ai500": __version__,
        "source": source_sha256(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
