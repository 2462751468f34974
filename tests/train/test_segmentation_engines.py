"""DeepCAM split by channels and cut into stages: two processes against one."""

from __future__ import annotations

import pytest

from tests.support import segmentation_checks
from tests.support.torchrun import run_ranks

pytestmark = pytest.mark.timeout(300)
EXACT = 1e-10


def test_every_mode_of_deepcam_equals_a_single_process() -> None:
    reported = run_ranks(segmentation_checks.__file__, ranks=2, timeout=280)
    results = {result["mode"]: result for result in reported}
    assert results.keys() == segmentation_checks.MODES.keys()
    for mode, result in results.items():
        off = {name: result[name] for name in ("gradients", "weights", "running", "logits")}
        assert max(off.values()) < EXACT, (mode, off)
        assert result["held"] < 0.9, mode
