"""Files of a run that were lost: `resume` mends what its own advice sends a user to it for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ai500.records import EnsembleResult, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Start, processes_of, wait_for

pytestmark = pytest.mark.timeout(400)


def weights(run: Path) -> list[str | None]:
    members = [RunFolder(run).trial(trial).member(m) for trial in (1, 2) for m in (0, 1)]
    return [run_folder.read(TrainRecord, member.record).weights_sha256 for member in members]


def test_events_and_bootstraps_that_were_lost(
    finished_run: Path, start: Start, tmp_path: Path
) -> None:
    """The run's log, a member's log with it, and a bootstrap: one member is trained again."""
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    folder = RunFolder(run)
    folder.events.unlink()
    first = folder.trial(1)
    first.member(0).events.unlink()
    first.bootstrap(0).unlink()
    command = start("score", run)
    assert command.wait() == 1
    assert f"ai500 resume {run}" in command.err
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert weights(run) == weights(finished_run)
    command = start("score", run)
    assert command.wait() == 0, command.err


def test_a_score_does_not_hide_that_a_record_was_lost(
    finished_run: Path, start: Start, tmp_path: Path
) -> None:
    """`ai500 score` needs events only; resume writes the result again that they lack."""
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    lost = RunFolder(run).trial(1).ensemble
    before = run_folder.read(EnsembleResult, lost)
    lost.unlink()
    assert start("score", run).wait() == 0
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert run_folder.read(EnsembleResult, lost) == before


def test_a_run_folder_deleted_while_its_members_train(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = start(
        "run", "--out", run, "--data", tiny_store, "--set", "train.epochs=500",
        "--set", "ensemble.size=1", "--set", "parallel.degree=1", "--set", "system.scale=1",
        "--set", "system.cores_per_slot=1",
    )  # fmt: skip
    wait_for(run / "events.jsonl", "first_batch")
    shutil.rmtree(run)
    assert command.wait() == 2
    assert f"{run} was deleted" in command.err
    assert processes_of(run) == []
