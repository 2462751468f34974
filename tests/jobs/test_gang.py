"""Gangs on a real Slurm: one step for all members, which do not end with each other.

Members are sleepers; the batch script, the gang's agents and the barrier server are real.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_slurm import TRIAL
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import until
from tests.support.slurm.sleepers import Followed, released, sleeping_ensemble

pytestmark = pytest.mark.slow

ON_EACH = 2  # slots of a node


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Make the shared cluster the one that this process's commands reach."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    return cluster


def gang(folder: Path, *, members: int, **settings: object) -> Followed:
    chosen = {"slurm.start": "gang", "system.scale": 8, **settings}
    return sleeping_ensemble(folder, python=sys.executable, members=members, **chosen)


def places(ensemble: Followed, member: int) -> list[list[str]]:
    """Read node index, node and accelerators of each process that the member has started."""
    file = ensemble.run.trial(TRIAL).member(member).path / "places"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def test_a_gang_is_one_step_in_which_a_failed_member_ends_no_other(
    here: Cluster, shared_folder: Path
) -> None:
    ensemble = gang(shared_folder, members=8, **{"scheduler.max_retries": 1})
    trial = ensemble.run.trial(TRIAL)
    with released(ensemble):
        until("running members", lambda: len(ensemble.events("first_batch")) == 8)
        job = ensemble.events("job_submitted")[0]["job"].partition("m")[0]
        steps = here.run("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i")
        numbered = [step for step in steps.split() if step.rpartition(".")[2].isdigit()]
        assert len(numbered) == 2  # the members, and the barrier server
        (trial.member(3).path / "fail").touch()
        exits = trial.path / "slurm" / "001.exits"
        until("end of member 3", lambda: exits.read_text() == "3 3\n")
        assert len(ensemble.events("job_ended")) == 0  # the gang still runs
    assert ensemble.wait() == []
    assert sorted(exits.read_text().splitlines()) == [f"{m} {3 if m == 3 else 0}" for m in range(8)]
    assert [event["attempt"] for event in ensemble.events("job_submitted", member=3)] == [1, 2]
    assert len(ensemble.events("job_submitted")) == 9
    nodes = [places(ensemble, member)[0][1] for member in range(8)]
    assert {node: nodes.count(node) for node in nodes} == dict.fromkeys(here.names, ON_EACH)


@pytest.mark.long
def test_a_gang_of_members_that_straddle_nodes(here: Cluster, shared_folder: Path) -> None:
    """Two members of three slots on three nodes of two [D17]."""
    settings = {"parallel.degree": 3, "system.scale": 6, "system.nodes": 3}
    ensemble = gang(shared_folder, members=2, **settings)
    with released(ensemble):
        until("processes", lambda: all(len(places(ensemble, m)) == 2 for m in (0, 1)))
    assert ensemble.wait() == []
    for member in (0, 1):
        assert sorted(place[0] for place in places(ensemble, member)) == ["0", "1"]
    assert len({place[1] for member in (0, 1) for place in places(ensemble, member)}) == 3


@pytest.mark.long
def test_waves_of_a_gang_follow_each_other_and_a_cancel_ends_them(
    here: Cluster, shared_folder: Path
) -> None:
    ensemble = gang(shared_folder, members=16)
    trial = ensemble.run.trial(TRIAL)
    with released(ensemble):
        until("first wave", lambda: len(ensemble.events("first_batch")) == 8)
        job = ensemble.events("job_submitted")[0]["job"].partition("m")[0]
        ensemble.run.cancel_request.touch()
        until("end", lambda: isinstance(ensemble.error, KeyboardInterrupt))
        ensemble.controller().cancel()
        assert here.run("squeue", "--noheader", f"--jobs={job}") == ""
    assert [event["member"] for event in ensemble.events("interrupted")] == [*range(8)]
    assert not any(trial.member(member).events.exists() for member in range(8, 16))
    exits = (trial.path / "slurm" / "001.exits").read_text().splitlines()
    assert sorted(exits) == sorted(f"{member} 75" for member in range(16))


@pytest.mark.parametrize(
    ("sharing", "seen"),
    [
        (1, {("n1", "0"), ("n1", "1"), ("n2", "0"), ("n2", "1")}),
        (2, {("n1", "0,1"), ("n2", "0,1")}),
    ],
    ids=["one member each", "two members share each"],
)
def test_members_of_a_gang_see_their_accelerators(
    make_cluster: Callable[..., Cluster],
    shared_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sharing: int,
    seen: set[tuple[str, str]],
) -> None:
    """The accelerators are Slurm's GRES: device files that stand for GPUs."""
    cluster = make_cluster(nodes=2, cpus=4, gpus=2)
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    settings = {
        "system.scale": 4, "system.device": "cuda", "system.accelerators_per_node": None,
        "ensemble.members_per_accelerator": sharing, "ensemble.sharing": "processes",
    }  # fmt: skip
    ensemble = gang(shared_folder, members=4 * sharing, **settings)
    with released(ensemble):
        until("members", lambda: len(ensemble.events("first_batch")) == 4 * sharing)
    assert ensemble.wait() == []
    found = [tuple(places(ensemble, member)[0][1:]) for member in range(4 * sharing)]
    assert set(found) == seen
    assert all(found.count(place) == 4 * sharing // len(seen) for place in found)
