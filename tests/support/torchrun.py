"""Scripts that torchrun starts in several processes on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.commands import SOURCE


def run_ranks(script: str | Path, *arguments: str | Path, ranks: int, timeout: float) -> list[Any]:
    """Run a script on so many ranks, without a warning; return what it printed after `FOUND`."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={ranks}", script, *arguments],
        env={"PYTHONPATH": f"{SOURCE}:{SOURCE.parent}", "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    lines = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return [json.loads(line.removeprefix("FOUND ")) for line in lines]
