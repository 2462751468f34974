"""Shared by the benchmarks of workloads on one GPU: speed beside `torch.compile`, and quality.

Speed: samples/s of our real loop (store, bootstrap, schedule, events), and of `torch.compile` of
the same model in a plain loop on a constant batch, timed before and after ours. Quality: a class in
FP32, three seeds of M members; ensemble, members' mean, seconds per member.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch
from benchmarks.gpu.framework import loop_step, make_member, make_task
from torch import Tensor

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.store import Store
from ai500.records.fields import target_names
from ai500.train import loop
from ai500.workloads.member_predictions import ArrayPredictions
from ai500.workloads.protocol import Workload

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
RESULTS: dict[str, Any] = {}
SEEDS = (1, 2, 3)
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


def trained(
    workload: Workload, name: str, store: Store, folder: Path, *, seed: int, member: int
) -> Any:
    """Train a member with the reference in FP32; return its validation predictions."""
    task = make_task(options_of(workload, name, "fp32"), store, folder)
    bootstrap = folder / f"bootstrap-{seed}-{member}"
    counts = BOOTSTRAP.draw(store.splits["train"].count, seed=seed, member=member)
    save_bootstrap(bootstrap, counts, algorithm="bootstrap", seed=seed, member=member)
    task = dataclasses.replace(
        task, seed=seed, member=member, hyperparameters=task.definition.reference,
        bootstrap=str(bootstrap),
    )  # fmt: skip
    built = make_member(task, f"{seed}-{member}")
    loop.train(built)
    return built.evaluator.validation()


def measure_quality(workload: Workload, name: str, store: Store, folder: Path) -> None:
    """Train ensembles of three seeds in FP32; print what a target needs."""
    samples = store.splits["validation"]
    targets = samples.rows(np.arange(samples.count), names=target_names(samples.fields))
    ensembles = []
    for seed in SEEDS:
        began = time.perf_counter()
        members = range(workload.problem_classes[name].ensemble_size)
        predictions = np.stack(
            [trained(workload, name, store, folder, seed=seed, member=m) for m in members]
        )
        seconds = (time.perf_counter() - began) / len(members)
        ensemble = workload.quality(workload.combine(ArrayPredictions(predictions)), targets)
        alone = [workload.quality(rows, targets) for rows in predictions]
        print(
            f"seed {seed}: ensemble {ensemble:.4f}, members' mean {mean(alone):.4f} "
            f"{[round(value, 4) for value in alone]}, {seconds:.1f} s a member, start and "
            "compilation included",
            flush=True,
        )
        RESULTS[f"seed-{seed}"] = {"ensemble": ensemble, "members": alone, "seconds": seconds}
        ensembles.append(ensemble)
    spread = stdev(ensembles) * (-1 if workload.quality_direction == "higher" else 1)
    RESULTS["target"] = mean(ensembles) + spread
    print(f"mean, one standard deviation towards worse: {RESULTS['target']:.4f}", flush=True)


def run_parts(parts: Mapping[str, Callable[[], None]], chosen: str, *, file: str) -> None:
    """Run the chosen parts, and write the results to $OUT; a failure does not stop the next."""
    began = time.perf_counter()
    for part in chosen.split(","):
        try:
            parts[part]()
        except Exception:
            traceback.print_exc()
        RESULTS["seconds"] = time.perf_counter() - began
        (Path(os.environ.get("OUT", ".")) / file).write_text(json.dumps(RESULTS, indent=1))
    print(f"all: {RESULTS['seconds']:.0f} s", flush=True)
