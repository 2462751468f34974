"""DeepCAM split by channels and cut into stages: two processes against one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import segmentation_checks
from tests.support.commands import SOURCE

pytestmark = pytest.mark.timeout(300)
EXACT = 1e-10


def test_every_mode_of_deepcam_equals_a_single_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         segmentation_checks.__file__],
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
    assert results.keys() == segmentation_checks.MODES.keys()
    for mode, result in results.items():
        off = {name: result[name] for name in ("gradients", "weights", "running", "logits")}
        assert max(off.values()) < EXACT, (mode, off)
        assert result["held"] < 0.9, mode
