"""Searches on a real Slurm: several workers on nodes of their own, and one that spans nodes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ai500.automl.history import HISTORY_FILE, History
from ai500.records.run_folder import RunFolder
from tests.support.searches import check
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, run_events, starts, wait_for_event, workers

SEARCH: dict[str, object] = {
    "workload": "automl",
    "automl.batch_sizes": [32, 64],
    "automl.minutes": 8 / 60,
    "train.epochs": 2,
}


def test_three_workers_share_a_history(
    cluster: Cluster, run_ensemble: Submit, shared_folder: Path
) -> None:
    run = shared_folder / "a search; 'of three'"
    command = run_ensemble(cluster, run, SEARCH)
    assert command.wait() == 0, command.err
    check(run, workers=3)
    assert {event["host"] for event in run_events(run, "start")} <= set(cluster.names)
    assert starts(run) == {0: 1, 1: 1, 2: 1}
    history = History(RunFolder(run).trial(1).path / "members")
    lines = history.refresh()
    assert {line.event["host"] for line in lines} == {e["host"] for e in run_events(run, "start")}
    assert {model.worker for model in history.models.values()} == {0, 1, 2}


@pytest.mark.long
def test_a_worker_that_spans_nodes_is_killed_and_repeated(
    cluster: Cluster, run_ensemble: Submit, shared_folder: Path
) -> None:
    run = shared_folder / "run"
    settings = SEARCH | {
        "ensemble.size": 2, "parallel.degree": 2, "system.nodes": 4, "scheduler.max_retries": 1,
        "automl.minutes": 15 / 60,
    }  # fmt: skip
    command = run_ensemble(cluster, run, settings)
    wait_for_event(command, RunFolder(run).trial(1).member(0).path / HISTORY_FILE, "ended")
    os.kill(workers(run, 0)[0], signal.SIGKILL)
    assert command.wait() == 0, command.err
    check(run, workers=2)
    assert starts(run)[0] == 2
