"""Cosmology through the whole pipeline: ensembles that beat their members' mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.workloads.cosmology import CLASSES
from tests.support.commands import Start

CONSTANT = 0.5
"""Mean absolute error of a constant estimate."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [31, 32, 33])
def test_smoke_as_it_is(start: Start, tmp_path: Path, seed: int) -> None:
    """The default run: averaged estimates are better than the members' mean."""
    run, smoke = tmp_path / "run", CLASSES["smoke"]
    command = start("run", "--workload", "cosmology", "--out", run, "--set", f"run.seed={seed}")
    assert command.wait(timeout=1700) == 0, command.err
    ensemble = json.loads((run / "trials/01/ensemble.json").read_text())
    assert len(ensemble["member_qualities"]) == smoke.ensemble_size
    assert max(ensemble["member_qualities"]) < CONSTANT
    assert ensemble["ensemble_quality"] < ensemble["members_mean_quality"]
    # One seed in six may be worse than the mean and one standard deviation; none by much.
    assert ensemble["ensemble_quality"] < 1.1 * smoke.target_quality
    print(f"\nseed {seed}: {ensemble['ensemble_quality']:.4f}, {ensemble['member_qualities']}")
