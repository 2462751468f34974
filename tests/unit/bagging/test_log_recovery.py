"""Members' logs that were lost or cut: restored from the run's log, or the member is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.bagging.log_recovery import recover_logs
from ai500.bagging.member_views import Collector, MemberView
from ai500.core import events, schema
from ai500.records import Plan
from ai500.records.checkpoint_file import generations
from ai500.records.run_folder import MemberFolder, RunFolder
from tests.support.synthetic_run import OPERATIONS, Shape, make_plan

PLAN: Plan = make_plan(Shape(members=1, epochs=2))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose one member has finished; its events are in both logs."""
    run = RunFolder(tmp_path / "run")
    folder = member_of(run)
    folder.path.mkdir(parents=True)
    train(folder, epochs=2)
    folder.record.write_text("{}")
    for file in folder.checkpoints:
        for generation in generations(file):
            generation.write_text("")
    collect(run)
    return run


def member_of(run: RunFolder) -> MemberFolder:
    return run.trial(1).member(0)


def train(folder: MemberFolder, *, epochs: int, attempt: int = 1) -> None:
    log = events.EventLog(folder.events, trial=1, member=0, attempt=attempt)
    log.emit("start", pid=1)
    log.emit("first_batch")
    for epoch in range(1, epochs + 1):
        log.emit("epoch", epoch=epoch, samples=32, steps=1)
        log.emit("quality", epoch=epoch, quality=0.5)
    log.emit("end")
    log.emit("operations", **schema.encode(OPERATIONS))


def collect(run: RunFolder) -> None:
    Collector(run, trial=1, members=[0]).collect({0: MemberView(0)}, [0])


def recover(run: RunFolder) -> list[str]:
    recover_logs(run, PLAN, trial=1, log=events.EventLog(run.events))
    kinds = ("member_log_restored", "member_repeated")
    return [e["event"] for e in events.read(run.events) if e["event"] in kinds]


def identities(path: Path) -> list[tuple[int, str]]:
    return [(event["sequence"], event["event"]) for event in events.read(path)]


def test_logs_that_agree_stay_as_they_are(run: RunFolder) -> None:
    before = member_of(run).events.read_bytes()
    assert recover(run) == []
    assert member_of(run).events.read_bytes() == before


@pytest.mark.parametrize("kept_lines", [0, 1, 3])
def test_a_lost_or_cut_log_is_restored_from_the_runs(run: RunFolder, kept_lines: int) -> None:
    path = member_of(run).events
    before = identities(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept_lines]))
    assert recover(run) == ["member_log_restored"]
    assert identities(path) == before
    assert member_of(run).record.exists()


def test_events_of_a_log_that_began_again_follow_the_lost_ones(run: RunFolder) -> None:
    folder = member_of(run)
    count = len(identities(folder.events))
    folder.events.unlink()
    events.EventLog(folder.events, trial=1, member=0, attempt=2).emit("resumed", epoch=2, step=0)
    assert recover(run) == ["member_log_restored"]
    assert identities(folder.events)[-1] == (count + 1, "resumed")
    collect(run)  # is not taken for an event that the run has
    assert [e["event"] for e in events.read(run.events)].count("resumed") == 1


def test_a_finished_member_without_events_anywhere_is_repeated(run: RunFolder) -> None:
    folder = member_of(run)
    run.events.unlink()
    folder.events.unlink()
    assert recover(run) == ["member_repeated"]
    assert not folder.record.exists()
    assert not list(folder.path.glob("checkpoint*"))


def test_one_lost_epoch_is_enough(run: RunFolder) -> None:
    folder = member_of(run)
    run.events.unlink()
    lines = folder.events.read_text().splitlines(keepends=True)
    folder.events.write_text("".join(line for line in lines if '"epoch": 1' not in line))
    recover(run)
    (repeated,) = [e for e in events.read(run.events) if e["event"] == "member_repeated"]
    assert repeated["missing"] == ["epoch 1"]
