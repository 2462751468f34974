"""The transformer split by heads, cut into stages, sharded: several processes against one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import transformer_checks
from tests.support.torchrun import run_ranks

pytestmark = pytest.mark.timeout(600)
EXACT = 1e-10


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.long)])
def test_every_mode_of_the_transformer_equals_a_single_process(world: int, tmp_path: Path) -> None:
    reported = run_ranks(transformer_checks.__file__, tmp_path, ranks=world, timeout=580)
    results = {result["mode"]: result for result in reported}
    assert results.keys() == transformer_checks.MODES[world].keys()
    for mode, result in results.items():
        off = {name: result[name] for name in ("gradients", "weights", "scores")}
        assert max(off.values()) < EXACT, (mode, off)
        assert result["same_bits"] == [True, True], mode
    for mode, result in results.items():
        if mode != "data" and not mode.startswith("data ×"):
            assert result["held"] < 0.8 * results["data"]["held"], mode
