"""What the controller asks of slurmctld, counted by sdiag, and what it shows of suspended jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import requests, until
from tests.support.slurm.sleepers import released, sleeping_ensemble

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("without_other_jobs")
def test_a_poll_is_one_request_and_never_for_the_whole_job_table(
    cluster: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    settings = {"system.scale": 8, "scheduler.poll_seconds": 0.5}
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable, members=200, **settings)
    with released(ensemble):
        until("running members", lambda: len(ensemble.events("first_batch")) >= 8)
        cluster.run("sdiag", "--reset")
        polls = ensemble.queries
        # The last query may be under way, and not counted yet.
        until("polls", lambda: ensemble.queries >= polls + 6)
        counted, polls = requests(cluster), ensemble.queries - polls
        cluster.run("scancel", "--user=root", "--state=PENDING")
    ensemble.wait()
    assert "REQUEST_JOB_INFO" not in counted
    asked = sum(count for name, count in counted.items() if name.startswith("REQUEST_JOB_"))
    assert 5 <= asked <= polls + 1


@pytest.fixture
def without_other_jobs(cluster: Cluster) -> None:
    cluster.heal()


def test_a_suspended_member_is_shown_and_continues(
    cluster: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    with released(ensemble):
        until("running members", lambda: len(ensemble.events("first_batch")) == 2)
        job = ensemble.events("job_submitted", member=1)[0]["job"]
        cluster.run("scontrol", "suspend", job)
        until("suspension", lambda: ensemble.events("job_suspended"))
        until("view", lambda: ensemble.shown.get(1) == "suspended")
        assert ensemble.shown[0] == "running"
        cluster.run("scontrol", "resume", job)
        until("continuation", lambda: ensemble.events("job_continued"))
    assert ensemble.wait() == []
    assert [event["member"] for event in ensemble.events("job_suspended")] == [1]
    assert [event["member"] for event in ensemble.events("job_continued")] == [1]
