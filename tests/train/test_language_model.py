"""The language model through the whole pipeline, and ensembles that beat their members."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from ai500.workloads.language_model import CLASSES
from ai500.workloads.learnable_text import SMOKE
from tests.support.commands import Start

LETTERS = 4.0
"""Bits per byte that knowing which letters there are does not reach."""


def run(start: Start, out: Path, *settings: str, timeout: float) -> None:
    pairs = [part for setting in settings for part in ("--set", setting)]
    words = ["run", "--workload", "language_model", "--class", "smoke"]
    command = start(*words, "--out", out, *pairs)
    assert command.wait(timeout=timeout) == 0, command.err


@pytest.mark.long
def test_two_members_learn_are_averaged_and_shown(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(start, out, "ensemble.size=2", "parallel.degree=1", "train.epochs=1", timeout=240)
    trial = out / "trials/01"
    result = json.loads((trial / "ensemble.json").read_text())
    members = mean(result["member_qualities"])
    assert SMOKE.entropy_rate() < result["ensemble_quality"] < members < LETTERS
    assert result["out_of_bag_quality"] < LETTERS
    predictions = np.load(trial / "members/000/validation.npy")
    assert predictions.shape == (SMOKE.validation, SMOKE.length - 1)
    record = json.loads((trial / "members/000/record.json").read_text())
    assert record["parameters"] == 124_672
    assert "Texts and their bits" in (out / "report.html").read_text()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [41, 42, 43])
def test_smoke_as_it_is(start: Start, tmp_path: Path, seed: int) -> None:
    """The default run: averaged probabilities are better than every member's."""
    out, smoke = tmp_path / "run", CLASSES["smoke"]
    run(start, out, f"run.seed={seed}", timeout=1700)
    result = json.loads((out / "trials/01/ensemble.json").read_text())
    assert len(result["member_qualities"]) == smoke.ensemble_size
    assert result["ensemble_quality"] < min(result["member_qualities"])
    assert SMOKE.entropy_rate() < result["ensemble_quality"]
    # One seed in six may be worse than the mean and one standard deviation; none by much.
    assert result["ensemble_quality"] < 1.02 * smoke.target_quality
    print(f"\nseed {seed}: {result['ensemble_quality']:.4f}, {result['member_qualities']}")
