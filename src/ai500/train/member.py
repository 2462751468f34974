"""One rank's view of a member: put together from its task, trained, and recorded.

What really ran (optimizer groups, parameter count, operations of the traced graph) is recorded
here, by the process that ran it, not taken from the configuration.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ai500.core import atomic, events, plugins, schema
from ai500.core.errors import AI500Error
from ai500.core.randomness import Stream, derive
from ai500.data.bootstrap import load_bootstrap, out_of_bag_indices
from ai500.data.open_store import VerifiedSplit, open_store
from ai500.data.store import Samples
from ai500.inventory.node import record_after, record_before
from ai500.meters.recorder import Recorder, recorder_of
from ai500.operations import count
from ai500.parallel import collectives
from ai500.parallel.data_duplicator import Staged
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import Mesh, make_mesh
from ai500.parallel.engines.state import gather_objects, gather_weights
from ai500.records import Operations, Task, TrainRecord, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder
from ai500.train import precision, provenance
from ai500.train.barrier import TrialBarrier
from ai500.train.capture import capture
from ai500.train.checkpoint import weights_sha256
from ai500.train.evaluate import Evaluator
from ai500.train.feed import Feed
from ai500.train.loop import Listener, Member, epochs
from ai500.train.precision.numerics import Numerics
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.protocol import Workload, load_workload

LOCK_SECONDS = 100.0
LONGEST_WAIT = datetime.timedelta(minutes=45)


def run(
    task: Task, *, rank: Rank, device: str | torch.device, threads: int | None, stop: StopRequest
) -> None:
    """Train this rank's part of the member, and on rank 0 leave the record."""
    device = torch.device(device)
    with worker_context(task, rank=rank, device=device, threads=threads) as meters:
        member = member_from_task(task, rank=rank, device=device, stop=stop)
        if task.profile is not None:
            capture(member, task.profile, rank=rank)
            return
        with timed_window(task, rank=rank, meters=meters, emit=member.emit) as member.on_ready:
            for _ in epochs(member):
                pass
        finish(member)


@contextlib.contextmanager
def worker_context(
    task: Task, *, rank: Rank, device: torch.device, threads: int | None
) -> Iterator[Recorder]:
    """This process as a rank of the member, which nobody else trains meanwhile; its meters run."""
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
    if rank.world_size > 1:
        # The other ranks wait here for rank 0 while it waits for the rest of a gang.
        dist.init_process_group(_backends(device), timeout=LONGEST_WAIT)
    meters = recorder_of(task, local_rank=rank.local_rank)
    try:
        held = lock_member(task) if rank.rank == 0 else None
        meters.start()
        yield meters
        del held
    finally:
        meters.close()
        if dist.is_initialized():
            dist.destroy_process_group()


@contextlib.contextmanager
def timed_window(
    task: Task, *, rank: Rank, meters: Recorder, emit: Callable[..., None]
) -> Iterator[Callable[[], None]]:
    """What to call when all is ready for the first batch; nodes described before and after."""
    if rank.local_rank == 0:
        record_before(description(task))
    barrier = TrialBarrier(task, rank, emit)

    def ready() -> None:
        barrier.begin()
        meters.mark()

    yield ready
    meters.mark()
    barrier.end()
    if rank.local_rank == 0:
        record_after(description(task))


def description(task: Task) -> Path:
    """Where this node is described as the member sees it."""
    trial = RunFolder(Path(task.run)).trial(task.trial)
    return trial.node_description(platform.node(), task.member)


