"""Members followed by their reports in the run folder; Slurm is asked only when one is overdue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.simulated_slurm import TRIAL
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import requests, until
from tests.support.slurm.sleepers import released, sleeping_ensemble

pytestmark = pytest.mark.slow

EVENTS: dict[str, object] = {"scheduler.follow": "events"}


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Make the shared cluster the one that this process's commands reach; no other jobs run."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    cluster.heal()
    return cluster


def test_an_undisturbed_ensemble_is_followed_without_a_request(
    here: Cluster, shared_folder: Path
) -> None:
    ensemble = sleeping_ensemble(
        shared_folder, python=sys.executable, members=16, **EVENTS | {"system.scale": 8}
    )
    reports = ensemble.run.trial(TRIAL).reports
    with released(ensemble):
        until("running members", lambda: len(ensemble.events("job_started")) == 8)
        here.run("sdiag", "--reset")
    assert ensemble.wait() == []
    counted = requests(here)
    assert not [name for name in counted if name.startswith("REQUEST_JOB_INFO")]
    assert counted["REQUEST_COMPLETE_BATCH_SCRIPT"] > 0  # sdiag counts this kind of request
    for kind in ("job_started", "job_ended"):
        assert sorted(event["member"] for event in ensemble.events(kind)) == [*range(16)]
    assert list(reports.iterdir()) == []


def test_a_member_that_reports_a_failure_is_asked_for_and_retried(
    here: Cluster, shared_folder: Path
) -> None:
    settings = EVENTS | {"scheduler.max_retries": 1}
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable, **settings)
    with released(ensemble):
        until("running members", lambda: len(ensemble.events("job_started")) == 2)
        (ensemble.run.trial(TRIAL).member(1).path / "fail").touch()
        until("retry", lambda: len(ensemble.events("job_submitted", member=1)) == 2)
    assert ensemble.wait() == []
    [failure, _] = ensemble.events("job_ended", member=1)
    assert (failure["state"], failure["exit_code"]) == ("failed", 3)


def test_a_member_that_ends_without_a_report_is_overdue(here: Cluster, shared_folder: Path) -> None:
    """One job is cancelled while it runs, and its script with it."""
    settings = EVENTS | {"scheduler.overdue_minutes": 0.05}
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable, **settings)
    with released(ensemble):
        until("running members", lambda: len(ensemble.events("job_started")) == 2)
        here.run("scancel", "--signal=KILL", "--full", ensemble.events("job_submitted")[1]["job"])
        until("end", lambda: ensemble.events("job_ended", member=1))
    assert ensemble.wait() == [1]
    assert ensemble.events("job_ended", member=0)[0]["state"] == "done"
