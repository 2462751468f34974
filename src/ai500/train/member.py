"""One rank's part of a member: the objects that train it, built from its task."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ai500.core import events, plugins
from ai500.core.randomness import Stream, derive
from ai500.data.bootstrap import Counts, load_bootstrap
from ai500.data.open_store import open_store
from ai500.data.store import Samples, Store
from ai500.operations import OperationCount, count, example_input
from ai500.parallel import collectives
from ai500.parallel.data_duplicator import Staged
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import Mesh, make_mesh
from ai500.records import Operations, ProblemClass, Task, list_operators
from ai500.records.run_folder import MemberFolder
from ai500.train import checkpoint, own_code, precision
from ai500.train.evaluate import Evaluator
from ai500.train.feed import Feed
from ai500.train.precision.numerics import Numerics
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.protocol import Workload, load_workload


class EventSink(Protocol):
    """Receiver of a member's events: its event log, or the history of a search."""

    def emit(self, event: str, **fields: Any) -> object:
        """Record an event."""


@dataclass
class Member:
    """Model, data and hooks of one rank of a member."""

    task: Task
    folder: MemberFolder
    workload: Workload
    problem_class: ProblemClass
    engine: Engine
    numerics: Numerics
    optimizer: torch.optim.Optimizer
    feed: Feed
    evaluator: Evaluator
    counts: Counts
    """Repeat count of each training sample in the member's bootstrap."""
    events: EventSink | None
    """Sink of rank 0; None on the other ranks."""
    stop_requested: Callable[[], bool]
    operations: Operations | None = None
    """Operations of the unsharded model, counted by rank 0 before training."""
    on_ready: Callable[[], None] = lambda: None
    """Hook called once, immediately before the first batch is read."""
    on_step: Callable[[checkpoint.Position], None] = lambda _: None
    """Hook called after every step."""
    on_epoch: Callable[[int], bool] = lambda _: False
    """Hook called with the number of finished epochs; True ends the training early."""
    validation_file: Path | None = None
    """File for the last validation predictions; None: no ensemble aggregates them."""
    checkpoints: checkpoint.Writer = field(default_factory=checkpoint.Writer)
    cudnn_autotuned: bool = False
    """True once its step was captured: cuDNN then timed its algorithms during warm-up."""

    def emit(self, event: str, **fields: object) -> None:
        """Emit an event of this member; only rank 0 has a sink."""
        if self.events is not None:
            self.events.emit(event, **fields)

    def count(self, convention: str) -> OperationCount:
        """Count the operations of the unsharded model at its batch and input size."""
        return count(
            self.engine.unsharded(),
            example_input(
                (self.feed.batch_size, *self.problem_class.input_shape),
                dtype=self.problem_class.input_dtype,
            ),
            convention=convention,
            # Operations of a loss of the user's own are not known, and not counted.
            loss=None if self.task.own_code.loss else self.workload.loss_operator,
        )


def member_from_task(task: Task, *, rank: Rank, device: torch.device, stop: StopRequest) -> Member:
    """Build a member with fresh weights, and count its operations."""
    workload = load_workload(task.workload)
    # Every rank draws the weights of the whole model from one seed; its engine keeps its part.
    torch.manual_seed(derive(task.seed, Stream.INITIAL_WEIGHTS, task.member))
    member = build_member(
        task,
        model=own_code.build_model(task, workload).to(device),
        mesh=make_mesh(task.parallel, device=device),
        device=device,
        splits=open_data(task).splits,
        log=event_log(task, rank=rank, device=device),
        stop=stop,
    )
    member.validation_file = member.folder.validation
    if rank.rank == 0:  # before training: a model that can't be counted fails at once
        member.operations = member.count(task.convention).as_record()
        warn_of_uncounted(member.operations)
    return member


def warn_of_uncounted(operations: Operations) -> None:
    """Name the operators that FLOPS omit, in the member's log."""
    if operations.uncounted:
        listed = list_operators(operations.uncounted)
        print(f"warning: operators without a counting rule: {listed}", file=sys.stderr)


