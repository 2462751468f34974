"""Law 2: planning, scoring, reporting and following a run work where torch is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOURCE

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # an import of torch now fails, as where it is not installed
sys.argv = ["ai500", *sys.argv[1:]]
from ai500.cli import main
main()
"""

TORCH_FREE_ROOMS = [
    "ai500",
    "ai500.cli",
    "ai500.config",
    "ai500.pipeline.stages",
    "ai500.pipeline.planning",
    "ai500.records",
    "ai500.records.run_folder",
    "ai500.pipeline.scoring",
    "ai500.workloads.class_data",
    "ai500.bagging.job_controller",
    "ai500.bagging.aggregate",
    "ai500.bagging.tasks",
    "ai500.bagging.data_sampler",
    "ai500.parallel.parallelism_controller",
    "ai500.parallel.data_duplicator",
    "ai500.parallel.topology",
    "ai500.parallel.model_parallelism",
    "ai500.workloads.models.resnet_plan",
    "ai500.metrics.trials",
    "ai500.bagging.score",
    "ai500.meters.recorder",
    "ai500.rules.checks",
    "ai500.rules.document",
    "ai500.rules.comparison",
    "ai500.profile.session",
    "ai500.profile.page",
    "ai500.data.open_store",
    "ai500.data.climate.check",
    "ai500.workloads.climate.writer",
    "ai500.bagging.illustrate",
    "ai500.workloads.climate.illustrations",
    "ai500.pipeline.reporting",
    "ai500.data.image_store",
    "ai500.workloads.image_classification",
    "ai500.operations",
    "ai500.operations.shipped",
    "ai500.train.precision",
    "ai500.train.choices",
    "ai500.train.learning_rate",
]


def without_torch(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("module", TORCH_FREE_ROOMS)
def test_rooms_import_without_torch(module: str) -> None:
    script = f"import sys; sys.modules['torch'] = None; import {module}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_plan_without_torch(tmp_path: Path) -> None:
    done = without_torch(
        "plan", "--class", "full", "--json",
        "--set", "system.device=cuda", "--set", "system.nodes=8",
        "--set", "system.accelerators_per_node=8",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["ensemble_size"], plan["parallel_degree"], plan["system_scale"]) == (8, 8, 64)
    assert plan["operations"]["convention"] == "aiperf"
    assert plan["operations"]["parameters"] == 25_557_032
    assert plan["operations_per_trial"] > 0
    assert len(plan["mapping"]) == 8
    assert plan["estimated_seconds"] is None  # nobody measured it: nothing is invented


def test_score_report_and_status_without_torch(finished_run: Path, tmp_path: Path) -> None:
    before = json.loads((finished_run / "score.json").read_text())
    (finished_run / "report.html").unlink()
    score = without_torch("score", finished_run, "--json", cwd=tmp_path)
    assert score.returncode == 0, score.stderr
    assert json.loads(score.stdout) == before
    report = without_torch("report", finished_run, cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert (finished_run / "report.html").stat().st_size > 10_000
    status = without_torch("status", finished_run, "--json", cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["state"] == "finished"


def test_running_without_torch_says_what_is_missing(tiny_store: Path, tmp_path: Path) -> None:
    done = without_torch("flops", "resnet50", cwd=tmp_path)
    assert done.returncode == 3
    assert "torch" in done.stderr