def _backends(device: torch.device) -> str:
    """The accelerator's own library, and for ranks to agree on something the CPU's."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


def lock_member(task: Task) -> TextIO:
    """The member's lock: two workers on one checkpoint would spoil each other's.

    A node that lost its power holds it on a network file system until its lease ends.
    """
    file = (Path(task.folder) / ".lock").open("a", encoding="utf-8")
    if not run_folder.lock_within(file, seconds=LOCK_SECONDS):
        raise AI500Error(f"member {task.member} is being trained by another process.")
    return file


def member_from_task(task: Task, *, rank: Rank, device: torch.device, stop: StopRequest) -> Member:
    """Model, engine, optimizer and data of this rank."""
    workload = load_workload(task.workload)
    torch.manual_seed(derive(task.seed, Stream.INITIAL_WEIGHTS, task.member))
    member = build_member(
        task,
        model=workload.model(task.definition).to(device),
        mesh=make_mesh(task.parallel, device=device),
        device=device,
        splits=open_splits(task),
        log=event_log(task, rank=rank, device=device),
        stop=stop,
    )
    if rank.rank == 0:  # now, so that a model that can't be counted does not train in vain
        member.operations = _count_operations(member)
    return member


def open_splits(task: Task) -> Mapping[str, Samples]:
    """The node's copy of the samples, or the shared store's."""
    staged = task.staged or os.environ.get("AI500_STAGED")
    return (Staged.open(Path(staged)) if staged else open_store(Path(task.store))).splits


def build_member(
    task: Task,
    *,
    model: nn.Module,
    mesh: Mesh,
    device: torch.device,
    splits: Mapping[str, Samples],
    log: Listener | None,
    stop: Callable[[], bool],
) -> Member:
    """A whole model, the same on every rank, as this rank trains it."""
    workload = load_workload(task.workload)
    problem_class, hyper = task.definition, task.hyperparameters
    numerics = precision.make(hyper.precision, device=device)
    engine = _engine(task, workload, model, mesh=mesh, numerics=numerics, device=device)
    optimizer = plugins.load("optimizer", hyper.optimizer)(engine.parameters(), hyper)
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


def _engine(
    task: Task,
    workload: Workload,
    model: nn.Module,
    *,
    mesh: Mesh,
    numerics: Numerics,
    device: torch.device,
) -> Engine:
    """The part of the whole model that is this rank's."""
    hyper, parallel = task.hyperparameters, task.parallel

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        return workload.loss(outputs, labels, hyperparameters=hyper)

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
        loss=loss,
        parallel=parallel,
        mesh=mesh,
        plan=workload.parallel_plan(task.definition),
        input_shape=(
            hyper.batch_size * mesh.size // mesh.data.size,
            *task.definition.input_shape,
        ),
        device=device,
        numerics=numerics,
        collective=collective,
        forward=workload.forward,
        accumulation=hyper.accumulation,
        may_capture=not task.process_members,
    )
    made: Engine = plugins.load("engine", "sharded" if parallel.sharded else parallel.mode)(setting)
    return made


def event_log(task: Task, *, rank: Rank, device: torch.device) -> events.EventLog | None:
    """The member's own, begun by rank 0; None on the other ranks."""
    if rank.rank != 0:
        return None
    attempt = int(os.environ.get("AI500_ATTEMPT", "1"))
    path = MemberFolder(Path(task.folder)).events
    log = events.EventLog(path, trial=task.trial, member=task.member, attempt=attempt)
    log.emit("start", pid=os.getpid(), world_size=rank.world_size, device=str(device))
    return log


def finish(member: Member) -> None:
    """Outside the timed window: out-of-bag predictions, then the record that ends the job."""
    # Samples the member never saw are not in its node's copy: they come from the shared store.
    store = open_store(Path(member.task.store))
    shared: Samples = store.splits["train"]
    if member.task.staged or os.environ.get("AI500_STAGED"):
        # Of a store that is staged nobody has verified what is not copied.
        shared = VerifiedSplit(store.splits["train"], store.digests("train"))
    indices = out_of_bag_indices(member.counts, limit=member.problem_class.out_of_bag_samples)
    predictions = member.evaluator.predict(shared, indices)
    weights = gather_weights(member.engine.module, member.engine.layout)
    groups = provenance.optimizer_groups(member)
    described = gather_objects(member.engine.describe(), size=member.engine.mesh.size)
    if predictions is None or weights is None:
        return
    operations = member.operations
    assert operations is not None, "rank 0 counted before it trained"
    atomic.write_array(member.folder.out_of_bag, predictions)
    member.emit("operations", **schema.encode(operations))
    told = list(events.read(member.folder.events))
    effective = provenance.effective(member, groups=groups, described=described or [], told=told)
    record = _record(member, operations, effective, sha256=weights_sha256(weights))
    run_folder.write(member.folder.record, record)


def _record(
    member: Member, operations: Operations, effective: dict[str, Any], *, sha256: str
) -> TrainRecord:
    told = list(events.read(member.folder.events))
    epochs = {event["epoch"]: event for event in told if event["event"] == "epoch"}
    device = member.feed.device
    return TrainRecord(
        member=member.task.member,
        parameters=operations.parameters,
        images=sum(event["images"] for event in epochs.values()),
        steps=sum(event["steps"] for event in epochs.values()),
        epochs=len(epochs),
        world_size=member.engine.mesh.size,
        device=str(device),
        device_name=provenance.device_name(device),
        quality=[event["quality"] for event in told if event["event"] == "quality"][-1],
        weights_sha256=sha256,
        operations=operations,
        effective=effective,
        versions=provenance.versions(),
    )


def _count_operations(member: Member) -> Operations:
    """Operations of the whole model at the batch and image size that ran, whoever had its parts."""
    counted = count(
        member.engine.unsharded(),
        (member.feed.batch_size, *member.problem_class.input_shape),
        convention=member.task.convention,
        loss=member.workload.loss_operator,
    )
    return counted.per_image
