"""Two complete runs with one cache at the same time: each generates its data, both end alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Command

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
COMMAND_SECONDS = 1700  # a busy machine


def result(run: Path) -> tuple[str, str, float]:
    folder = RunFolder(run)
    member = folder.trial(1).member(0)
    score = run_folder.read(Score, folder.score)
    record = run_folder.read(TrainRecord, member.record)
    return record.weights_sha256, score.ensemble_quality, score.operations


def begin(run: Path, cache: Path) -> Command:
    values = {
        "ensemble.size": 1, "parallel.degree": 1, "system.scale": 1, "train.epochs": 1,
        "scheduler.poll_seconds": 0.05, "system.cores_per_slot": 1,
    }  # fmt: skip
    pairs = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    # One folder for temporary files, too: staged copies of the two must not meet.
    variables = {"AI500_CACHE": str(cache), "TMPDIR": str(cache.parent)}
    return Command("run", "--out", run, *pairs, cwd=run.parent, environment=variables)


def test_two_complete_runs_share_a_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    runs = [tmp_path / name for name in ("first", "second")]
    for command in [begin(run, cache) for run in runs]:
        assert command.wait(COMMAND_SECONDS) == 0, command.err
    alone = tmp_path / "alone"
    assert begin(alone, tmp_path / "another cache").wait(COMMAND_SECONDS) == 0
    assert result(runs[0]) == result(runs[1]) == result(alone)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
