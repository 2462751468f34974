"""How long a call takes: in a short burst, and while a device is kept busy with such calls.

A device that has rested runs at its highest clock for some milliseconds, until its power or heat
reaches a limit: that is the burst. Then each shape is timed for its share of the time, after a part
of it that is not timed: clocks are those of sustained work. A device's short calls are recorded in
a CUDA graph and replayed, so that its events time kernels and not the host that launches them.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

SAMPLES = 30
LEAST_SAMPLES = 5
WARM_UP_SHARE = 0.25
"""Of the time."""
SHORT_CALL_SECONDS = 3e-4
"""A host launches a call in less."""
REPLAY_SECONDS = 2e-3
LEAST_REPLAYED = 64
"""Calls of a graph: no fewer than there are sets of inputs."""

REST_SECONDS = 0.3
BURST_SAMPLES = 10

Calls = Iterator[Callable[[], object]]
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Of a call, warm."""

    sustained: list[float]
    burst: float | None
    """None: a CPU, whose clocks don't fall so fast."""


def timed(calls: Calls, device: torch.device, *, seconds: float) -> Times:
    """Times over about so many seconds."""
    for call in itertools.islice(calls, 2):
        call()
    if device.type == "cpu":
        return Times(_by_clock(calls, seconds=seconds), None)
    with torch.get_device_module(device).device(device):
        return _by_events(calls, device, seconds=seconds)


def _by_clock(calls: Calls, *, seconds: float) -> list[float]:
    samples: list[float] = []
    began = time.perf_counter()
    warm = began + WARM_UP_SHARE * seconds
    for call in calls:
        before = time.perf_counter()
        call()
        now = time.perf_counter()
        if before >= warm or now - before > seconds / LEAST_SAMPLES:
            samples.append(now - before)  # a long call is warm after the first two
        if now - began > seconds and len(samples) >= LEAST_SAMPLES:
            return samples
    raise AssertionError("calls never end")


def _by_events(calls: Calls, device: torch.device, *, seconds: float) -> Times:
    module = torch.get_device_module(device)

    def samples(run: Run, *, count: int, runs: int) -> list[float]:
        marks = [(module.Event(enable_timing=True), module.Event(enable_timing=True))
                 for _ in range(count)]  # fmt: skip
        for first, last in marks:
            first.record()
            for _ in range(runs):
                run()
            last.record()
        module.synchronize(device)
        return [first.elapsed_time(last) / 1e3 / runs for first, last in marks]

    run, calls_of_run = _one(calls), 1
    once = median(samples(run, count=3, runs=1))
    if once < SHORT_CALL_SECONDS and device.type == "cuda":
        wanted = max(LEAST_REPLAYED, math.ceil(REPLAY_SECONDS / once))
        replay = _graph(calls, wanted, module)
        if replay is not None:
            run, calls_of_run = replay, wanted
    module.synchronize(device)
    time.sleep(REST_SECONDS)
    burst = median(samples(run, count=2 + BURST_SAMPLES, runs=1)[2:])
    once = max(1e-7, median(samples(run, count=3, runs=1)))
    for _ in range(math.ceil(WARM_UP_SHARE * seconds / once)):
        run()  # not waited for: the samples follow at once
    runs = max(1, round((1 - WARM_UP_SHARE) * seconds / SAMPLES / once))
    count = int((1 - WARM_UP_SHARE) * seconds / (once * runs))
    found = samples(run, count=min(SAMPLES, max(LEAST_SAMPLES, count)), runs=runs)
    return Times([one / calls_of_run for one in found], burst / calls_of_run)


def _one(calls: Calls) -> Run:
    return lambda: next(calls)()


def _graph(calls: Calls, count: int, module: Any) -> Run | None:
    """So many calls, replayed as one; None: they can't be recorded."""
    graph = module.CUDAGraph()
    try:
        with module.graph(graph):
            for call in itertools.islice(calls, count):
                call()
        graph.replay()
        module.synchronize()
    except RuntimeError:
        return None
    replay: Run = graph.replay
    return replay
