"""Inside a worker: some steps of the real training loop under torch's profiler.

The member is assembled and trained by the code of every run; only its feed is another: it marks
where each step begins, turns the profiler on and off there, and ends the training. Steps in turn:
warm-up, some timed without the profiler, two under it that are not kept, those that are kept.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from ai500.inventory.machine import describe
from ai500.operations import count
from ai500.parallel import spans
from ai500.records import Profiling, run_folder
from ai500.records.profiling import (
    DISCARDED_STEPS,
    WARM_UP_STEPS,
    RankCapture,
    captured_trace,
    rank_file,
)
from ai500.train.feed import Batch, Feed
from ai500.train.loop import Member, epochs
from ai500.train.worker import Rank

CLOCK_ROUNDS = 50


class Captured(Exception):  # noqa: N818 - not an error: how the training loop is left
    """All steps are profiled."""


@dataclass(frozen=True, slots=True)
class WatchedFeed(Feed):
    """The member's feed, which tells where steps begin and goes round until all are captured."""

    recording: Tracing | Counting

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """The epoch's batches over and over: no evaluation comes between the steps."""
        batches = (
            batch
            for _ in itertools.count()
            for batch in Feed.epoch(self, epoch, order, first_step=first_step)
        )
        for step in itertools.count():
            self.recording.step_begins(step)
            with spans.span(spans.DATA):
                batch = next(batches)
            yield batch


class Tracing:
    """Torch's profiler around the kept steps."""

    def __init__(self, steps: int, *, device: torch.device, trace: Path) -> None:
        self.seconds_per_step = 0.0
        self._device = device
        self._trace = trace
        self._plain = WARM_UP_STEPS
        self._under = self._plain + steps
        self._kept = self._under + DISCARDED_STEPS
        self._end = self._kept + steps
        self._began = 0.0
        self._profiler = profile(
            activities=_activities(device),
            schedule=schedule(wait=0, warmup=DISCARDED_STEPS, active=steps, repeat=1),
            on_trace_ready=self._save,
            experimental_config=_all_threads(),
        )

    def step_begins(self, step: int) -> None:
        """Called before the step's batch is asked for."""
        if step in (self._plain, self._under, self._kept, self._end):
            _synchronize(self._device)  # kernels of other steps are not in the way
        if step == self._plain:
            self._began = time.perf_counter()
        elif step == self._under:
            elapsed = time.perf_counter() - self._began
            self.seconds_per_step = elapsed / (self._under - self._plain)
            self._profiler.start()
        elif step > self._under:
            if step == self._kept:
                spans.record_with(record_function)
            elif step == self._end:
                spans.record_with(None)
            self._profiler.step()
        if step == self._end:
            raise Captured

    def _save(self, profiler: profile) -> None:
        self._trace.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self._trace))


class Counting:
    """The vendor's profiler (ncu) around the steps: told by the driver when to look."""

    seconds_per_step = 0.0

    def __init__(self, steps: int, *, device: torch.device) -> None:
        self._device = device
        self._steps = steps

    def step_begins(self, step: int) -> None:
        """Called before the step's batch is asked for."""
        if step == WARM_UP_STEPS:
            _synchronize(self._device)
            torch.cuda.profiler.start()
        elif step == WARM_UP_STEPS + self._steps:
            _synchronize(self._device)
            torch.cuda.profiler.stop()
            raise Captured


def capture(member: Member, wanted: Profiling, *, rank: Rank) -> None:
    """Train the wanted steps, and leave this rank's trace and what belongs to it."""
    folder, device = member.folder.path, member.feed.device
    recording: Tracing | Counting = (
        Tracing(wanted.steps, device=device, trace=captured_trace(folder, rank.rank))
        if wanted.mode == "trace"
        else Counting(wanted.steps, device=device)
    )
    known = {one.name: getattr(member.feed, one.name) for one in fields(Feed)}
    member.feed = WatchedFeed(**known, recording=recording)
    try:
        for _ in epochs(member):
            pass
    except Captured:
        pass
    offset, uncertainty = _clock_offset(rank)
    found = RankCapture(
        rank=rank.rank,
        host=socket.gethostname(),
        device=str(device),
        device_name=_device_name(device),
        seconds_per_step=recording.seconds_per_step,
        images_per_step=member.feed.global_batch_size,
        clock_offset_seconds=offset,
        clock_uncertainty_seconds=uncertainty,
        operations_per_step=_operations(member) if rank.rank == 0 else {},
        torch=torch.__version__,
    )
    run_folder.write(rank_file(folder, rank.rank), found)


def _activities(device: torch.device) -> list[ProfilerActivity]:
    """The host, and the accelerator by its own name."""
    kinds = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    return [ProfilerActivity.CPU, *filter(None, [kinds.get(device.type)])]


def _all_threads() -> _ExperimentalConfig:
    """On a CPU buckets are reduced in a thread of their own."""
    return _ExperimentalConfig(profile_all_threads=True)


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _operations(member: Member) -> dict[str, int]:
    """By kind, of one optimizer step of all ranks together, in the convention `matmul`."""
    counted = count(
        member.engine.unsharded(),
        (member.feed.batch_size, *member.problem_class.input_shape),
        convention="matmul",
        loss=member.workload.loss_operator,
    )
    replicas = member.feed.world_size
    return {kind: one.total * replicas for kind, one in counted.by_kind.items() if one.total}


def _clock_offset(rank: Rank) -> tuple[float, float]:
    """This host's wall clock less rank 0's, and how far that may be off; 0 on rank 0's host.

    Of many questions the one answered fastest counts: the answer was written in its middle.
    """
    if rank.world_size == 1:
        return 0.0, 0.0
    hosts: list[str] = [""] * rank.world_size
    dist.all_gather_object(hosts, socket.gethostname())
    offset, uncertainty = 0.0, 0.0
    for other in (r for r in range(rank.world_size) if hosts[r] != hosts[0]):
        if rank.rank == 0:
            _answer(other)
        elif rank.rank == other:
            offset, uncertainty = _ask()
    return offset, uncertainty


def _answer(other: int) -> None:
    question = torch.zeros(1, dtype=torch.int64)
    for _ in range(CLOCK_ROUNDS):
        dist.recv(question, src=other)
        dist.send(torch.tensor([time.time_ns()]), dst=other)


def _ask() -> tuple[float, float]:
    best = (0.0, float("inf"))
    answer = torch.zeros(1, dtype=torch.int64)
    for _ in range(CLOCK_ROUNDS):
        asked = time.time_ns()
        dist.send(answer, dst=0)
        dist.recv(answer, src=0)
        heard = time.time_ns()
        half = (heard - asked) / 2e9
        if half < best[1]:
            best = (((asked + heard) // 2 - int(answer)) / 1e9, half)
    return best


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return describe().cpu
    return str(torch.get_device_module(device).get_device_name(device))
