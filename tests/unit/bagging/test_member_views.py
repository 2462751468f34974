"""Views of members: the estimated time of completion, and collected events."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ai500.bagging.member_views import Collector, MemberView, seconds_to_completion, show
from ai500.core import events
from ai500.jobs.schedulers import PREPARING
from ai500.records.run_folder import RunFolder

NOW = 1000.0


def training(member: int, *, epoch: int, seconds: float) -> MemberView:
    """A member that took so long for its first epochs of ten."""
    view = MemberView(member, state="running", epoch=epoch, epochs=10)
    view.started = NOW - seconds
    return view


def test_a_new_attempt_has_no_pace_before_it_trains() -> None:
    again = training(0, epoch=5, seconds=50)
    again.attempt = 2
    assert again.seconds_left is None
    show(again, {"event": "resumed", "wall": NOW, "attempt": 2, "epoch": 5, "step": 0})
    again.epoch = 6
    assert again.seconds_left is not None


def waiting(member: int, reason: str | None = None) -> MemberView:
    return MemberView(member, reason=reason)


def preparing(member: int) -> MemberView:
    return MemberView(member, state="running", attempt=1, reason=PREPARING)


def test_a_member_prepares_until_its_first_batch() -> None:
    view = preparing(1)
    assert view.shown_state == "preparing"
    show(view, {"event": "first_batch", "wall": NOW, "attempt": 1})
    assert view.shown_state == "running"  # the job before it may still predict
    view.launched = NOW - 7
    assert view.preparation_seconds == 7
    view.attempt = 2
    assert (view.shown_state, view.preparation_seconds) == ("preparing", None)


@pytest.mark.parametrize(
    ("views", "seconds"),
    [
        ([], None),
        ([waiting(0)], None),
        ([training(0, epoch=0, seconds=9)], None),
        ([training(0, epoch=5, seconds=50)], 50),
        ([training(0, epoch=5, seconds=50), training(1, epoch=5, seconds=100)], 100),
        # Later waves: 5 epochs are left of the running one and 20 of the others, at 10 s each.
        ([training(0, epoch=5, seconds=50), waiting(1), waiting(2)], 250),
        ([training(n, epoch=5, seconds=50) for n in (0, 1)] + [waiting(2), waiting(3)], 150),
        # A member that prepares has no pace, and no queue: it begins when the first one ends.
        ([training(0, epoch=5, seconds=50), preparing(1), waiting(2)], 250),
        # Nobody knows how long a queue is.
        ([training(0, epoch=5, seconds=50), waiting(1, "Resources")], None),
        ([training(0, epoch=10, seconds=50), waiting(1)], None),
    ],
)
def test_when_all_members_are_done(
    views: list[MemberView], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    completion = seconds_to_completion(views)
    assert completion == (None if seconds is None else pytest.approx(seconds))


def test_a_restarted_controller_collects_each_event_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    folder = run.trial(1).member(0)
    folder.path.mkdir(parents=True)
    log = events.EventLog(folder.events, trial=1, member=0, attempt=1)
    log.emit("start")
    for _ in range(2):
        Collector(run, trial=1, members=[0]).collect({0: MemberView(0)}, [0])
        log.emit("resumed", epoch=0, step=0)
    Collector(run, trial=1, members=[0]).collect({0: MemberView(0)}, [0])
    assert [e["event"] for e in events.read(run.events)] == ["start", "resumed", "resumed"]


def test_an_end_that_shows_late_is_waited_for(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    folder = run.trial(1).member(0)
    folder.path.mkdir(parents=True)
    log = events.EventLog(folder.events, trial=1, member=0, attempt=1)
    log.emit("start")
    collector, views = Collector(run, trial=1, members=[0]), {0: MemberView(0)}
    collector.await_ends(views, [0], seconds=0)
    assert [e["event"] for e in events.read(run.events)] == ["start"]
    later = threading.Timer(0.3, log.emit, ["end"], {"epoch": 4})
    later.start()
    collector.await_ends(views, [0], seconds=600)
    later.join()
    assert [e["event"] for e in events.read(run.events)] == ["start", "end"]
    assert views[0].epoch == 4
