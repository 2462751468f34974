"""Eight members on one GPU: one after another, in processes, as graphs on streams, batched.

    PYTHONPATH=src python3 -m benchmarks.gpu.members [--only check,32,224,processes-32,...]

Members are real ones (`ai500.train`: their own bootstraps, augmentation, rates, losses), stepped as
`ai500 run` steps them. `check` compares the weights after some steps with those of members alone.
`plain` is the ordinary ResNet-50 under autocast, `fused` the one with the project's kernels.
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
TOLERANCE = {"fp32": 1e-3, "mixed-bf16": 5e-2}
"""Of the distance between two trainings, over the way from the first weights; or three times what
two trainings alone differ by, where that is more."""
Made = Callable[[Member], Member]
KINDS: dict[str, dict[str, Made]] = {
    "fp32": {"plain": plain},
    "mixed-bf16": {"plain": plain, "fused": lambda member: member},
}
GOALS = {"32": 10.0, "224": 2.4}
RESULTS: dict[str, Any] = {}
RESULTS_FILE = Path(os.environ.get("OUT", ".")) / "members.json"
FOLDER = Path(tempfile.gettempdir()) / "ai500-members"


def group_of(members: list[Member]) -> MemberGroup:
    """Ready for its first step, fed from the device."""
    group = MemberGroup(members)
    positions = {number: prepare(member) for number, member in enumerate(members)}
    feed_from_device(members)
    group.start(positions)
    return group


def rate(
    group: MemberGroup, strategy: StepStrategy, requests: Any, shape: Shape
) -> tuple[dict[str, Any], Any]:
    """Measure images per second; return them with the members' next requests."""
    for _ in range(3):
        requests = group.next_requests(strategy.step(requests), strategy)
    rounds, most = 0, shape.samples // shape.batch_size // 6
    with measure_energy() as spent:
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS and rounds < most:
            for _ in range(2):
                requests = group.next_requests(strategy.step(requests), strategy)
            rounds += 2
        launched = time.perf_counter() - began
    seconds, images = spent.seconds, rounds * len(group.members) * shape.batch_size
    row: dict[str, Any] = {
        "images_per_second": images / seconds, "ms_a_round": 1e3 * seconds / rounds,
        "host_share": launched / seconds, "GiB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip
    return row | spent.power(images), requests


def note(key: str, version: str, row: dict[str, Any]) -> None:
    """One row of the table, as soon as it is known."""
    RESULTS.setdefault(key, {})[version] = row
    print(f"{key:4s} {version:28s} {row['images_per_second']:8.0f} img/s", flush=True)


def timed(key: str) -> None:
    """Time sequential steps, then every strategy, with the ordinary model and the fused one."""
    shape = SHAPES[key]
    tasks = make_tasks(shape, FOLDER, members=MEMBERS, precision="mixed-bf16")
    group = group_of([plain(make_member(task, DEVICE)) for task in tasks])
    sequential = Sequential(dict(enumerate(group.members)))
    row, requests = rate(group, sequential, group.first_requests(sequential), shape)
    note(key, "sequential, plain", row)
    _every_strategy(key, group, requests, kind="plain")
    del group, requests, sequential
    gc.collect()
    torch.cuda.empty_cache()
    group = group_of([make_member(task, DEVICE) for task in tasks])
    _every_strategy(key, group, None, kind="fused")


def _every_strategy(key: str, group: MemberGroup, requests: Any, *, kind: str) -> None:
    began = time.perf_counter()
    strategies, not_tried = all_strategies(dict(enumerate(group.members)))
    print(f"  captured in {time.perf_counter() - began:.1f} s", flush=True)
    if not_tried:
        print(f"  batched weights not tried: {not_tried}", flush=True)
    for strategy in strategies:
        first = requests or group.first_requests(strategy)
        row, requests = rate(group, strategy, first, SHAPES[key])
        torch.cuda.synchronize()
        note(key, f"{strategy.name}, {kind}", row)


def check() -> None:
    """Weights after some steps, together and alone."""
    for precision, tolerance in TOLERANCE.items():
        tasks = make_tasks(SHAPES["32"], FOLDER, members=CHECKED_MEMBERS, precision=precision)
        for kind, made in KINDS[precision].items():
            # Alone, the engine captures the fused model's gradients by itself.
            own = (
                tasks if kind == "plain" else [replace(task, process_members=()) for task in tasks]
            )
            alone = [_alone(made(make_member(task, DEVICE))) for task in own]
            again = [_alone(made(make_member(task, DEVICE))) for task in own]
            noise = max(map(_distance, again, alone))
            print(f"  {precision}, {kind}: alone twice {noise:.1e}", flush=True)
            limit = max(tolerance, 3 * noise)
            for number in range(3 if kind == "plain" else 2):
                _compare(f"{precision}, {kind}", number, tasks, made, alone, limit)


Weights = tuple[Tensor, Tensor]
"""Before and after."""


def _compare(
    what: str, number: int, tasks: Any, made: Made, alone: list[Weights], limit: float
) -> None:
    group = group_of([made(make_member(task, DEVICE)) for task in tasks])
    first = [_flat(member) for member in group.members]
    strategy = all_strategies(dict(enumerate(group.members)))[0][number]
    requests = group.first_requests(strategy)
    for _ in range(CHECKED_STEPS):
        requests = group.next_requests(strategy.step(requests), strategy)
    torch.cuda.synchronize()
    found = list(zip(first, map(_flat, group.members), strict=True))
    away = max(map(_distance, found, alone))
    same = sum(torch.equal(one[1], other[1]) for one, other in zip(found, alone, strict=True))
    verdict = "ok" if away <= limit else "FAILED"
    name = f"{what}, {strategy.name}"
    RESULTS.setdefault("check", {})[name] = {"distance": away, "limit": limit, "same_bits": same}
    print(
        f"  {name}: {away:.1e} of the way, {same} of {len(found)} bit by bit, at most {limit:.0e}: "
        f"{verdict}",
        flush=True,
    )


def _alone(member: Member) -> Weights:
    """By itself, as it is, from the ordinary feed."""
    before, steps = _flat(member), training_steps(member, prepare(member))
    request = next(steps)
    for _ in range(CHECKED_STEPS):
        request = steps.send(eager_step(member, request))
    after = _flat(member)
    steps.close()
    return before, after


def _flat(member: Member) -> Tensor:
    torch.cuda.synchronize()
    return torch.cat([one.detach().flatten().double() for one in member.engine.parameters()])


def _distance(one: Weights, other: Weights) -> float:
    assert torch.equal(one[0], other[0]), "they began with different weights"
    return float((one[1] - other[1]).norm() / (other[1] - other[0]).norm())


def processes(key: str) -> None:
    """As many processes, each with its member, on the same device: what others fall back to."""
    make_tasks(SHAPES[key], FOLDER, members=MEMBERS, precision="mixed-bf16")
    go = FOLDER / "go"
    for old in (go, *FOLDER.glob("ready-*")):
        old.unlink(missing_ok=True)
    words = [sys.executable, "-m", "benchmarks.gpu.members", "--process", key]
    started = [
        subprocess.Popen([*words, "--member", str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(MEMBERS)
    ]
    deadline = time.monotonic() + 90
    while len(list(FOLDER.glob("ready-*"))) < MEMBERS and time.monotonic() < deadline:
        time.sleep(0.1)
    with measure_energy() as spent:
        go.touch()
        told = [json.loads(one.communicate(timeout=60)[0].splitlines()[-1]) for one in started]
    # Their rates are of the time in which all train, the energy is of their ends, too.
    power = {} if spent.watts is None else {"watts": spent.watts}
    note(key, "processes, plain", {"images_per_second": sum(told)} | power)


def process(key: str, number: int) -> None:
    """One of them: its images per second while all train."""
    shape = SHAPES[key]
    task = make_tasks(shape, FOLDER, members=MEMBERS, precision="mixed-bf16")[number]
    group = group_of([plain(make_member(task, DEVICE))])
    strategy = Sequential({0: group.members[0]})
    requests = group.first_requests(strategy)
    for _ in range(3):
        requests = group.next_requests(strategy.step(requests), strategy)
    torch.cuda.synchronize()
    (FOLDER / f"ready-{number}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.005)
    rounds, began = 0, time.perf_counter()
    most = shape.samples // shape.batch_size - 4
    while time.perf_counter() - began < SECONDS and rounds < most:
        requests = group.next_requests(strategy.step(requests), strategy)
        rounds += 1
    torch.cuda.synchronize()
    print(json.dumps(rounds * shape.batch_size / (time.perf_counter() - began)))


def table(found: dict[str, Any]) -> str:
    """Fits 80 columns."""
    lines = ["", f"{MEMBERS} members, ResNet-50, mixed BF16; ratio to sequential"]
    for key in (key for key in SHAPES if key in found):
        first = found[key].get("sequential, plain", {}).get("images_per_second")
        lines += ["", f"{SHAPES[key].name}: at least {GOALS[key]:g}×"]
        lines.append(f"{'version':30s} {'img/s':>8} {'ratio':>6} {'W':>5} {'img/J':>6} {'host':>5}")
        for version, row in found[key].items():
            ratio = f"{row['images_per_second'] / first:.2f}" if first else "-"
            lines.append(
                f"{version:30s} {row['images_per_second']:8.0f} {ratio:>6}"
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
        "32": partial(timed, "32"),
        "224": partial(timed, "224"),
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
