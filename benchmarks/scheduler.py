"""Cost of an ensemble for its controller as it grows: on a real Slurm, and at 100,000 members.

    python benchmarks/scheduler.py [--nodes 50] [--part slurm|simulated]

`slurm`: ensembles of 10, 100 and 1,000 short members, submitted, polled and collected by the real
job controller on a real Slurm of virtual nodes (tests/support/slurm/cluster.py). Only the training
is replaced, by a small shell script. Judged: Slurm commands per poll, processor time of the
controller's own process per member, and that each member ran once.

`simulated`: 100 to 100,000 members planned and polled by the same code, with texts in
place of Slurm's answers. 2 % of the members run at a time, so all sizes are polled equally often.

Growth is judged by processor time, which other processes do not affect.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the repository's root, for the tests' cluster
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.table import Table
from tests.support.simulated_slurm import TRIAL, SimulatedSlurm, controller_for, plan_ensemble
from tests.support.slurm.cluster import Cluster

from ai500.bagging.member_views import MemberView
from ai500.cli.terminal import members_table
from ai500.config import load
from ai500.core import events
from ai500.jobs.schedulers import slurm_commands
from ai500.jobs.schedulers.slurm_output import SlurmJob
from ai500.pipeline import stages as pipeline
from ai500.records.run_folder import RunFolder

SIZES = (10, 100, 1_000)
# Repetitions of the ensembles of 1, 10 and 100; medians are compared.
ROUNDS = 3
SIMULATED_SIZES, WAVES = (100, 1_000, 10_000, 100_000), 50
# Growth of the cost per member that counts as none, and as linear: a hidden M² makes it 10 or more.
NOISE, GROWTH = 1.1, 1.3
CPUS_PER_NODE = 2
STAND_IN = """\
#!/bin/sh
# Stands in for `python -m ai500.jobs.node_agent TRIAL`: logs a member's events, trains nothing.
folder=$3/members/$(printf %03d "$AI500_MEMBER")
read -r boot </proc/sys/kernel/random/boot_id
number=0
log() {
  number=$((number + 1))
  read -r monotonic rest </proc/uptime
  printf '{"event": "%s", "wall": %s, "monotonic": %s, "host": "%s", "boot": "%s", ' \\
    "$1" "$(date +%s.%N)" "$monotonic" "$SLURMD_NODENAME" "$boot"
  printf '"sequence": %d, "trial": 1, "member": %d, "attempt": %d%s}\\n' \\
    "$number" "$AI500_MEMBER" "$AI500_ATTEMPT" "$2"
} >>"$folder/events.jsonl"
log start ", \\"pid\\": $$, \\"world_size\\": 1, \\"device\\": \\"cpu\\""
log first_batch
sleep 1
log end ', "epoch": 1'
echo '{}' >"$folder/record.tmp" && mv "$folder/record.tmp" "$folder/record.json"
"""

console = Console(width=120, highlight=False)


@dataclass(frozen=True)
class Cost:
    """Cost of one ensemble on the real Slurm."""

    members: int
    seconds: float
    cpu_seconds: float
    polls: int
    most_calls_per_poll: int
    calls: int
    lost: int
    repeated: int


def main() -> int:
    """Run both parts; return 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50, help="virtual nodes of the real Slurm")
    parser.add_argument("--part", choices=("slurm", "simulated"), help="left out: both")
    options = parser.parse_args()
    claims: list[tuple[str, bool]] = []
    if options.part != "simulated":
        claims += on_slurm(options.nodes)
    if options.part != "slurm":
        claims += simulated()
    for claim, holds in claims:
        console.print(f"{'holds ' if holds else 'FAILED'}  {claim}")
    return 0 if all(holds for _, holds in claims) else 1


