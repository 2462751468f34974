"""Submission with a real Slurm: sbatch that fails without saying what it did, and full queues."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ai500.core.errors import JobError
from ai500.core.shell import quoted
from ai500.jobs.schedulers import slurm
from ai500.jobs.schedulers.slurm_conflicts import conflicts
from ai500.jobs.trial_jobs import preview, refusal
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import queue, until
from tests.support.slurm.sleepers import released, sleeping_ensemble

pytestmark = pytest.mark.slow


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The shared cluster is the one this process talks to; failed calls are repeated soon."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.setattr(slurm, "SUBMIT_PAUSE_SECONDS", 0.2)
    return cluster


def install(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of this name first on PATH."""
    folder = folder / "bin"
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    "after",
    [
        "echo 'Your project has 12 hours left.'",
        "kill -KILL $$",
        "exit 3",
        "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1",
    ],
    ids=["no id", "killed", "silent", "timed out"],
)
def test_a_job_is_found_by_its_name_after_an_unclear_sbatch(
    here: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    body = f'/usr/bin/sbatch "$@" >/dev/null\n{after}'
    install(shared_folder, "sbatch", body, monkeypatch)
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    with released(ensemble):
        until("submitted members", lambda: len(ensemble.events("job_submitted")) == 2)
        assert len(queue(here)) == 2
    assert ensemble.wait() == []
    assert len(ensemble.events("start")) == 2


def test_an_sbatch_that_leaves_no_job_names_resume_and_cancel(
    here: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(shared_folder, "sbatch", "kill -KILL $$", monkeypatch)
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    ensemble.start()
    with pytest.raises(JobError) as caught:
        ensemble.wait()
    assert f"ai500 resume {quoted(ensemble.run.path)}" in caught.value.remedy
    assert f"ai500 cancel {quoted(ensemble.run.path)}" in caught.value.remedy
    assert queue(here) == []


def test_without_a_default_members_share_their_node_s_memory(
    make_cluster: Callable[..., Cluster], shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task would take all the memory of its node, and the others would wait."""
    greedy = make_cluster(nodes=1, cpus=4, extra_conf=["DefMemPerCPU=0"])
    monkeypatch.setenv("SLURM_CONF", greedy.environment["SLURM_CONF"])
    settings = {"system.accelerators_per_node": 4}
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable, members=4, **settings)
    assert list(conflicts(ensemble.config, ensemble.plan)) == []
    with released(ensemble):
        until("four at once", lambda: len(ensemble.events("first_batch")) == 4, timeout=60)
        shown = greedy.run("squeue", "--noheader", "--array", "--format=%m")
        assert set(shown.split()) == {"4000M"}
    assert ensemble.wait() == []


def test_what_cannot_run_as_planned_is_what_slurm_refuses(
    here: Cluster, shared_folder: Path
) -> None:
    settings = {"slurm.memory": "20G"}
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable, **settings)
    (problem,) = conflicts(ensemble.config, ensemble.plan)
    assert "0 of 2 jobs fit on a node" in problem
    assert "Set slurm.memory to at most '8000M'" in problem
    scripts = preview(ensemble.run, ensemble.config, ensemble.plan)
    (refused,) = refusal(ensemble.plan, scripts)
    assert "Requested node configuration is not available" in refused
    assert queue(here) == []
    fits = scripts[0][1].replace("--mem=20480M", "--mem=8000M")
    assert fits != scripts[0][1]
    assert refusal(ensemble.plan, [("fits", fits)]) == []


@pytest.mark.long
def test_a_limit_on_jobs_is_met_by_portions(
    make_cluster: Callable[..., Cluster], shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = make_cluster(nodes=2, extra_conf=["MaxJobCount=4", "MinJobAge=2"])
    monkeypatch.setenv("SLURM_CONF", small.environment["SLURM_CONF"])
    monkeypatch.setattr(slurm.SlurmScheduler, "slowest_poll_seconds", 3.0)
    ensemble = sleeping_ensemble(
        shared_folder, python=sys.executable, members=7, **{"system.scale": 4}
    )
    with released(ensemble):
        until("portion", lambda: ensemble.events("job_submitted"))
        first = len(ensemble.events("job_submitted"))
        assert 0 < first < 7
    assert ensemble.wait(240) == []
    submitted = [event["member"] for event in ensemble.events("job_submitted")]
    assert sorted(submitted) == list(range(7))
    assert {event["attempt"] for event in ensemble.events("job_submitted")} == {1}
    assert any("wait until Slurm takes more" in note for note in ensemble.notes)


@pytest.mark.long
def test_the_limits_of_a_qos_are_named_by_the_plan_as_slurm_keeps_them(
    make_cluster: Callable[..., Cluster], shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan says that members would wait; without heeding it, they do."""
    limited = make_cluster(
        nodes=2, accounting=True, extra_conf=["AccountingStorageEnforce=associations,limits,qos"]
    )
    monkeypatch.setenv("SLURM_CONF", limited.environment["SLURM_CONF"])
    for words in (
        "add account lab", "add user root account=lab", "add qos short",
        "modify qos short set MaxTRESPerUser=cpu=1 MaxWall=60",
        "modify user root set qos=normal,short defaultqos=short",
    ):  # fmt: skip
        limited.run("sacctmgr", "--immediate", *words.split())
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    (problem,) = conflicts(ensemble.config, ensemble.plan)
    assert "QOS short allows a user 1 CPUs (MaxTRESPerUser), the plan takes 2" in problem
    with released(ensemble):
        until("first member", lambda: ensemble.events("first_batch"), timeout=120)
        reason = limited.run("squeue", "--noheader", "--array", "--states=PD", "--format=%r")
        assert "QOSMaxCpuPerUserLimit" in reason
    assert ensemble.wait(240) == []
    other = shared_folder / "other"
    other.mkdir()
    free = sleeping_ensemble(other, python=sys.executable, **{"slurm.qos": "normal"})
    assert list(conflicts(free.config, free.plan)) == []
