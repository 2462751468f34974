"""A limit on processes (`ulimit -u`): one error that names it, wherever it is reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import AS_NOBODY, SOURCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize("processes", [2, 4, 6])
def test_the_limit_is_named(tmp_path: Path, processes: int) -> None:
    """Too few for the pool, at different places: without a check in advance, 4 hung."""
    superuser = os.geteuid() == 0
    used = 0 if superuser else len(subprocess.check_output(["ps", "-eLo", "uid"]).split())
    limit = f"--nproc={used + processes}"
    done = subprocess.run(
        [*(AS_NOBODY if superuser else []), "prlimit", limit, sys.executable, "-m", "ai500",
         "data", "generate", "--class", "smoke", "--out", tmp_path / "store"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    if not superuser and done.returncode == 0:
        return  # other processes of this user ended meanwhile
    assert done.returncode == 3, done.stderr
    assert "ulimit -u" in done.stderr
    assert "Traceback" not in done.stderr
