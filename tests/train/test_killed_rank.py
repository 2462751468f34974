"""A single rank of several is killed: the result is the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Command, Start, processes_of, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(850)]


def settings(**more: Any) -> list[str]:
    values = {
        "ensemble.size": 1,
        "parallel.degree": 1,
        "train.epochs": 6,
        "train.checkpoint_minutes": 0.002,
        "scheduler.poll_seconds": 0.05,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
        **more,
    }
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def result(run: Path) -> dict[str, Any]:
    folder = RunFolder(run)
    score = run_folder.read(Score, folder.score)
    return {
        "weights": run_folder.read(
            TrainRecord, folder.trial(1).member(0).record
        ).weights_sha256,
        "quality": score.ensemble_quality,
        "operations": score.operations,
    }  # fmt: skip


@pytest.fixture(scope="module")
def finished(
    tiny_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], dict[str, Any]]:
    """The result of an undisturbed run of one member over so many ranks."""
    made: dict[int, dict[str, Any]] = {}

    def finish(degree: int) -> dict[str, Any]:
        if degree not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            command = Command(
                "run", "--out", folder / "run", "--data", tiny_store,
                *settings(**{"parallel.degree": degree}),
                cwd=folder, environment={"TMPDIR": str(folder)},
            )  # fmt: skip
            assert command.wait() == 0, command.err
            assert [path.name for path in folder.iterdir()] == ["run"]  # no temporary files
            made[degree] = result(folder / "run")
        return made[degree]

    return finish


def ranks(run: Path) -> list[int]:
    """List the processes of a member that torchrun started."""
    found = []
    for process in processes_of(run):
        try:
            environment = Path("/proc", str(process), "environ").read_bytes()
        except OSError:
            continue
        if b"TORCHELASTIC_RUN_ID=" in environment:
            found.append(process)
    return sorted(found)


@pytest.mark.parametrize("which", [0, 1])
def test_a_single_rank_of_two_is_killed(
    which: int,
    finished: Callable[[int], dict[str, Any]],
    tiny_store: Path,
    start: Start,
    tmp_path: Path,
) -> None:
    expected, run = finished(2), tmp_path / "run"
    command = start("run", "--out", run, "--data", tiny_store, *settings(**{"parallel.degree": 2}))
    wait_for(RunFolder(run).trial(1).member(0).events, "epoch")
    both = ranks(run)
    assert len(both) == 2
    os.kill(both[which], signal.SIGKILL)
    assert command.wait() == 1
    assert "SIGKILL" in command.err
    assert processes_of(run) == []
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert result(run) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # nor those of the killed
