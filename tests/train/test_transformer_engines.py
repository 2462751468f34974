"""The transformer split by heads, cut into stages, sharded: several processes against one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import transformer_checks
from tests.support.commands import SOURCE

pytestmark = pytest.mark.timeout(600)
EXACT = 1e-10


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.long)])
def test_every_mode_of_the_transformer_equals_a_single_process(world: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={world}", transformer_checks.__file__, str(tmp_path)],
        env={"PYTHONPATH": f"{SOURCE}:{SOURCE.parent}", "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    lines = (line[6:] for line in done.stdout.splitlines() if line.startswith("FOUND "))
    results = {result["mode"]: result for result in map(json.loads, lines)}
    assert results.keys() == transformer_checks.MODES[world].keys()
    for mode, result in results.items():
        off = {name: result[name] for name in ("gradients", "weights", "scores")}
        assert max(off.values()) < EXACT, (mode, off)
        assert result["same_bits"] == [True, True], mode
    for mode, result in results.items():
        if mode != "data" and not mode.startswith("data ×"):
            assert result["held"] < 0.8 * results["data"]["held"], mode
