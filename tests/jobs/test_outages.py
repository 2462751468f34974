"""Slurm that does not answer while members are followed: ask again; the jobs do not notice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai500.jobs.schedulers import SchedulerUnavailableError
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import queue, until
from tests.support.slurm.sleepers import Followed, released, sleeping_ensemble

pytestmark = pytest.mark.slow

TROUBLES = """\
#!/bin/sh
# A site's wrapper of squeue: the Nth call behaves as line N of `troubles` says, later calls work.
here=@HERE@
number=$(cat "$here/calls" 2>/dev/null || echo 0)
echo $((number + 1)) >"$here/calls"
case $(sed -n "$((number + 1))p" "$here/troubles") in
  fail) echo 'squeue: error: a text of the future' >&2; exit 42 ;;
  kill) kill -KILL $$ ;;
  banner) echo 'Maintenance on Friday | see the wiki'; exit 0 ;;
  empty) exit 0 ;;
  around) echo 'Welcome!'; @SQUEUE@ "$@"; echo 'Goodbye!' ;;
  *) exec @SQUEUE@ "$@" ;;
esac
"""


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The shared cluster is the one this process talks to."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    yield cluster


def wrap_squeue(folder: Path, troubles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a squeue first on PATH that has these troubles, one in each call."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "troubles").write_text("\n".join(troubles) + "\n")
    program = bin_folder / "squeue"
    text = TROUBLES.replace("@HERE@", f"'{bin_folder}'").replace("@SQUEUE@", "/usr/bin/squeue")
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")


def all_run(ensemble: Followed) -> None:
    members = ensemble.plan.ensemble_size
    # A step that is just being launched would need munge.
    until("running members", lambda: len(ensemble.events("first_batch")) == members)


def test_a_stop_of_munge_is_waited_for(here: Cluster, shared_folder: Path) -> None:
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    with released(ensemble):
        all_run(ensemble)
        here.stop_munge()
        until("outage", lambda: ensemble.events("scheduler_unreachable"))
        here.start_munge()
        until("answer", lambda: ensemble.events("scheduler_reachable"))
    assert ensemble.wait() == []
    assert len(ensemble.events("job_submitted")) == 2
    [outage] = ensemble.events("scheduler_reachable")
    assert outage["seconds"] > 0
    assert any("does not answer" in note for note in ensemble.notes)
    assert any("answers again" in note for note in ensemble.notes)


def test_a_squeue_with_every_trouble_loses_no_member(
    here: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = ["ok", "fail", "kill", "banner", "empty", "around"]
    wrap_squeue(shared_folder, [*troubles, *troubles[1:]], monkeypatch)
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    calls = shared_folder / "bin" / "calls"
    with released(ensemble):
        until("calls", lambda: calls.exists() and int(calls.read_text() or 0) > 12)
    assert ensemble.wait() == []
    assert len(ensemble.events("job_submitted")) == len(ensemble.events("job_ended")) == 2
    assert len(ensemble.events("start")) == 2
    reasons = [event["reason"] for event in ensemble.events("scheduler_unreachable")]
    assert len(reasons) == 2
    assert all("a text of the future" in reason for reason in reasons)
    assert sum("Welcome!" in note for note in ensemble.notes) == 1


def test_members_that_finish_while_slurm_is_silent_are_collected(
    here: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable)
    with released(ensemble):
        all_run(ensemble)
        wrap_squeue(shared_folder, ["fail"] * 1000, monkeypatch)
        until("outage", lambda: ensemble.events("scheduler_unreachable"))
    assert ensemble.wait() == []
    assert ensemble.events("scheduler_reachable") == []
    assert [event["state"] for event in ensemble.events("job_ended")] == ["done", "done"]


def test_the_end_of_patience_leaves_the_jobs_running(
    here: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    settings = {"scheduler.patience_minutes": 0.01}
    ensemble = sleeping_ensemble(shared_folder, python=sys.executable, **settings)
    with released(ensemble):
        all_run(ensemble)
        wrap_squeue(shared_folder, ["fail"] * 1000, monkeypatch)
        with pytest.raises(SchedulerUnavailableError) as caught:
            ensemble.wait()
        assert caught.value.key == "scheduler.patience_minutes"
        assert "a text of the future" in str(caught.value)
        assert "ai500 resume" in caught.value.remedy
        monkeypatch.setenv("PATH", path)
        assert len(queue(here)) == 2
