"""Climate segmentation through the whole pipeline: ensembles that gain, pictures, operations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ai500.workloads.climate_segmentation import CLASSES
from tests.support.commands import Start

BLIND = 0.33
"""Mean IoU without any event found: a third of the background's."""


def result(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "trials/01/ensemble.json").read_text())
    return content


def settings(**values: Any) -> list[str]:
    pairs = ((key.replace("__", "."), value) for key, value in values.items())
    return [part for key, value in pairs for part in ("--set", f"{key}={value}")]


@pytest.mark.serial
@pytest.mark.timeout(900)
def test_a_short_training_already_finds_events(start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = settings(ensemble__size=2, parallel__degree=1, train__epochs=4)
    command = start("run", "--workload", "climate_segmentation", "--out", run, *words)
    assert command.wait(timeout=800) == 0, command.err
    ensemble = result(run)
    assert min(ensemble["member_qualities"]) > BLIND
    assert ensemble["out_of_bag_quality"] > BLIND
    smoke = CLASSES["smoke"]
    predictions = np.load(run / "trials/01/members/000/validation.npy")
    assert predictions.dtype == np.uint8
    assert predictions.shape == (smoke.validation_samples, 2, *smoke.input_shape[1:])
    pictures = json.loads((run / "trials/01/pictures/pictures.json").read_text())
    assert [row[0] for row in pictures["rows"]][1:] == ["tropical cyclone", "atmospheric river"]
    assert json.loads((run / "score.json").read_text())["vflops"] > 0
    assert (run / "report.html").exists()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [21, 22, 23])
def test_smoke_as_it_is(start: Start, tmp_path: Path, seed: int) -> None:
    """The default run: averaged probabilities are better than the members' mean."""
    run = tmp_path / "run"
    words = settings(run__seed=seed)
    command = start("run", "--workload", "climate_segmentation", "--out", run, *words)
    assert command.wait(timeout=1700) == 0, command.err
    ensemble = result(run)
    assert min(ensemble["member_qualities"]) > BLIND
    assert ensemble["ensemble_quality"] > ensemble["members_mean_quality"]
    print(f"\nseed {seed}: {ensemble['ensemble_quality']:.4f}, {ensemble['member_qualities']}")
