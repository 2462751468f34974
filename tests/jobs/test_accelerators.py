"""Accelerators of a gang, on a Slurm with real GRES (device files that stand for GPUs).

Nothing can train on these devices: in place of the node agent a script tells what it was given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ai500.records.run_folder import RunFolder
from tests.support.commands import SOURCE
from tests.support.slurm.cluster import Cluster

AGENT = """#!/bin/bash
case "$2" in
  *ai500.jobs.barrier*) exec sleep 600 ;;
  *) [ "$3" = --clear ] || echo "$AI500_MEMBER $(hostname) $CUDA_VISIBLE_DEVICES" >>"$3.seen" ;;
esac
sleep 1
"""


@pytest.mark.parametrize(
    ("sharing", "how", "seen"),
    [
        (1, "auto", {("n1", "0"), ("n1", "1"), ("n2", "0"), ("n2", "1")}),
        (2, "processes", {("n1", "0,1"), ("n2", "0,1")}),
        (2, "auto", {("n1", "0,1"), ("n2", "0,1")}),
    ],
    ids=["one member each", "two members share each", "in one process"],
)
def test_members_of_a_gang_see_their_accelerators(
    make_cluster: Callable[..., Cluster],
    shared_folder: Path,
    sharing: int,
    how: str,
    seen: set[tuple[str, str]],
) -> None:
    cluster = make_cluster(nodes=2, cpus=4, gpus=2)
    agent = shared_folder / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    settings = {
        "slurm.start": "gang", "slurm.python": str(agent), "parallel.degree": 1,
        "ensemble.members_per_accelerator": sharing, "ensemble.size": 4 * sharing,
        "ensemble.sharing": how,
    }  # fmt: skip
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    output = cluster.run(
        "env", f"PYTHONPATH={SOURCE}", sys.executable, "-m", "ai500", "plan", "--json",
        "--scheduler", "slurm", "--class", "workstation", *pairs, cwd=shared_folder,
    )  # fmt: skip
    plan = json.loads(output)
    assert (plan["system_scale"], plan["device"]) == (4, "cuda")
    trial = RunFolder(shared_folder / "runs" / "RUN").trial(1)
    (trial.path / "slurm").mkdir(parents=True)
    for member in range(4 * sharing):
        trial.member(member).path.mkdir(parents=True)
        trial.member(member).record.touch()  # what the script takes for a member's end
    script = shared_folder / "gang.sh"
    script.write_text(next(iter(plan["scripts"].values())))
    job = cluster.run("sbatch", "--parsable", script, cwd=shared_folder).strip()
    cluster.wait_for_job(job, "COMPLETED")
    lines = [line.split() for line in Path(f"{trial.path}.seen").read_text().splitlines()]
    # A process is started for the first of its members.
    started = 4 if how == "auto" else 4 * sharing
    assert sorted(int(member) for member, *_ in lines) == list(range(started))
    places = [(node, devices) for _, node, devices in lines]
    assert set(places) == seen
    assert all(places.count(place) == started // len(seen) for place in seen)
