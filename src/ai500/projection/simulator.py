"""Seconds of rounds of transfers on a platform: SimGrid between nodes, α + bytes/β inside them.

SimGrid runs in a process of its own, because it holds one simulation per process, and because
Debian's package belongs to Debian's Python: the process uses nothing but SimGrid and the standard
library, so any Python that has SimGrid can run it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ai500.core.errors import AI500Error, EnvironmentLacksError
from ai500.projection.platform import FOLDED_NODES, Platform, endpoint, part_of
from ai500.projection.traffic import Round

WORKER = Path(__file__).with_name("simulation_worker.py")
INSTALL = (
    "Install Debian's python3-simgrid (apt install), or build SimGrid with CMake, Boost and a C++ "
    "compiler: pip install 'pybind11<3' setuptools, then "
    "pip install --no-build-isolation 'ai500[project]'."
)


@cache
def simgrid_python() -> str | None:
    """Return a Python interpreter that has SimGrid's module; None: there is none."""
    # This interpreter first; then the system's, whose packages a virtual environment does not see.
    pythons = [sys.executable, shutil.which("python3", path=os.defpath)]
    for python in filter(None, pythons):
        answer = subprocess.run(
            [python, "-c", "import simgrid"], capture_output=True, env=_environment(), check=False
        )
        if answer.returncode == 0:
            return python
    return None


def _environment() -> dict[str, str]:
    """Return this environment without another interpreter's packages."""
    names = ("PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in names}


def require_simgrid() -> str:
    """Return the interpreter that runs SimGrid; raise EnvironmentLacksError without one."""
    python = simgrid_python()
    if python is None:
        raise EnvironmentLacksError(
            "`ai500 project` needs SimGrid's Python module, which is not installed.",
            remedy=INSTALL,
        )
    return python


def simulate(
    platform: Platform, nodes: int, groups: Sequence[Sequence[dict[tuple[int, int], float]]]
) -> list[list[float]]:
    """Return the seconds of each round of flows (node, node → bytes), group by group.

    `nodes` is the number of the member's nodes, of which the flows may use the first ones only.
    """
    used = 1 + max((max(pair) for group in groups for flows in group for pair in flows), default=0)
    described, place = part_of(platform, nodes=nodes, used=used)
    flat = [flows for group in groups for flows in group]
    distinct: dict[tuple[tuple[tuple[int, int], float], ...], int] = {}
    jobs: list[list[tuple[int, int, int]]] = []
    places = []
    for flows in flat:
        key = tuple(sorted(flows.items()))
        if key not in distinct:
            distinct[key] = len(jobs)
            moved = {
                (place(sender), place(receiver)): size for (sender, receiver), size in flows.items()
            }
            jobs.append(_endpoint_flows(platform, described, moved))
        places.append(distinct[key])
    seconds = _run({"shape": described, "rounds": jobs}) if any(jobs) else [0.0] * len(jobs)
    # Every message of a round begins at once and has this latency, so that it is simply added.
    start = platform.endpoint_latency_seconds
    answers = iter(seconds[index] + start if jobs[index] else 0.0 for index in places)
    return [[next(answers) for _ in group] for group in groups]


def staging_seconds(*, nodes: int, bytes_per_node: float, file_system: float, node: float) -> float:
    """Return the time in which all nodes read their bytes from the shared file system at once.

    Nodes are alike: of many a part stands for all, with its part of the file system.
    """
    part = min(nodes, FOLDED_NODES)
    file_system *= part / nodes
    star = {
        "kind": "fat_tree", "down": [part + 1], "up": [1], "parallel": [1],
        "bytes_per_second": file_system, "latency_seconds": 0.0,
        "limit": min(node, file_system),
    }  # fmt: skip
    size = max(1, round(bytes_per_node))
    return _run({"shape": star, "rounds": [[(0, 1 + i, size) for i in range(part)]]})[0]


def _endpoint_flows(
    platform: Platform, described: dict[str, Any], flows: dict[tuple[int, int], float]
) -> list[tuple[int, int, int]]:
    """Stripe each pair of nodes over the rails, as communication libraries do."""
    rails = int(described["rails"])
    return [
        (endpoint(described, sender, rail), endpoint(described, receiver, rail),
         max(1, round(size / platform.rails)))
        for (sender, receiver), size in flows.items()
        for rail in range(rails)
    ]  # fmt: skip


def _run(job: dict[str, Any]) -> list[float]:
    done = subprocess.run(
        [require_simgrid(), str(WORKER)],
        input=json.dumps(job), capture_output=True, text=True, env=_environment(), check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        critical = next((line for line in lines if "CRITICAL" in line), None)
        killed = done.returncode < 0 or not lines
        last = f"exit code {done.returncode}" if killed else lines[-1]
        raise AI500Error(f"SimGrid failed: {critical or last}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def collective_seconds(
    platform: Platform,
    nodes: Sequence[int],
    jobs: Sequence[Sequence[Round]],
    *,
    sharing: int = 1,
) -> list[float]:
    """Return the seconds of each job: its rounds one after another, each as often as it is made.

    `nodes` has the node of each rank. Transfers between the same nodes in a round are one flow.
    `sharing` groups of ranks like these send between the same nodes at the same time.
    """
    groups, inside = [], []
    for rounds in jobs:
        flows, local = [], []
        for item in rounds:
            between, largest = _folded(item, nodes)
            flows.append({pair: sharing * size for pair, size in between.items()})
            local.append(largest)
        groups.append(flows)
        inside.append(local)
    simulated = simulate(platform, max(nodes) + 1, groups)
    results = []
    for rounds, network, local in zip(jobs, simulated, inside, strict=True):
        total = 0.0
        for item, between_seconds, largest in zip(rounds, network, local, strict=True):
            seconds = between_seconds
            if largest:
                own = platform.link_latency_seconds + largest / platform.link_bytes_per_second
                seconds = max(seconds, own)
            total += item.times * seconds
        results.append(total)
    return results


def _folded(item: Round, nodes: Sequence[int]) -> tuple[dict[tuple[int, int], float], float]:
    """Return bytes between nodes, and the most that one accelerator sends or receives inside."""
    between: dict[tuple[int, int], float] = defaultdict(float)
    sent: dict[int, float] = defaultdict(float)
    received: dict[int, float] = defaultdict(float)
    for sender, receiver, size in item.transfers:
        source, target = nodes[sender], nodes[receiver]
        if source != target:
            between[source, target] += size
        else:
            sent[sender] += size
            received[receiver] += size
    return dict(between), max([0.0, *sent.values(), *received.values()])
