"""An ensemble of 10,000 members on 1,000 nodes: `plan`, `status` and `report`, each as a command.

    python benchmarks/large_ensemble.py [--members 10000] [--nodes 1000] [--part plan|results]

`plan`: `ai500 plan` on a real Slurm (tests/support/slurm/cluster.py) with a partition of so many
nodes of ten CPUs: it reads the cluster, maps the members, writes the scripts and has Slurm judge
one. The nodes are those of a cloud, which sleep: slurmctld answers as if they were there.

`results`: `ai500 status`, `ai500 score` and `ai500 report` of a run whose members have ended on as
many hosts (tests/support/synthetic_run.py), ten epochs each.

Each command is a process of its own: seconds, processor time and peak memory are all that it takes,
the start of Python included. Slurm's commands are its children, whose processor time counts too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # the repository's root, for the tests' cluster
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.table import Table
from tests.support.slurm.cluster import Cluster
from tests.support.synthetic_run import Shape, write_synthetic_run

from ai500.core import events
from ai500.core.source import PACKAGE
from ai500.core.units import human_bytes
from ai500.records.run_folder import RunFolder

SLOTS = 10
PLAN_SECONDS, PLAN_BYTES, RESULT_SECONDS = 5.0, 500e6, 10.0


@dataclass(frozen=True)
class Cost:
    """Resources of one command."""

    name: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Of the largest process."""


def main() -> int:
    """Measure both parts; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--part", choices=("plan", "results"), help="left out: both")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ai500-large-", dir="/var/tmp"))
    costs: list[Cost] = []
    try:
        if options.part != "results":
            costs += planned(folder, members=options.members, nodes=options.nodes)
        if options.part != "plan":
            costs += results(folder, members=options.members, nodes=options.nodes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("command", "seconds", "CPU seconds", "peak memory")
    for cost in costs:
        table.add_row(
            cost.name, f"{cost.seconds:.2f}", f"{cost.cpu_seconds:.2f}",
            human_bytes(cost.peak_bytes),
        )  # fmt: skip
    Console().print(table)
    missed = [cost.name for cost in costs if not meets_goal(cost)]
    print(f"missed: {', '.join(missed)}" if missed else "every goal is met")
    return 1 if missed else 0


def meets_goal(cost: Cost) -> bool:
    """Compare with the goals: a plan in 5 s and 500 MB, all else in 10 s."""
    if cost.name.startswith("plan"):
        return cost.seconds <= PLAN_SECONDS and cost.peak_bytes <= PLAN_BYTES
    return cost.seconds <= RESULT_SECONDS


def planned(folder: Path, *, members: int, nodes: int) -> Iterator[Cost]:
    """Plan an array and a gang on a real Slurm."""
    lines = [
        f"NodeName=c[1-{nodes}] CPUs={SLOTS} RealMemory=16000 State=CLOUD",
        f"PartitionName=large Nodes=c[1-{nodes}] State=UP",
        "ResumeProgram=/bin/true", "SuspendProgram=/bin/true", "SuspendTime=3600",
        "SuspendExcNodes=n1",
    ]  # fmt: skip
    with Cluster(folder / "cluster", nodes=1, extra_conf=lines) as cluster:
        for start in ("array", "gang"):
            settings = {
                "scheduler.kind": "slurm", "slurm.partition": "large", "slurm.start": start,
                "system.accelerators_per_node": SLOTS, "system.device": "cpu",
                "ensemble.size": members, "parallel.degree": 1,
            }  # fmt: skip
            words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
            yield measured(f"plan, {start}", "plan", *words, environment=cluster.environment)


def results(folder: Path, *, members: int, nodes: int) -> Iterator[Cost]:
    """Read a run whose members have ended."""
    run = folder / "run"
    write_member_logs(
        write_synthetic_run(run, Shape(members=members, nodes=nodes, slots=SLOTS, hosts=nodes))
    )
    files = sum(1 for path in run.rglob("*") if path.is_file())
    print(f"a run of {members:,} members, {files:,} files", flush=True)
    for name in ("status", "score", "report"):
        yield measured(name, name, str(run), environment=dict(os.environ))


def write_member_logs(run: RunFolder) -> None:
    """Write each member's own log, which `status` reads, from the run's."""
    logs: dict[int, list[events.Event]] = {}
    for event in events.read(run.events):
        if "attempt" in event:
            logs.setdefault(event["member"], []).append(event)
    for member, logged in logs.items():
        events.append(run.trial(1).member(member).events, logged)


def measured(name: str, *words: str, environment: dict[str, str]) -> Cost:
    """Run `ai500` to its end; raise its error."""
    program = "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]);"
    program += "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
    program += "print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr);"
    program += "sys.exit(done.returncode)"
    command = [sys.executable, "-c", program, sys.executable, "-m", "ai500", *words]
    began = time.monotonic()
    done = subprocess.run(
        command,
        env=environment | {"PYTHONPATH": str(PACKAGE.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    seconds = time.monotonic() - began
    if done.returncode not in (0, 1):  # 1: a rule is broken
        raise SystemExit(f"ai500 {' '.join(words)}: {done.stderr}")
    cpu_seconds, kilobytes = done.stderr.splitlines()[-1].split()
    return Cost(name, seconds, float(cpu_seconds), 1024 * int(kilobytes))


if __name__ == "__main__":
    sys.exit(main())
