"""Cosmology on one GPU: training speed beside plain PyTorch, and quality of `workstation`.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.cosmology [--parts speed,quality]

`speed`: volumes/s of `full`'s model, 4×128³, batch 16, in mixed BF16: our real loop (store,
bootstrap, augmentation, schedule, events), and `torch.compile` of the same model in a plain loop on
a constant batch, timed before and after ours. `quality`: `workstation` in FP32, three seeds of M
members; ensemble, members' mean, seconds per member. Full numbers: $OUT/cosmology.json.

Predictions before the first run: ours at 0.97 to 1.02 of torch.compile, whose 496 volumes/s were
measured before (lab/gpu_anchor3.py), because ours also mirrors its volumes; `quality` 0.15 to 0.25
for ensembles, 0.01 to 0.02 above that for members' means.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch
from benchmarks.gpu.framework import loop_step, make_member, make_task

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.generated import generate
from ai500.data.store import Store
from ai500.records.fields import target_names
from ai500.train import loop
from ai500.workloads.class_data import generate_store
from ai500.workloads.cosmology import CLASSES, WORKLOAD
from ai500.workloads.learnable_volumes import LearnableVolumes
from ai500.workloads.protocol import Workload

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
RESULTS: dict[str, Any] = {}
RESULTS_FILE = Path(os.environ.get("OUT", ".")) / "cosmology.json"
SEEDS = (1, 2, 3)
PRECISIONS = ("mixed-bf16",)
SPEED_SOURCE = LearnableVolumes(seed=1, edge=128, train=64, validation=16)
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


def volumes_per_second(step: Callable[[], object], *, batch: int, steps: int) -> float:
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
        rounds.append(batch * steps / (time.perf_counter() - began))
    return median(rounds)


def plain_step(name: str, batch: int, precision: str) -> Callable[[], object]:
    """Return a compiled step of the same model and loss on a constant batch."""
    problem_class = CLASSES[name]
    model = WORKLOAD.model(problem_class).to(DEVICE)
    compiled = torch.compile(model) if DEVICE.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randn((batch, *problem_class.input_shape), device=DEVICE)
    inputs = inputs.contiguous(memory_format=torch.channels_last_3d)
    parameters = torch.rand(batch, 4, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with contextlib.ExitStack() as stack:
            if precision == "mixed-bf16":
                stack.enter_context(torch.autocast(DEVICE.type, torch.bfloat16))
            outputs = compiled(inputs)
        (outputs.float() - parameters).square().mean().backward()
        optimizer.step()

    return step


def options_of(name: str, precision: str) -> argparse.Namespace:
    """Return the options that `benchmarks.gpu.framework` takes, with the class's batch."""
    batch = CLASSES[name].reference.batch_size
    return argparse.Namespace(
        workload=WORKLOAD.name, problem_class=name, batch=batch, precision=precision
    )


def measure_speed(name: str, store: Store, folder: Path, *, steps: int) -> None:
    """Compare volumes/s of our loop with the compiled plain loop's, before and after."""
    for precision in PRECISIONS:
        options = options_of(name, precision)

        def plain(options: argparse.Namespace = options) -> float:
            free_memory()
            step = plain_step(name, options.batch, options.precision)
            return volumes_per_second(step, batch=options.batch, steps=steps)

        before = plain()
        free_memory()
        member = make_member(make_task(options, store, folder), f"speed-{precision}")
        print("ours:", member.engine.describe(), flush=True)
        ours = volumes_per_second(loop_step(member), batch=options.batch, steps=steps)
        del member
        after = plain()
        print(
            f"{name}, {precision}, batch {options.batch}: ours {ours:,.1f} volumes/s, "
            f"torch.compile {before:,.1f} and {after:,.1f}: {ours / max(before, after):.3f}",
            flush=True,
        )
        RESULTS[f"speed-{precision}"] = {"before": before, "ours": ours, "after": after}


def trained(name: str, store: Store, folder: Path, *, seed: int, member: int) -> Any:
    """Train a member with the reference in FP32; return its validation predictions."""
    task = make_task(options_of(name, "fp32"), store, folder)
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


def measure_quality(name: str, store: Store, folder: Path) -> None:
    """Train ensembles of three seeds in FP32; print what a target needs."""
    samples = store.splits["validation"]
    names = target_names(samples.fields)
    targets = samples.rows(np.arange(samples.count), names=names)
    workload: Workload = WORKLOAD
    ensembles = []
    for seed in SEEDS:
        began = time.perf_counter()
        members = range(CLASSES[name].ensemble_size)
        predictions = np.stack(
            [trained(name, store, folder, seed=seed, member=member) for member in members]
        )
        seconds = (time.perf_counter() - began) / len(members)
        voters = np.ones(predictions.shape[:2], np.bool_)
        combined = workload.combine(predictions, voters=voters)
        ensemble = workload.quality(combined, targets)
        alone = [workload.quality(rows, targets) for rows in predictions]
        print(
            f"seed {seed}: ensemble {ensemble:.4f}, members' mean {mean(alone):.4f} "
            f"{[round(value, 4) for value in alone]}, {seconds:.1f} s a member, start and "
            "compilation included",
            flush=True,
        )
        RESULTS[f"seed-{seed}"] = {"ensemble": ensemble, "members": alone, "seconds": seconds}
        ensembles.append(ensemble)
    target = mean(ensembles) + stdev(ensembles)
    print(f"mean + one standard deviation: {target:.4f}", flush=True)
    RESULTS["target"] = target


def main() -> None:
    """Run the chosen parts; a part that fails does not stop the next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="speed,quality")
    parser.add_argument("--class", dest="problem_class", default="workstation")
    parser.add_argument("--steps", type=int, default=40, help="steps of a timed round")
    options = parser.parse_args()
    name = options.problem_class
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        began = time.perf_counter()
        store = generate_store(WORKLOAD.name, name, path=folder / "store")
        splits = {"train": SPEED_SOURCE.train, "validation": SPEED_SOURCE.validation}
        large = generate(folder / "large", SPEED_SOURCE, name="large", splits=splits)
        print(f"stores: {time.perf_counter() - began:.1f} s, {store.sha256}", flush=True)
        parts: dict[str, Callable[[], None]] = {
            "speed": lambda: measure_speed("full", large, folder, steps=options.steps),
            "quality": lambda: measure_quality(name, store, folder),
        }
        for part in options.parts.split(","):
            try:
                parts[part]()
            except Exception:
                traceback.print_exc()
            RESULTS["seconds"] = time.perf_counter() - began
            RESULTS_FILE.write_text(json.dumps(RESULTS, indent=1))
    print(f"all: {RESULTS['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
