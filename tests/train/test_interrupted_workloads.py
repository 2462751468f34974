"""The workloads beyond the papers start without a download, stop on Ctrl-C and continue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Start, wait_for


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("workload", ["language_model", "cosmology", "climate_segmentation"])
def test_ctrl_c_and_resume(start: Start, tmp_path: Path, workload: str) -> None:
    run = tmp_path / "run"
    settings = ["--set", "train.epochs=2", "--set", "ensemble.size=2", "--set", "parallel.degree=1"]
    command = start("run", "--workload", workload, "--out", run, *settings)
    wait_for(run / "trials/01/members/000/events.jsonl", "first_batch", timeout=1200)
    command.interrupt()
    assert command.wait(timeout=600) == 130
    resumed = start("resume", run)
    assert resumed.wait(timeout=1200) == 0, resumed.err
    assert len(json.loads((run / "trials/01/ensemble.json").read_text())["member_qualities"]) == 2
