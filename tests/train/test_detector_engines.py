"""The detector split by channels, cut into stages, sharded: two processes against one, and DDP."""

from __future__ import annotations

import pytest

from tests.support import detector_checks
from tests.support.torchrun import run_ranks

pytestmark = pytest.mark.timeout(300)
EXACT = 1e-10


def test_every_mode_of_the_detector_equals_its_reference() -> None:
    reported = run_ranks(detector_checks.__file__, ranks=2, timeout=280)
    results = {result["mode"]: result for result in reported}
    assert results.keys() == detector_checks.MODES.keys()
    for mode, result in results.items():
        off = {name: result[name] for name in ("gradients", "weights", "running", "detections")}
        assert max(off.values()) < EXACT, (mode, off)
        assert result["found"] > 0, mode
    for mode in ("sharded", "tensor", "1f1b"):
        assert results[mode]["held"] < 0.6 * results["data"]["held"], mode
