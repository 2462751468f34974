"""One rank's part of a member: the objects that train it, built from its task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ai500.core import plugins
from ai500.core.randomness import Stream, derive
from ai500.data.bootstrap import Counts, expected_counts
from ai500.data.store import Samples
from ai500.operations import OperationCount, Trace, count_trace, counted_graph, example_input
from ai500.operations.graph_file import graph_bytes, recount
from ai500.operations.rules import CONVENTIONS
from ai500.parallel import collectives
from ai500.parallel.checkpoint_action import CheckpointAction
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import Mesh, make_mesh
from ai500.records import Operations, ProblemClass, Task
from ai500.records.run_folder import MemberFolder
from ai500.train import checkpoint, own_code, precision
from ai500.train.evaluate import Evaluator
from ai500.train.feed import Feed
from ai500.train.loop import StepClock, StepRequest, has_logged, report_damaged
from ai500.train.optimizers import settings_sha256
from ai500.train.position import Position
from ai500.train.precision.numerics import Numerics
from ai500.train.step import eager_step, warm_up_batch
from ai500.train.step_clock import step_clock
from ai500.train.task_files import checkpoint_owner, event_log, open_data
from ai500.train.training_facts import warn_of_uncounted
from ai500.train.warm_up import random_streams_preserved
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.protocol import Workload, load_workload


class EventSink(Protocol):
    """Receiver of a member's events: its event log, or the history of a search."""

    def emit(self, event: str, **fields: Any) -> object:
        """Record an event."""


class DeviceSum:
    """Sum of losses in FP64 on the device."""

    def __init__(self, device: torch.device) -> None:
        self._sum = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, loss: Tensor, *, weight: int) -> None:
        """Add a loss times its weight."""
        self._sum += loss.double() * weight

    def take(self) -> float:
        """Return the sum and set it to zero."""
        value = float(self._sum)
        self._sum.zero_()
        return value


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
    other_conventions: tuple[Operations, ...] = ()
    graph: bytes | None = None
    """File of the graph whose operations were counted; None on other ranks than 0."""
    """The same by the conventions that are not the score's [D20]."""
    on_ready: Callable[[], None] = lambda: None
    """Hook called once, immediately before the first batch is read."""
    on_step: Callable[[Position], None] = lambda _: None
    """Hook called after every step."""
    on_epoch: Callable[[int], bool] = lambda _: False
    """Hook called with the number of finished epochs; True ends the training early."""
    accepts: Callable[[int], bool] = lambda _: True
    """Hook of rank 0: whether to continue from a checkpoint after so many epochs."""
    validation_file: Path | None = None
    """File for the last validation predictions; None: no ensemble aggregates them."""
    checkpoints: checkpoint.Writer = field(init=False)
    cudnn_autotuned: bool = False
    """True once its step was captured: cuDNN then timed its algorithms during warm-up."""

    def __post_init__(self) -> None:
        self.checkpoints = checkpoint.Writer(checkpoint_owner(self.task))

    def emit(self, event: str, **fields: object) -> None:
        """Emit an event of this member; only rank 0 has a sink."""
        if self.events is not None:
            self.events.emit(event, **fields)

    @property
    def checkpoint_file(self) -> Path:
        """File of the member's checkpoint."""
        return self.folder.checkpoint

    @property
    def reports_progress(self) -> bool:
        """True on the rank that writes the file of the live view."""
        return self.events is not None

    def warm_up(self) -> None:
        """Run a step without learning, and a prediction; nothing of it is timed."""
        with random_streams_preserved(self.feed.device):
            batch = warm_up_batch(self)
            self.engine.warm_up(
                *self.workload.train_inputs(self.problem_class, batch.fields, batch.draws)
            )
            self.evaluator.warm_up()

    def restore(self) -> Position | None:
        """Load this rank's part of the checkpoint; return None if there is none yet."""
        return checkpoint.restore(
            self.checkpoint_file,
            self,
            owner=checkpoint_owner(self.task),
            on_damaged=functools.partial(report_damaged, self),
            accepts=self.accepts,
        )

    def begin_epoch(self) -> None:
        """Put the model into training mode."""
        self.engine.module.train()

    def step(self, request: StepRequest) -> Tensor:
        """Run a step eagerly; return the mean loss over its batch."""
        return eager_step(self, request)

    def loss_sum(self) -> DeviceSum:
        """Return an empty sum of losses on the member's device."""
        return DeviceSum(self.feed.device)

    def step_clock(self) -> StepClock:
        """Return a clock of the member's device."""
        return step_clock(self.feed.device)

    def mean_over_replicas(self, value: float) -> float:
        """Average a value over the data-parallel replicas; the same result on every rank."""
        data = self.engine.mesh.data
        mean = torch.tensor(value / data.size, dtype=torch.float64)
        if data.size > 1:
            dist.all_reduce(mean, group=data.group)
        return float(mean)

    def agree(self, action: CheckpointAction) -> CheckpointAction:
        """Return rank 0's action on every rank that has to take part in it."""
        return self.engine.agree(action)

    def optimizer_sha256(self) -> str:
        """Hash the optimizer's settings, without the rate."""
        return settings_sha256(self.optimizer)

    def count(self) -> dict[str, OperationCount]:
        """Count the operations of the unsharded model at its batch size, by every convention."""
        graph = self.counted_graph()
        return {name: count_trace(graph, convention=name) for name in CONVENTIONS}

    def counted_graph(self) -> Trace:
        """Trace the unsharded model at its batch size, with its loss."""
        return counted_graph(
            self.engine.unsharded(),
            example_input(
                (self.feed.batch_size, *self.problem_class.input_shape),
                dtype=self.problem_class.input_dtype,
            ),
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
    member.accepts = functools.partial(has_logged, member)
    if rank.rank == 0:  # before training: a model that can't be counted fails at once
        graph = member.counted_graph()
        member.graph = graph_bytes(graph)
        counts = recount(graph)
        member.operations = counts.pop(task.convention)
        member.other_conventions = tuple(counts.values())
        warn_of_uncounted(member.operations)
    return member


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
        batch_size=hyper.samples_per_step * mesh.size // data.size,
        draws_per_sample=workload.draws_per_sample,
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
        counts=expected_counts(Path(task.bootstrap), sha256=task.bootstrap_sha256),
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
