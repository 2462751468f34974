"""Members whose nodes a better job takes: they continue, use no retry, and keep their clocks.

The members are scripts that sleep; Slurm preempts their jobs as its sites configure it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai500.records.run_folder import RunFolder
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, member_log, run_events, until, wait_for_event
from tests.support.slurm.scripted import attempts, findings, score_of, started

pytestmark = pytest.mark.long

MakeCluster = Callable[..., Cluster]
GRACE_SECONDS = 60


def preempting(mode: str, *, grace_seconds: int) -> list[str]:
    """Return lines of slurm.conf: jobs of the partition `better` preempt those of `worse`."""
    return [
        "PreemptType=preempt/partition_prio",
        f"PreemptMode={mode}",
        f"PartitionName=worse Nodes=ALL PriorityTier=1 GraceTime={grace_seconds} State=UP",
        "PartitionName=better Nodes=ALL PriorityTier=10 State=UP",
    ]


@contextmanager
def better_job(cluster: Cluster, folder: Path, *, node: str) -> Iterator[None]:
    """Take a node from its job for the duration of the context."""
    enough = folder / "enough"
    job = cluster.run(
        "sbatch", "--parsable", "--partition=better", f"--nodelist={node}", "--exclusive",
        "--output=/dev/null", f"--wrap=until [ -e '{enough}' ]; do sleep 0.2; done",
    ).strip()  # fmt: skip
    cluster.wait_for_job(job, "RUNNING", timeout=240)
    try:
        yield
    finally:
        enough.touch()


@pytest.mark.parametrize(
    ("mode", "grace_seconds", "submissions"),
    [
        pytest.param("REQUEUE", 0, {1}, id="requeued"),
        pytest.param("CANCEL", 0, {1, 2}, id="cancelled"),
        # The member writes its checkpoint in the grace time, and its script requeues the job.
        pytest.param("CANCEL", GRACE_SECONDS, {1}, id="cancelled after a grace time"),
    ],
)
def test_a_preempted_member_continues_and_uses_no_retry(
    make_cluster: MakeCluster, submit: Submit, shared_folder: Path,
    mode: str, grace_seconds: int, submissions: set[int],
) -> None:  # fmt: skip
    cluster = make_cluster(nodes=2, extra_conf=preempting(mode, grace_seconds=grace_seconds))
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=2", "ensemble.size=2", "parallel.degree=1",
        "slurm.partition=worse", "scheduler.max_retries=0", epoch_seconds=8,
    )  # fmt: skip
    for member in (0, 1):
        taken = wait_for_event(command, member_log(run, member), "first_batch")["host"]
    with better_job(cluster, shared_folder, node=taken):
        until(
            "end of the attempt",
            lambda: run_events(run, "job_requeued") or attempts(run) != {1},
            timeout=240,
        )
    assert command.wait(600) == 0, command.err
    assert attempts(run) == submissions
    requeued = [e["member"] for e in run_events(run, "job_requeued")]
    assert requeued == ([1] if submissions == {1} else [])
    assert [e["attempt"] for e in run_events(run, "start", member=1)] == [1, 2]
    assert [e["attempt"] for e in run_events(run, "start", member=0)] == [1]
    assert {e["epoch"] for e in run_events(run, "epoch", member=1)} == {1, 2, 3, 4}
    assert score_of(run).complete


def test_a_preempted_gang_keeps_its_clocks(
    make_cluster: MakeCluster, submit: Submit, shared_folder: Path
) -> None:
    """It continues on another node, which serves another reference clock."""
    cluster = make_cluster(nodes=3, extra_conf=preempting("REQUEUE", grace_seconds=0))
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=2", "ensemble.size=2", "parallel.degree=1",
        "slurm.partition=worse", "slurm.start=gang", "scheduler.max_retries=0", epoch_seconds=6,
    )  # fmt: skip
    hosts = [
        wait_for_event(command, member_log(run, member), "first_batch")["host"] for member in (0, 1)
    ]
    with better_job(cluster, shared_folder, node=min(hosts)):
        assert command.wait(600) == 0, command.err
    assert {e["host"] for e in run_events(run, "end")} == set(cluster.names) - {min(hosts)}
    assert attempts(run) == {1}
    assert {e["member"] for e in run_events(run, "job_requeued")} == {0, 1}
    references = {e["host"]: set[str]() for e in run_events(run, "clock")}
    for event in run_events(run, "clock"):
        references[event["host"]].add(event["reference"])
    assert [host for host, compared in references.items() if len(compared) == 2] == [max(hosts)]
    score = score_of(run).trials[0]
    assert score.complete
    assert score.clock_uncertainty_seconds is not None
    ends = [e["monotonic"] for e in run_events(run, "end")]
    begins = [e["monotonic"] for e in run_events(run, "first_batch")]  # one kernel, one clock
    assert score.seconds == pytest.approx(max(ends) - min(begins), abs=1)
    rules = findings(submit, cluster, run)
    assert not {"clocks agree", "clocks compared", "window in order"} & rules.keys(), rules
    assert not list(RunFolder(run).trial(1).path.glob("members/*/exit*"))
