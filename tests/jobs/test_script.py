"""A script of one's own on a real Slurm: ranks on several nodes, a requeue with its checkpoint."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import (
    Submit,
    jobs,
    member_log,
    run_events,
    wait_for_event,
)
from tests.support.slurm.scripted import written


def test_ranks_of_a_script_span_nodes_and_start_as_a_gang(
    cluster: Cluster, submit: Submit, shared_folder: Path
) -> None:
    run = shared_folder / "run"
    settings = ["system.nodes=4", "ensemble.size=2", "parallel.degree=2", "slurm.start=gang"]
    words = [word for setting in settings for word in ("--set", setting)]
    config = written(shared_folder)
    command = submit(cluster, "run", "--config", config, "--out", run, *words)
    assert command.wait() == 0, command.err
    score = run_folder.read(Score, RunFolder(run).score)
    assert score.complete and score.flops is None
    assert score.members_mean_quality == 0.9
    assert [event["missing"] for event in run_events(run, "barrier")] == [0, 0]
    for member in (0, 1):
        record = run_folder.read(TrainRecord, RunFolder(run).trial(1).member(member).record)
        assert record.world_size == 2
    assert len(run_events(run, "clock")) == 4  # offsets were measured before and after


@pytest.mark.long
def test_a_requeued_script_goes_on_from_its_own_checkpoint(
    cluster: Cluster, submit: Submit, shared_folder: Path
) -> None:
    run = shared_folder / "run"
    settings = ["system.nodes=2", "ensemble.size=2", "parallel.degree=1",
                'slurm.time_limit="1:00:00"', "slurm.checkpoint_signal_seconds=30"]  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    config = written(shared_folder)
    command = submit(cluster, "run", "--config", config, "--out", run, *words, EPOCH_SECONDS="40")
    wait_for_event(command, member_log(run, 1), "epoch")
    job = jobs(run)[1]["id"].partition("m")[0]
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 60))
    cluster.run("scontrol", "update", f"JobId={job}", f"EndTime={end}")
    stopped = wait_for_event(command, member_log(run, 1), "interrupted")
    assert command.wait(600) == 0, command.err
    [resumed] = run_events(run, "resumed", member=1)
    assert (resumed["epoch"], resumed["attempt"]) == (stopped["epoch"], 2)
    assert run_events(run, "job_requeued", member=1)
    assert run_folder.read(Score, RunFolder(run).score).complete