def staged_folder(task: Task) -> str | None:
    """Return the node's copy of the data, made by the controller or by this job; None: none."""
    return task.staged or os.environ.get("AI500_STAGED")


def open_data(task: Task) -> Staged | Store:
    """Open the node's copy of the samples, or the shared store."""
    staged = staged_folder(task)
    return Staged.open(Path(staged)) if staged else open_store(Path(task.store))


def event_log(task: Task, *, rank: Rank, device: torch.device) -> events.EventLog | None:
    """Start the member's event log on rank 0; return None on the other ranks."""
    if rank.rank != 0:
        return None
    attempt = int(os.environ.get("AI500_ATTEMPT", "1"))
    path = MemberFolder(Path(task.folder)).events
    log = events.EventLog(path, trial=task.trial, member=task.member, attempt=attempt)
    log.emit("start", pid=os.getpid(), world_size=rank.world_size, device=str(device))
    return log


def build_member(
    task: Task,
    *,
    model: nn.Module,
    mesh: Mesh,
    device: torch.device,
    splits: Mapping[str, Samples],
    log: EventSink | None,
    stop: Callable[[], bool],
) -> Member:
    """Build this rank's part of a member around a whole model, the same on every rank."""
    workload = load_workload(task.workload)
    problem_class, hyper = task.definition, task.hyperparameters
    numerics = precision.make(hyper.precision, device=device)
    engine = _build_engine(task, workload, model, mesh=mesh, numerics=numerics, device=device)
    optimizer = own_code.build_optimizer(task, engine.parameters())
    engine.prepare(optimizer)
    data = engine.mesh.data
    feed = Feed(
        samples=splits["train"],
        seed=task.seed,
        member=task.member,
        rank=data.rank,
        world_size=data.size,
        batch_size=hyper.images_per_step * mesh.size // data.size,
        draws_per_image=workload.draws_per_image,
        device=device,
    )
    return Member(
        task=task,
        folder=MemberFolder(Path(task.folder)),
        workload=workload,
        problem_class=problem_class,
        engine=engine,
        numerics=numerics,
        optimizer=optimizer,
        feed=feed,
        evaluator=Evaluator(
            workload=workload,
            problem_class=problem_class,
            engine=engine,
            samples=splits["validation"],
            device=device,
            batch_size=hyper.batch_size,
        ),
        counts=load_bootstrap(Path(task.bootstrap))[1],
        events=log,
        stop_requested=stop,
    )


def _build_engine(
    task: Task,
    workload: Workload,
    model: nn.Module,
    *,
    mesh: Mesh,
    numerics: Numerics,
    device: torch.device,
) -> Engine:
    hyper, parallel = task.hyperparameters, task.parallel

    collective = None
    if mesh.data.size > 1 and not parallel.sharded:
        collective = collectives.make(
            task.communication.mode,
            task.communication.precision,
            group=mesh.data.group,
            local_size=mesh.ranks_per_node,
        )
    setting = Setting(
        module=numerics.model(model),
        loss=own_code.loss_function(task, workload),
        parallel=parallel,
        mesh=mesh,
        plan=workload.parallel_plan(task.definition),
        input_shape=(
            hyper.batch_size * mesh.size // mesh.data.size,
            *task.definition.input_shape,
        ),
        input_dtype=getattr(torch, task.definition.input_dtype),
        device=device,
        numerics=numerics,
        collective=collective,
        forward=workload.forward,
        optimized=None if task.own_code.model else getattr(workload, "optimized", None),
        accumulation=hyper.accumulation,
        # Members that share a process have their whole step captured, not the engine's part.
        # Batches of ragged fields have no fixed shapes.
        may_capture=not (
            task.process_members
            or task.own_code.parts
            or any(field.ragged for field in task.definition.fields)
        ),
    )
    engine: Engine = plugins.load("engine", "sharded" if parallel.sharded else parallel.mode)(
        setting
    )
    return engine
