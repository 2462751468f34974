"""A limit on processes (`ulimit -u`) that a run's workers reach: one error that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import AS_NOBODY, SOURCE

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("processes", [2, 3, 4, 5])
def test_the_limit_is_named(processes: int, tiny_store: Path, tmp_path: Path) -> None:
    """The controller, its node agent and its worker with their threads need six."""
    superuser = os.geteuid() == 0
    used = 0 if superuser else len(subprocess.check_output(["ps", "-eLo", "uid"]).split())
    words = [
        "run", "--out", tmp_path / "run", "--data", tiny_store, "--set", "ensemble.size=1",
        "--set", "parallel.degree=1", "--set", "system.scale=1", "--set", "train.epochs=1",
        "--set", "data.stage=false",
    ]  # fmt: skip
    done = subprocess.run(
        [*(AS_NOBODY if superuser else []), "prlimit", f"--nproc={used + processes}",
         sys.executable, "-m", "ai500", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1",
             "TMPDIR": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    if not superuser and done.returncode == 0:
        return  # other processes of this user ended meanwhile
    assert done.returncode != 0
    assert "ulimit -u" in done.stderr, done.stderr
