"""The ReFrame test of `packaging/`, run by ReFrame itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs_examples import ROOT


def reframe(folder: Path, store: Path, *options: str) -> subprocess.CompletedProcess[str]:
    settings = [
        f"data.path={store}", "train.epochs=1", "ensemble.size=2", "parallel.degree=1",
        "system.accelerators_per_node=2", "system.cores_per_slot=1",
    ]  # fmt: skip
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [
            sys.executable, "-c", "from reframe.frontend.cli import main; main()",
            "-c", ROOT / "packaging" / "reframe",
            "--prefix", folder, "--report-file", folder / "report.json", "--run",
            "-S", f"Ai500.settings={','.join(settings)}", *options,
        ],
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip


@pytest.mark.long
def test_reframe_runs_a_class_and_reads_its_figures(tiny_store: Path, tmp_path: Path) -> None:
    passed = reframe(tmp_path, tiny_store)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    (case,) = report["runs"][0]["testcases"]
    figures = {key.rpartition(":")[2]: value[0] for key, value in case["perfvalues"].items()}
    assert figures["vflops"] > 0
    assert 0 <= figures["quality"] <= 1


@pytest.mark.long
def test_a_run_that_fails_fails_in_reframe(tiny_store: Path, tmp_path: Path) -> None:
    failed = reframe(tmp_path, tiny_store, "-S", "Ai500.workload=no_such_workload")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "FAILED" in failed.stdout
