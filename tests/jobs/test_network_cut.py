"""A node that loses its management network, and trains on: Slurm starts its member elsewhere too.

The nodes have a network of their own here, and the file system is not on it. The members are
scripts that sleep.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ai500.records.run_folder import RunFolder
from tests.support.commands import Command
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import (
    Submit,
    halted,
    member_log,
    run_events,
    until,
    wait_for_event,
)
from tests.support.slurm.scripted import attempts, score_of, started

pytestmark = pytest.mark.long

WAITING = "another worker holds this member's lock"


@pytest.fixture
def cut(
    make_cluster: Callable[..., Cluster], submit: Submit, shared_folder: Path
) -> tuple[Cluster, Path, Command, str]:
    """Cut the network of member 0's node while it trains; a copy waits on another node."""
    cluster = make_cluster(nodes=3, net=True)
    run, command = started(
        submit, cluster, shared_folder, "system.nodes=2", "ensemble.size=2", "parallel.degree=1",
        "scheduler.max_retries=0", epoch_seconds=30,
    )  # fmt: skip
    node = ""
    for member in (1, 0):
        node = wait_for_event(command, member_log(run, member), "first_batch")["host"]
    cluster.cut_network(node)
    log = RunFolder(run).trial(1).member(0).log
    until("a copy that waits", lambda: WAITING in log.read_text(), timeout=240)
    assert {e["member"] for e in run_events(run, "job_requeued")} <= {0}
    assert "DOWN" in cluster.node_state(node)
    return cluster, run, command, node


def check(run: Path, command: Command, *, hosts: list[str]) -> None:
    """Check the finished run: member 0 trained on these nodes, to one end."""
    assert command.wait(600) == 0, command.err
    assert score_of(run).complete
    assert attempts(run) == {1}
    assert [e["host"] for e in run_events(run, "start", member=0)] == hosts
    assert {e["epoch"] for e in run_events(run, "epoch", member=0)} == {1, 2, 3, 4}
    assert len(run_events(run, "end", member=0)) == 1
    assert [e["member"] for e in run_events(run, "job_requeued")] == [0]
    assert score_of(run).clock_uncertainty_seconds is not None


def test_the_copy_waits_until_the_member_is_trained(
    cut: tuple[Cluster, Path, Command, str],
) -> None:
    _, run, command, node = cut
    check(run, command, hosts=[node])


def test_the_copy_continues_when_slurm_ends_the_old_job(
    cut: tuple[Cluster, Path, Command, str],
) -> None:
    """The network is back: slurmctld ends the job that it has started elsewhere."""
    cluster, run, command, node = cut
    cluster.restore_network(node)
    second = wait_for_event(command, member_log(run, 0), "resumed", attempt=2)["host"]
    assert second != node
    check(run, command, hosts=[node, second])


def test_the_copy_takes_over_from_a_worker_without_a_heartbeat(
    cut: tuple[Cluster, Path, Command, str],
) -> None:
    _, run, command, node = cut
    with ExitStack() as stack:
        stack.enter_context(halted(run, 0))
        second = wait_for_event(command, member_log(run, 0), "resumed", attempt=2, timeout=400)[
            "host"
        ]
        assert second != node
    # The old worker wakes, and learns that it has been replaced.
    check(run, command, hosts=[node, second])


def test_a_worker_that_wakes_after_its_copy_has_trained_the_member_ends(
    cut: tuple[Cluster, Path, Command, str],
) -> None:
    _, run, command, node = cut
    with halted(run, 0) as pids:
        second = wait_for_event(command, member_log(run, 0), "resumed", attempt=2, timeout=400)[
            "host"
        ]
        check(run, command, hosts=[node, second])
        record = RunFolder(run).trial(1).member(0).record
        written = record.read_bytes()
    until("end of the old worker", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert record.read_bytes() == written
