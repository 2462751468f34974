"""A damaged checkpoint is not resumed: the weights are the same, and a finding says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ai500.records import TrainRecord, run_folder
from ai500.records.checkpoint_file import previous
from ai500.records.run_folder import MemberFolder, RunFolder
from tests.support.commands import Command, Start, wait_for

pytestmark = pytest.mark.timeout(400)
MEMBERS = (0, 1)


def settings(store: Path) -> list[str | Path]:
    values = {
        "ensemble.size": len(MEMBERS),
        # Many more than two: a member must not end before the other has begun.
        "train.epochs": 16,
        "train.checkpoint_minutes": 0.002,
        "scheduler.poll_seconds": 0.05,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
    }
    pairs = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return ["--data", store, *pairs]


def member(run: Path, number: int) -> MemberFolder:
    return RunFolder(run).trial(1).member(number)


def weights(run: Path) -> list[str | None]:
    return [run_folder.read(TrainRecord, member(run, m).record).weights_sha256 for m in MEMBERS]


@pytest.fixture(scope="module")
def undisturbed(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    command = Command(
        "run", "--out", folder / "run", *settings(tiny_store), cwd=folder,
        environment={"TMPDIR": str(folder)},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    assert not previous(member(folder / "run", 0).checkpoint).exists()
    return folder / "run"


@pytest.fixture
def stopped(tiny_store: Path, start: Start, tmp_path: Path) -> Path:
    """A run that was cancelled after both members had written several checkpoints."""
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store))
    for number in MEMBERS:
        wait_for(member(run, number).events, "epoch", where=lambda event: event["epoch"] == 2)
    command.interrupt()
    assert command.wait() == 130, command.err
    return run


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.long
def test_damaged_checkpoints_end_with_the_same_weights(
    stopped: Path, undisturbed: Path, start: Start
) -> None:
    first, second = (member(stopped, number).checkpoint for number in MEMBERS)
    shutil.copyfile(second, first)  # another member's
    for generation in (second, previous(second)):
        flip(generation)
    command = start("resume", stopped)
    assert command.wait() == 0, command.err
    assert weights(stopped) == weights(undisturbed)
    resumed = wait_for(member(stopped, 0).events, "resumed", timeout=1)
    assert (resumed["epoch"], resumed["step"]) > (0, 0)  # the one before was good
    findings = run_folder.read_json(RunFolder(stopped).findings)
    damaged = [each["run"] for each in findings if each["rule"] == "intact checkpoints"]
    assert sorted(damaged) == ["checkpoint.pt", "checkpoint.pt", "checkpoint.pt.previous"]
    assert "is damaged" in member(stopped, 1).log.read_text()
