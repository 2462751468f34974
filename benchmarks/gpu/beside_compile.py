"""Shared by the benchmarks of workloads on one GPU: speed beside `torch.compile`.

Samples/s of our real loop (store, bootstrap, schedule, events), and of `torch.compile` of the same
model in a plain loop on a constant batch, timed before and after ours.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.gpu.framework import loop_step, make_member, make_task
from torch import Tensor

from ai500.data.store import Store
from ai500.workloads.protocol import Workload

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
RESULTS: dict[str, Any] = {}
WARM_UP_STEPS = 8


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def free_memory() -> None:
    """Free the memory of the model before, which compiled code and cycles keep."""
    torch._dynamo.reset()
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()


def seconds_per_step(step: Callable[[], object], *, steps: int) -> float:
    """Return the median of three rounds, after a warm-up."""
    for _ in range(WARM_UP_STEPS):
        step()
    rounds = []
    for _ in range(3):
        synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        rounds.append((time.perf_counter() - began) / steps)
    return median(rounds)


def plain_step(
    workload: Workload,
    name: str,
    inputs: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    precision: str,
) -> Callable[[], object]:
    """Return a compiled step of a class's model on a constant batch."""
    model = workload.model(workload.problem_classes[name]).to(DEVICE)
    compiled = torch.compile(model) if DEVICE.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with contextlib.ExitStack() as stack:
            if precision == "mixed-bf16":
                stack.enter_context(torch.autocast(DEVICE.type, torch.bfloat16))
            outputs = compiled(inputs)
        loss(outputs).backward()
        optimizer.step()

    return step


def options_of(workload: Workload, name: str, precision: str) -> argparse.Namespace:
    """Return the options that `benchmarks.gpu.framework` takes, with the class's batch."""
    batch = workload.problem_classes[name].reference.batch_size
    return argparse.Namespace(
        workload=workload.name, problem_class=name, batch=batch, precision=precision
    )


def measure_speed(
    workload: Workload,
    name: str,
    store: Store,
    folder: Path,
    *,
    precision: str,
    steps: int,
    plain: Callable[[], Callable[[], object]],
) -> None:
    """Compare samples/s of our loop with those of the steps that `plain` builds."""
    options = options_of(workload, name, precision)

    def rate(build: Callable[[], Callable[[], object]]) -> float:
        free_memory()
        return float(options.batch / seconds_per_step(build(), steps=steps))

    def ours() -> Callable[[], object]:
        member = make_member(make_task(options, store, folder), f"speed-{precision}")
        print("ours:", member.engine.describe(), flush=True)
        return loop_step(member)

    row = {"before": rate(plain), "ours": rate(ours), "after": rate(plain)}
    ratio = row["ours"] / max(row["before"], row["after"])
    print(
        f"{name}, {precision}, batch {options.batch}: ours {row['ours']:,.1f} samples/s, "
        f"torch.compile {row['before']:,.1f} and {row['after']:,.1f}: {ratio:.3f}",
        flush=True,
    )
    RESULTS[f"speed-{precision}"] = row


def write_results(file: str) -> None:
    """Write the full numbers to $OUT."""
    (Path(os.environ.get("OUT", ".")) / file).write_text(json.dumps(RESULTS, indent=1))
