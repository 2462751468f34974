"""All-reduce in every mode × precision, on real processes over gloo.

Ranks are started once for each size of the world and run all of `collective_checks`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.collective_checks import CHECKS
from tests.support.commands import SOURCE, Start

SIZES = (
    1,
    2,
    3,
    pytest.param(4, marks=pytest.mark.long),
    pytest.param(6, marks=pytest.mark.long),
    pytest.param(8, marks=pytest.mark.long),
)


def failures(size: int, folder: Path, *, device: str = "cpu") -> tuple[dict[str, str], str]:
    """Check → traceback of the first rank that failed, and what the ranks said beside."""
    report = folder / "report"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.support.collective_checks",
             str(folder / "store"), str(report), device],
            cwd=SOURCE.parent,
            env={
                **os.environ,
                "PYTHONPATH": f"{SOURCE}{os.pathsep}{SOURCE.parent}",
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                # NCCL refuses two ranks on one GPU unless it takes them for two hosts'.
                "NCCL_HOSTID": str(rank),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        output = "".join(rank.communicate(timeout=500)[0] for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
    errors: dict[str, str] = {}
    for rank in range(size):
        path = Path(f"{report}.{rank}")
        rank_errors = (
            json.loads(path.read_text()) if path.exists() else {"all": f"rank {rank} died"}
        )
        errors = rank_errors | errors
    return errors, output


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", SIZES)
def test_ranks_agree_with_theory(size: int, tmp_path: Path) -> None:
    errors, output = failures(size, tmp_path)
    assert not errors, "\n".join(f"{name}:\n{trace}" for name, trace in errors.items())
    assert not output
    assert len(CHECKS) >= 12


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_smoke_converges_with_int8_gradients(start: Start, tmp_path: Path) -> None:
    """The members' mean is within two points of the one with gradients as they are."""
    quality = {}
    for precision in ("fp32", "int8"):
        run = start(
            "run", "--json", "--out", tmp_path / precision,
            "--set", "parallel.degree=2", "--set", f"communication.precision={precision}",
        )  # fmt: skip
        assert run.wait(1500) == 0, run.err
        quality[precision] = json.loads(run.out)["members_mean_quality"]
        record = next((tmp_path / precision).rglob("record.json"))
        communication = json.loads(record.read_text())["effective"]["parallel"]["communication"]
        assert communication["precision"] == precision
        assert communication["traffic"]["inside_node"] > 0
    assert quality["int8"] > quality["fp32"] - 0.02
