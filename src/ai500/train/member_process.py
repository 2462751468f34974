"""A member that has its processes for itself: context, timed window, training, record.

What ran (optimizer groups, parameters, operations of the traced graph) is recorded by the process
that ran it, not taken from the configuration.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from ai500.core import atomic, events, schema
from ai500.data.bootstrap import out_of_bag_indices
from ai500.data.open_store import VerifiedSplit, open_store
from ai500.data.store import Samples
from ai500.meters.recorder import Recorder, recorder_of
from ai500.parallel.engines.state import gather_objects, gather_weights
from ai500.records import Task, checkpoint_file, run_folder
from ai500.train import provenance
from ai500.train.checkpoint import weights_sha256
from ai500.train.loop import train
from ai500.train.member import Member, member_from_task
from ai500.train.profiler import profile_steps
from ai500.train.task_files import staged_folder
from ai500.train.timed_window import lock_member, timed_window
from ai500.train.training_facts import training_record
from ai500.train.worker import Rank, StopRequest

# Ranks other than 0 wait inside a collective while rank 0 waits at the barrier of a gang.
COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=45)


def run(
    task: Task, *, rank: Rank, device: str | torch.device, threads: int | None, stop: StopRequest
) -> None:
    """Train this rank's part of the member; rank 0 writes the record."""
    device = torch.device(device)
    with worker_context(task, rank=rank, device=device, threads=threads) as meters:
        member = member_from_task(task, rank=rank, device=device, stop=stop)
        if task.profile is not None:
            profile_steps(member, task.profile, rank=rank)
            return
        window = timed_window(
            task,
            rank=rank,
            meters=meters,
            emit=member.emit,
            synchronize=synchronize_ranks,
            stopped=stop,
        )
        with window as member.on_ready:
            train(member)
        finish(member)


@contextlib.contextmanager
def worker_context(
    task: Task, *, rank: Rank, device: torch.device, threads: int | None
) -> Iterator[Recorder]:
    """Set up this process as a rank: threads, device, process group, meters, the member's lock."""
    if threads is not None:
        torch.set_num_threads(threads)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
    if rank.world_size > 1:
        dist.init_process_group(_backends(device), timeout=COLLECTIVE_TIMEOUT)
    meters = recorder_of(task, local_rank=rank.local_rank)
    try:
        lock = lock_member(task) if rank.rank == 0 else None
        meters.start()
        yield meters
        del lock
    finally:
        meters.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def synchronize_ranks() -> None:
    """Wait until every rank of the member is here."""
    dist.barrier()


def _backends(device: torch.device) -> str:
    """Name the accelerator's backend, and gloo for collectives on CPU tensors."""
    if device.type == "cpu":
        return "gloo"
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


def finish(member: Member) -> None:
    """Predict out-of-bag samples, then write the record that ends the job. Not timed."""
    # Samples the member never drew are not in its node's copy: they come from the shared store.
    store = open_store(Path(member.task.store))
    shared: Samples = store.splits["train"]
    if staged_folder(member.task):
        # Staging verified only what it copied.
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
    logged = list(events.read_checked(member.folder.events))
    effective = provenance.effective(
        member, groups=groups, described=described or [], events=logged
    )
    record = training_record(
        member.task,
        operations=operations,
        effective=effective,
        events=logged,
        device=str(member.feed.device),
        device_name=provenance.device_name(member.feed.device),
        weights_sha256=weights_sha256(weights),
        versions=provenance.versions(),
        other_conventions=member.other_conventions,
        graph=member.graph,
    )
    run_folder.write(member.folder.record, record)
    # Two generations are kept while the member trains; its weights stay in the last one.
    checkpoint_file.previous(member.folder.checkpoint).unlink(missing_ok=True)
