"""Members that share a process are one step of a gang [D11]."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import (
    Results,
    Submit,
    jobs,
    member_log,
    results,
    run_events,
    wait_for_event,
)


@pytest.mark.long
def test_a_process_of_three_members_is_killed_and_starts_again(
    cluster: Cluster, run_ensemble: Submit, undisturbed: Results, shared_folder: Path
) -> None:
    run = shared_folder / "run"
    shared = {
        "slurm.start": "gang", "system.nodes": 1, "ensemble.members_per_accelerator": 3,
        "ensemble.sharing": "process", "scheduler.max_retries": 1,
    }  # fmt: skip
    command = run_ensemble(cluster, run, shared)
    wait_for_event(command, member_log(run, 2), "epoch")
    pids = {wait_for_event(command, member_log(run, member), "start")["pid"] for member in range(3)}
    assert len(pids) == 1
    worker = next(
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_worker(entry, run)
    )
    os.kill(worker, signal.SIGKILL)
    assert command.wait(300) == 0, command.err
    assert results(run) == undisturbed
    assert len({jobs(run)[member]["id"] for member in range(3)}) == 1
    assert [event["attempt"] for event in run_events(run, "resumed")] == [2, 2, 2]
    assert len(run_events(run, "job_submitted")) == 6
    submission = json.loads((run / "trials/01/slurm/001.json").read_text())
    assert submission["processes"] == [[0, 1, 2]]


def _is_worker(entry: Path, run: Path) -> bool:
    """Recognize a worker by its command line: process ids differ in a node's namespace."""
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:3] == [b"-m", b"ai500.train.worker"] and str(run).encode() in words[3]
