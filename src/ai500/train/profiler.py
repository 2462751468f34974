"""Steps of the real training loop under torch's profiler, inside a worker.

The member is built and trained by the code of every run; only its feed differs: it marks where each
step begins, starts and stops the profiler there, and ends the training. Steps in order: warm-up,
timed without the profiler, profiled but discarded, profiled and kept.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from ai500.inventory.machine import describe
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
from ai500.train.loop import train
from ai500.train.member import Member
from ai500.train.provenance import device_name
from ai500.train.worker import Rank

# Of so many exchanges the fastest is used: enough that one of them meets no delay.
CLOCK_ROUNDS = 50


class Profiled(Exception):  # noqa: N818 - not an error: how the training loop is left
    """All requested steps are profiled."""


@dataclass(frozen=True, slots=True)
class ProfiledFeed(Feed):
    """The member's feed, which notifies the profiler of each step and repeats without end."""

    profiling: Tracing | Counting

    def epoch(self, epoch: int, order: NDArray[np.int64], *, first_step: int) -> Iterator[Batch]:
        """Yield the epoch's batches repeatedly, so that no evaluation comes between steps."""
        batches = (
            batch
            for _ in itertools.count()
            for batch in Feed.epoch(self, epoch, order, first_step=first_step)
        )
        for step in itertools.count():
            self.profiling.step_begins(step)
            with spans.span(spans.DATA):
                batch = next(batches)
            yield batch


class Tracing:
    """Torch's profiler, active in the profiled steps."""

    def __init__(self, steps: int, *, device: torch.device, trace: Path) -> None:
        self.seconds_per_step = 0.0
        self._device = device
        self._trace = trace
        # First step of each phase.
        self._timed = WARM_UP_STEPS
        self._profiled = self._timed + steps
        self._kept = self._profiled + DISCARDED_STEPS
        self._end = self._kept + steps
        self._began = 0.0
        self._profiler = profile(
            activities=_activities(device),
            schedule=schedule(wait=0, warmup=DISCARDED_STEPS, active=steps, repeat=1),
            on_trace_ready=self._save,
            # All threads: on a CPU buckets are reduced in a thread of their own.
            experimental_config=_ExperimentalConfig(profile_all_threads=True),
        )

    def step_begins(self, step: int) -> None:
        """Start and stop the profiler; called before the step's batch is read."""
        if step in (self._timed, self._profiled, self._kept, self._end):
            _synchronize(self._device)  # kernels of the phase before are done
        if step == self._timed:
            self._began = time.perf_counter()
        elif step == self._profiled:
            elapsed = time.perf_counter() - self._began
            self.seconds_per_step = elapsed / (self._profiled - self._timed)
            self._profiler.start()
        elif step > self._profiled:
            if step == self._kept:
                spans.record_with(record_function)
            elif step == self._end:
                spans.record_with(None)
            self._profiler.step()
        if step == self._end:
            raise Profiled

    def _save(self, profiler: profile) -> None:
        self._trace.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self._trace))


class Counting:
    """The vendor's profiler (ncu), started and stopped through the driver's API."""

    seconds_per_step = 0.0

    def __init__(self, steps: int, *, device: torch.device) -> None:
        self._device = device
        self._steps = steps

    def step_begins(self, step: int) -> None:
        """Start and stop the profiler; called before the step's batch is read."""
        if step == WARM_UP_STEPS:
            _synchronize(self._device)
            torch.cuda.profiler.start()
        elif step == WARM_UP_STEPS + self._steps:
            _synchronize(self._device)
            torch.cuda.profiler.stop()
            raise Profiled


def profile_steps(member: Member, request: Profiling, *, rank: Rank) -> None:
    """Train the requested steps; write this rank's trace and its description."""
    folder, device = member.folder.path, member.feed.device
    profiling: Tracing | Counting = (
        Tracing(request.steps, device=device, trace=captured_trace(folder, rank.rank))
        if request.mode == "trace"
        else Counting(request.steps, device=device)
    )
    member.feed = ProfiledFeed(**member.feed.settings(), profiling=profiling)
    with contextlib.suppress(Profiled):
        train(member)
    offset, uncertainty = _clock_offset(rank)
    description = RankCapture(
        rank=rank.rank,
        host=socket.gethostname(),
        device=str(device),
        device_name=describe().cpu if device.type == "cpu" else device_name(device),
        seconds_per_step=profiling.seconds_per_step,
        samples_per_step=member.feed.global_batch_size,
        clock_offset_seconds=offset,
        clock_uncertainty_seconds=uncertainty,
        operations_per_step=_operations(member) if rank.rank == 0 else {},
        torch=torch.__version__,
    )
    run_folder.write(rank_file(folder, rank.rank), description)


def _activities(device: torch.device) -> list[ProfilerActivity]:
    """Return the profiler's activities: the host's, and the accelerator's."""
    kinds = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    return [ProfilerActivity.CPU, *filter(None, [kinds.get(device.type)])]


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _operations(member: Member) -> dict[str, int]:
    """Count the operations of an optimizer step of all ranks by kind, convention `matmul`."""
    by_kind, replicas = member.count()["matmul"].by_kind, member.feed.world_size
    return {kind: count.total * replicas for kind, count in by_kind.items() if count.total}


def _clock_offset(rank: Rank) -> tuple[float, float]:
    """Return this host's wall clock minus rank 0's, and its uncertainty; 0 on rank 0's host.

    The fastest of many exchanges counts; the answer is taken to be written at its midpoint.
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
