"""The detector split by channels, cut into stages, sharded: two processes against one, and DDP."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import detector_checks
from tests.support.commands import SOURCE

pytestmark = pytest.mark.timeout(300)
EXACT = 1e-10


def test_every_mode_of_the_detector_equals_its_reference() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         detector_checks.__file__],
        env={"PYTHONPATH": f"{SOURCE}:{SOURCE.parent}", "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    lines = (line[6:] for line in done.stdout.splitlines() if line.startswith("FOUND "))
    results = {result["mode"]: result for result in map(json.loads, lines)}
    assert results.keys() == detector_checks.MODES.keys()
    for mode, result in results.items():
        off = {name: result[name] for name in ("gradients", "weights", "running", "detections")}
        assert max(off.values()) < EXACT, (mode, off)
        assert result["found"] > 0, mode
    for mode in ("sharded", "tensor", "1f1b"):
        assert results[mode]["held"] < 0.6 * results["data"]["held"], mode