def on_slurm(nodes: int) -> list[tuple[str, bool]]:
    """Run ensembles of all sizes, in turn, on one cluster."""
    folder = Path(tempfile.mkdtemp(prefix="ai500-scale-", dir="/var/tmp"))
    try:
        with Cluster(folder / "cluster", nodes=nodes, cpus=CPUS_PER_NODE) as cluster:
            console.print(f"{nodes} nodes are idle after {cluster.start_seconds:.1f} s")
            os.environ.update(cluster.environment)
            costs = [run_ensemble(folder, size, nodes=nodes) for size in _order()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judge(costs[1:])  # the first is warm-up


def _order() -> Iterator[int]:
    """Yield small sizes before and after large ones, so that a noisy minute affects several."""
    yield 1
    for number in range(ROUNDS):
        yield 1
        yield from SIZES[:-1]
        if number == 0:
            yield SIZES[-1]


def run_ensemble(folder: Path, members: int, *, nodes: int) -> Cost:
    """Submit, poll and collect one ensemble."""
    path = Path(tempfile.mkdtemp(prefix=f"run-{members}-", dir=folder))
    stand_in = folder / "stand-in"
    if not stand_in.exists():
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
    config = load(
        overrides={
            "ensemble.size": members,
            "parallel.degree": 1,
            "system.device": "cpu",
            "system.accelerators_per_node": CPUS_PER_NODE,
            "system.scale": min(members, nodes * CPUS_PER_NODE),
            "scheduler.kind": "slurm",
            "slurm.python": str(stand_in),
            "data.stage": False,
        }
    )
    _, plan = pipeline.survey_and_plan(config)
    with counted_calls() as (calls, calls_per_poll):
        start, cpu_start = time.monotonic(), time.process_time()
        controller = controller_for(path, config, plan)
        controller.start()
        failed = controller.run(members_table)
        cpu_seconds, seconds = time.process_time() - cpu_start, time.monotonic() - start
    starts, collected = count_starts(RunFolder(path), members)
    cost = Cost(
        members=members,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        polls=len(calls_per_poll),
        most_calls_per_poll=max(calls_per_poll),
        calls=calls.total(),
        lost=len(failed)
        + sum(starts[member] == 0 or collected[member] == 0 for member in range(members)),
        repeated=sum(starts[member] > 1 or collected[member] > 1 for member in range(members))
        + calls["sbatch"]
        - 1,
    )
    console.print(
        f"{members:5} members: {seconds:6.1f} s, CPU {cpu_seconds:.3f} s, {cost.polls} polls, "
        f"{dict(calls)}, lost {cost.lost}, repeated {cost.repeated}"
    )
    return cost


def count_starts(run: RunFolder, members: int) -> tuple[Counter[int], Counter[int]]:
    """Count the starts of each member in its own log, and in the run's log."""
    trial = run.trial(TRIAL)
    own = Counter(
        member
        for member in range(members)
        for event in events.read(trial.member(member).events)
        if event["event"] == "start"
    )
    collected = Counter(
        event["member"] for event in events.read(run.events) if event["event"] == "start"
    )
    return own, collected


@contextlib.contextmanager
def counted_calls() -> Iterator[tuple[Counter[str], list[int]]]:
    """Count Slurm's commands by name, and the commands of each poll of all jobs."""
    run_slurm, job_states = slurm_commands.run_slurm, slurm_commands.job_states
    calls: Counter[str] = Counter()
    calls_per_poll: list[int] = []

    def run(words: Sequence[str], *, timeout: float, stdin: str = "") -> str:
        calls[words[0]] += 1
        return run_slurm(words, timeout=timeout, stdin=stdin)

    def poll(ids: Sequence[str], **options: Any) -> dict[str, SlurmJob]:
        before = calls.total()
        states = job_states(ids, **options)
        calls_per_poll.append(calls.total() - before)
        return states

    slurm_commands.run_slurm, slurm_commands.job_states = run, poll
    try:
        yield calls, calls_per_poll
    finally:
        slurm_commands.run_slurm, slurm_commands.job_states = run_slurm, job_states


def judge(costs: Sequence[Cost]) -> list[tuple[str, bool]]:
    """Print a row for each size and ratios; return whether the claims hold."""
    by_size = {size: [cost for cost in costs if cost.members == size] for size in (1, *SIZES)}
    cpu = {
        size: statistics.median(cost.cpu_seconds for cost in same_size)
        for size, same_size in by_size.items()
    }
    # An ensemble of one has the fixed cost of every run, and next to nothing else.
    fixed = cpu[1]
    own = {size: (cpu[size] - fixed) / (size - 1) for size in SIZES}
    table = Table(title="On a real Slurm (medians)")
    for heading in (
        "members", "seconds", "polls", "commands per poll, mean", "most",
        "CPU s", "CPU ms/member", "less the start",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    most = {
        size: max(cost.most_calls_per_poll for cost in same_size)
        for size, same_size in by_size.items()
    }
    for size, same_size in by_size.items():
        table.add_row(
            f"{size:,}",
            f"{statistics.median(cost.seconds for cost in same_size):.1f}",
            f"{statistics.median(cost.polls for cost in same_size):.0f}",
            f"{_mean_calls(same_size):.2f}",
            str(most[size]),
            f"{cpu[size]:.3f}",
            f"{cpu[size] / size * 1e3:.2f}",
            f"{own[size] * 1e3:.2f}" if size > 1 else "",
        )
    console.print(table)
    small, middle, large = SIZES
    whole = {size: cpu[size] / size for size in SIZES}
    console.print(
        f"CPU per member, {large:,} against {small} / {middle}: "
        f"{whole[large] / whole[small]:.3f} / {whole[large] / whole[middle]:.3f} in all, "
        f"{own[large] / own[small]:.3f} / {own[large] / own[middle]:.3f} less the start "
        f"({fixed * 1e3:.0f} ms: the CPU of an ensemble of one)"
    )
    return [
        ("commands per poll do not depend on the size", len({most[size] for size in SIZES}) == 1),
        (
            "CPU per member does not grow",
            whole[large] <= NOISE * min(whole[middle], whole[small]),
        ),
        (
            f"CPU per member less the start does not grow by more than {GROWTH}",
            own[large] <= GROWTH * min(own[middle], own[small]),
        ),
        ("no member is lost", not any(cost.lost for cost in costs)),
        ("no member is submitted or run twice", not any(cost.repeated for cost in costs)),
    ]


def _mean_calls(costs: Sequence[Cost]) -> float:
    """Return Slurm's commands per poll, without the submission."""
    return sum(cost.calls - 1 for cost in costs) / sum(cost.polls for cost in costs)


@dataclass(frozen=True)
class SimulatedCost:
    """CPU seconds of ai500's own steps, without the simulation."""

    members: int
    plan: float
    tasks: float
    submit: float
    follow: float
    table: float
    polls: int
    most_calls_per_poll: int

    @property
    def total(self) -> float:
        """Return the total without the live view."""
        return self.plan + self.tasks + self.submit + self.follow


def simulated() -> list[tuple[str, bool]]:
    """Run each size in a process of its own, with files in memory where there is room."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        costs = [pool.apply(run_simulated, (size,)) for size in SIMULATED_SIZES]
    table = Table(title="With simulated answers: CPU µs per member")
    for heading in ("members", "polls", "plan", "tasks", "submit", "follow", "in all", "live view"):
        table.add_column(heading, justify="right")
    for cost in costs:
        parts = (cost.plan, cost.tasks, cost.submit, cost.follow, cost.total, cost.table)
        table.add_row(
            f"{cost.members:,}",
            str(cost.polls),
            *(f"{seconds / cost.members * 1e6:.0f}" for seconds in parts),
        )
    console.print(table)
    per_member = [cost.total / cost.members for cost in costs]
    # The first has the largest share of the fixed cost: each is compared with the least before it.
    growth = [1.0, *(cost / min(per_member[:n]) for n, cost in enumerate(per_member) if n)]
    console.print(
        "CPU per member against the least of fewer members: "
        + ", ".join(
            f"{factor:.3f} at {cost.members:,}" for factor, cost in zip(growth, costs, strict=True)
        )
        + " (1 is linear)"
    )
    return [
        ("CPU per member does not grow from 100 to 100,000 members", max(growth) <= GROWTH),
        (
            "commands per poll do not depend on the size, to 100,000",
            len({cost.most_calls_per_poll for cost in costs}) == 1,
        ),
    ]


def run_simulated(members: int) -> SimulatedCost:
    """Plan and poll one ensemble to its end."""
    _run_simulated(100)  # warm-up: one-time costs of the process
    cost = _run_simulated(members)
    console.print(f"{members:7,} simulated members: CPU {cost.total:.2f} s, {cost.polls} polls")
    return cost


def _run_simulated(members: int) -> SimulatedCost:
    table_seconds = 0.0

    def show(views: Sequence[MemberView]) -> None:
        nonlocal table_seconds
        start = time.process_time()
        members_table(views)
        table_seconds += time.process_time() - start

    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        times = [time.process_time()]
        config, plan = plan_ensemble(members, nodes=max(1, members // 800))
        times.append(time.process_time())
        controller = controller_for(Path(folder), config, plan)
        times.append(time.process_time())
        slurm = SimulatedSlurm(RunFolder(Path(folder)).trial(TRIAL), at_once=members // WAVES)
        slurm_commands.run_slurm = slurm
        with counted_calls() as (_, calls_per_poll):
            controller.start()
            times.append(time.process_time())
            failed = controller.run(show)
            times.append(time.process_time())
    assert not failed
    plan_seconds, tasks, submit, follow = (b - a for a, b in pairwise(times))
    return SimulatedCost(
        members=members,
        plan=plan_seconds,
        tasks=tasks,
        submit=submit,
        follow=follow - slurm.cpu_seconds - table_seconds,
        table=table_seconds,
        polls=len(calls_per_poll),
        most_calls_per_poll=max(calls_per_poll),
    )


if __name__ == "__main__":
    sys.exit(main())
