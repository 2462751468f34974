"""Start the checks of collectives as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.commands import SOURCE


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
