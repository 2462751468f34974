"""Eight members on one GPU: sequential, in processes, as graphs on streams, with batched weights.

    PYTHONPATH=src python3 -m benchmarks.gpu.members [--only check,32,224,processes-32,...]

Members are real ones (`ai500.train`: their own bootstraps, augmentation, rates, losses), stepped as
`ai500 run` steps them. `check` compares their weights after a few steps with those of members that
train alone. `plain` is the ordinary ResNet-50 under autocast, `fused` the one with fused kernels.
Full numbers: $OUT/members.json.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.batched import all_strategies
from benchmarks.gpu.energy import measure_energy
from benchmarks.gpu.supervisor import Benchmark, make_parser, run_benchmark
from tests.support.noise_members import SHAPES, Shape, make_member, make_tasks, plain
from torch import Tensor

from ai500.train.loop import prepare, training_steps
from ai500.train.member import Member
from ai500.train.shared_process import MemberGroup, feed_from_device
from ai500.train.step import eager_step
from ai500.train.step_strategies import Sequential, StepStrategy

DEVICE = torch.device("cuda", 0)
MEMBERS = 8
SECONDS = 2.5
CHECKED_MEMBERS, CHECKED_STEPS = 2, 2
# Distance between two trainings over the distance from the first weights; or three times the
# distance
# of two trainings alone, if that is larger.
TOLERANCE = {"fp32": 1e-3, "mixed-bf16": 5e-2}
Convert = Callable[[Member], Member]
KINDS: dict[str, dict[str, Convert]] = {
    "fp32": {"plain": plain},
    "mixed-bf16": {"plain": plain, "fused": lambda member: member},
}
GOALS = {"32": 10.0, "224": 2.4}
RESULTS: dict[str, Any] = {}
RESULTS_FILE = Path(os.environ.get("OUT", ".")) / "members.json"
FOLDER = Path(tempfile.gettempdir()) / "ai500-members"


def make_group(members: list[Member]) -> MemberGroup:
    """Return a group that is ready for its first step, fed from the device."""
    group = MemberGroup(members)
    positions = {number: prepare(member) for number, member in enumerate(members)}
    feed_from_device(members)
    group.start(positions)
    return group


def measure_rate(
    group: MemberGroup, strategy: StepStrategy, requests: Any, shape: Shape
) -> tuple[dict[str, Any], Any]:
    """Measure images per second; return them with the members' next requests."""
    for _ in range(3):
        requests = group.next_requests(strategy.step(requests), strategy)
    rounds, max_rounds = 0, shape.samples // shape.batch_size // 6
    with measure_energy() as usage:
        start = time.perf_counter()
        while time.perf_counter() - start < SECONDS and rounds < max_rounds:
            for _ in range(2):
                requests = group.next_requests(strategy.step(requests), strategy)
            rounds += 2
        launched = time.perf_counter() - start
    seconds, images = usage.seconds, rounds * len(group.members) * shape.batch_size
    row: dict[str, Any] = {
        "samples_per_second": images / seconds, "ms_a_round": 1e3 * seconds / rounds,
        "host_share": launched / seconds, "GiB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip
    return row | usage.power(images), requests


def record_row(key: str, version: str, row: dict[str, Any]) -> None:
    """Record and print one row of the table."""
    RESULTS.setdefault(key, {})[version] = row
    print(f"{key:4s} {version:28s} {row['samples_per_second']:8.0f} img/s", flush=True)


def time_shape(key: str) -> None:
    """Time sequential steps, then every strategy, with the ordinary model and the fused one."""
    shape = SHAPES[key]
    tasks = make_tasks(shape, FOLDER, members=MEMBERS, precision="mixed-bf16")
    group = make_group([plain(make_member(task, DEVICE)) for task in tasks])
    sequential = Sequential(dict(enumerate(group.members)))
    row, requests = measure_rate(group, sequential, group.first_requests(sequential), shape)
    record_row(key, "sequential, plain", row)
    _every_strategy(key, group, requests, kind="plain")
    del group, requests, sequential
    gc.collect()
    torch.cuda.empty_cache()
    group = make_group([make_member(task, DEVICE) for task in tasks])
    _every_strategy(key, group, None, kind="fused")


def _every_strategy(key: str, group: MemberGroup, requests: Any, *, kind: str) -> None:
    start = time.perf_counter()
    strategies, not_tried = all_strategies(dict(enumerate(group.members)))
    print(f"  captured in {time.perf_counter() - start:.1f} s", flush=True)
    if not_tried:
        print(f"  batched weights not tried: {not_tried}", flush=True)
    for strategy in strategies:
        first = requests or group.first_requests(strategy)
        row, requests = measure_rate(group, strategy, first, SHAPES[key])
        torch.cuda.synchronize()
        record_row(key, f"{strategy.name}, {kind}", row)


def check() -> None:
    """Compare weights after a few steps, in a group and alone."""
    for precision, tolerance in TOLERANCE.items():
        tasks = make_tasks(SHAPES["32"], FOLDER, members=CHECKED_MEMBERS, precision=precision)
        for kind, convert in KINDS[precision].items():
            # Alone, the engine captures the fused model's gradients by itself.
            own_tasks = (
                tasks if kind == "plain" else [replace(task, process_members=()) for task in tasks]
            )
            weights_alone = [_alone(convert(make_member(task, DEVICE))) for task in own_tasks]
            repeated = [_alone(convert(make_member(task, DEVICE))) for task in own_tasks]
            noise = max(map(_distance, repeated, weights_alone))
            print(f"  {precision}, {kind}: alone twice {noise:.1e}", flush=True)
            limit = max(tolerance, 3 * noise)
            for number in range(3 if kind == "plain" else 2):
                _compare(f"{precision}, {kind}", number, tasks, convert, weights_alone, limit)


# Before and after training.
Weights = tuple[Tensor, Tensor]


def _compare(
    label: str, number: int, tasks: Any, convert: Convert, alone: list[Weights], limit: float
) -> None:
    group = make_group([convert(make_member(task, DEVICE)) for task in tasks])
    first = [_flat(member) for member in group.members]
    strategy = all_strategies(dict(enumerate(group.members)))[0][number]
    requests = group.first_requests(strategy)
    for _ in range(CHECKED_STEPS):
        requests = group.next_requests(strategy.step(requests), strategy)
    torch.cuda.synchronize()
    weights = list(zip(first, map(_flat, group.members), strict=True))
    distance = max(map(_distance, weights, alone))
    same = sum(
        torch.equal(group_weights[1], alone_weights[1])
        for group_weights, alone_weights in zip(weights, alone, strict=True)
    )
    verdict = "ok" if distance <= limit else "FAILED"
    name = f"{label}, {strategy.name}"
    RESULTS.setdefault("check", {})[name] = {
        "distance": distance,
        "limit": limit,
        "same_bits": same,
    }
    print(
        f"  {name}: relative distance {distance:.1e} (limit {limit:.0e}), "
        f"{same} of {len(weights)} identical: {verdict}",
        flush=True,
    )


def _alone(member: Member) -> Weights:
    """Train a member by itself, from the ordinary feed."""
    before, steps = _flat(member), training_steps(member, prepare(member))
    request = next(steps)
    for _ in range(CHECKED_STEPS):
        request = steps.send(eager_step(member, request))
    after = _flat(member)
    steps.close()
    return before, after


def _flat(member: Member) -> Tensor:
    torch.cuda.synchronize()
    return torch.cat(
        [parameter.detach().flatten().double() for parameter in member.engine.parameters()]
    )


def _distance(first: Weights, second: Weights) -> float:
    assert torch.equal(first[0], second[0]), "different initial weights"
    return float((first[1] - second[1]).norm() / (second[1] - second[0]).norm())


def processes(key: str) -> None:
    """Train one member per process on the same device."""
    make_tasks(SHAPES[key], FOLDER, members=MEMBERS, precision="mixed-bf16")
    go = FOLDER / "go"
    for old in (go, *FOLDER.glob("ready-*")):
        old.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu.members", "--process", key]
    workers = [
        subprocess.Popen([*command, "--member", str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(MEMBERS)
    ]
    deadline = time.monotonic() + 90
    while len(list(FOLDER.glob("ready-*"))) < MEMBERS and time.monotonic() < deadline:
        time.sleep(0.1)
    with measure_energy() as usage:
        go.touch()
        rates = [
            json.loads(worker.communicate(timeout=60)[0].splitlines()[-1]) for worker in workers
        ]
    # Rates cover the time in which all train; the energy also includes their shutdown.
    power = {} if usage.watts is None else {"watts": usage.watts}
    record_row(key, "processes, plain", {"samples_per_second": sum(rates)} | power)


def process(key: str, number: int) -> None:
    """Train one member and print its images per second while all train."""
    shape = SHAPES[key]
    task = make_tasks(shape, FOLDER, members=MEMBERS, precision="mixed-bf16")[number]
    group = make_group([plain(make_member(task, DEVICE))])
    strategy = Sequential({0: group.members[0]})
    requests = group.first_requests(strategy)
    for _ in range(3):
        requests = group.next_requests(strategy.step(requests), strategy)
    torch.cuda.synchronize()
    (FOLDER / f"ready-{number}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.005)
    rounds, start = 0, time.perf_counter()
    max_rounds = shape.samples // shape.batch_size - 4
    while time.perf_counter() - start < SECONDS and rounds < max_rounds:
        requests = group.next_requests(strategy.step(requests), strategy)
        rounds += 1
    torch.cuda.synchronize()
    print(json.dumps(rounds * shape.batch_size / (time.perf_counter() - start)))


def table(results: dict[str, Any]) -> str:
    """Format the results, 80 columns."""
    lines = ["", f"{MEMBERS} members, ResNet-50, mixed BF16; ratio to sequential"]
    for key in (key for key in SHAPES if key in results):
        first = results[key].get("sequential, plain", {}).get("samples_per_second")
        lines += ["", f"{SHAPES[key].name}: at least {GOALS[key]:g}×"]
        lines.append(f"{'version':30s} {'img/s':>8} {'ratio':>6} {'W':>5} {'img/J':>6} {'host':>5}")
        for version, row in results[key].items():
            ratio = f"{row['samples_per_second'] / first:.2f}" if first else "-"
            lines.append(
                f"{version:30s} {row['samples_per_second']:8.0f} {ratio:>6}"
                f" {_number(row, 'watts', 0):>5} {_number(row, 'images_per_joule', 1):>6}"
                f" {_number(row, 'host_share', 2):>5}"
            )
    return "\n".join(lines)


def _number(row: dict[str, Any], key: str, digits: int) -> str:
    return f"{row[key]:.{digits}f}" if key in row else "-"


BENCHMARK = Benchmark(
    module="benchmarks.gpu.members",
    parts={
        "check": check,
        "32": partial(time_shape, "32"),
        "224": partial(time_shape, "224"),
        "processes-32": partial(processes, "32"),
        "processes-224": partial(processes, "224"),
    },
    begin=partial(FOLDER.mkdir, exist_ok=True),
    results=RESULTS,
    file=RESULTS_FILE,
    table=table,
    without_gpu="members that share a CPU take their steps one after another",
)


def main() -> None:
    parser = make_parser(BENCHMARK, __doc__)
    parser.add_argument("--process", help="used by the part `processes`")
    parser.add_argument("--member", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # as the worker has it
    if arguments.process:
        process(arguments.process, arguments.member)
        return
    run_benchmark(BENCHMARK, parser, arguments)


if __name__ == "__main__":
    main()
