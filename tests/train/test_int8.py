"""INT8 through `ai500 run`: what issue 5 asks of it on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import Start


def run(start: Start, folder: Path, *settings: str) -> float:
    """The ensemble's quality."""
    pairs = [part for setting in settings for part in ("--set", setting)]
    command = start("run", "--out", folder, *pairs)
    assert command.wait(timeout=1700) == 0, command.err
    return float(json.loads((folder / "score.json").read_text())["ensemble_quality"])


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_member_trains_in_int8_and_says_so(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run(
        start, folder, f"data.path={tiny_store}", "train.precision=int8", "train.epochs=1",
        "train.warmup_epochs=0", "ensemble.size=1", "parallel.degree=1", "system.scale=1",
        "train.batch_size=16", "train.accumulation=4", "train.optimizer=lars",
    )  # fmt: skip
    record = run_folder.read(TrainRecord, RunFolder(folder).trial(1).member(0).record)
    numerics = record.effective["numerics"]
    assert numerics["precision"] == "int8"
    assert "stem.0" in numerics["own_products"]
    assert numerics["other_products"] == []
    assert record.effective["optimizer"] == "LARS"
    assert record.steps == 512 // 64  # optimizer steps, not micro-steps [D12]
    findings = run_folder.read_json(folder / "findings.json")
    assert "chosen precision" in {finding["rule"] for finding in findings}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_smoke_in_int8_is_within_two_points_of_fp32(start: Start, tmp_path: Path) -> None:
    settings = ("parallel.degree=1", "run.seed=21")
    exact = run(start, tmp_path / "fp32", *settings)
    rounded = run(start, tmp_path / "int8", *settings, "train.precision=int8")
    print(f"\nfp32 {exact:.4f}, int8 {rounded:.4f}")
    assert abs(rounded - exact) <= 0.02
