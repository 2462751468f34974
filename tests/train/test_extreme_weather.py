"""Extreme weather through the whole pipeline: real files, resumed members, ensembles that gain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ai500.data.climate.index import INDEX
from ai500.workloads.climate.recipe import SMOKE
from ai500.workloads.extreme_weather import CLASSES, WORKLOAD
from tests.support.commands import Start, wait_for

UNTRAINED = 0.02
"""mAP that no random weights reach."""
TRAINED_A_LITTLE = 0.1
"""Five times that, and a third of what five epochs must reach: only learning gets there."""


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two years as the data set has them: compressed, boxes as integers, some frames empty."""
    import h5py

    folder = tmp_path_factory.mktemp("years")
    for year, split, count in ((1979, "train", 24), (1980, "validation", 8)):
        frames, boxes = SMOKE.draw(split, 0, count)
        boxes[1] = -1
        with h5py.File(folder / f"climo_{year}.h5", "w") as file:
            file.create_dataset("images", data=frames, chunks=(1, *frames.shape[1:]),
                                compression="gzip", compression_opts=1)  # fmt: skip
            file["boxes"] = boxes.astype(np.int64)
    return folder


def arguments(years: Path, out: Path) -> list[str | Path]:
    pairs = {"ensemble.size": 1, "parallel.degree": 2, "train.epochs": 2}
    settings = [part for key, value in pairs.items() for part in ("--set", f"{key}={value}")]
    words = ["run", "--workload", "extreme_weather", "--class", "smoke", "--data", years]
    return [*words, "--out", out, *settings]


def record(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "trials/01/members/000/record.json").read_text())
    return content


@pytest.mark.long
def test_a_member_on_real_files_is_interrupted_resumed_and_the_same(
    start: Start, tmp_path: Path, years: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    undisturbed = start(*arguments(years, whole))
    assert undisturbed.wait() == 0, undisturbed.err
    command = start(*arguments(years, broken))
    wait_for(broken / "trials/01/members/000/events.jsonl", "epoch")
    command.interrupt()
    assert command.wait() == 130
    resumed = start("resume", broken)
    assert resumed.wait() == 0, resumed.err
    expected, actual = record(whole), record(broken)
    assert expected["weights_sha256"] == actual["weights_sha256"]
    assert expected["quality"] == actual["quality"]
    assert expected["world_size"] == 2
    index = json.loads((years / INDEX).read_text())["statistics"]
    assert expected["effective"]["data"]["staged"]
    assert expected["effective"]["data"]["normalization"] == [index["mean"], index["deviation"]]
    assert (whole / "trials/01/pictures/pictures.json").exists()


def test_training_on_frames_without_any_event_is_refused(start: Start, tmp_path: Path) -> None:
    import h5py

    frames, boxes = SMOKE.draw("train", 0, 10)
    with h5py.File(tmp_path / "climo_1979.h5", "w") as file:
        file["images"], file["boxes"] = frames, np.full_like(boxes, -1)
    command = start(*arguments(tmp_path, tmp_path / "run"))
    assert command.wait() == 2
    assert "no box" in " ".join(command.err.split())


def untrained_quality(seed: int) -> float:
    torch.manual_seed(seed)
    model = WORKLOAD.model(CLASSES["smoke"]).eval()
    frames, boxes = SMOKE.draw("validation", 0, 32)
    mean, deviation = frames.mean((0, 2, 3)), frames.std((0, 2, 3))
    inputs = (frames - mean[:, None, None]) / deviation[:, None, None]
    with torch.no_grad():
        predictions = WORKLOAD.predictions(model(torch.from_numpy(inputs)), {})
    return WORKLOAD.quality(predictions.numpy(), {"boxes": boxes})


def ensemble(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "trials/01/ensemble.json").read_text())
    return result


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(900)
def test_a_short_training_already_finds_weather(start: Start, tmp_path: Path) -> None:
    """Two members on all of smoke's data, with fewer epochs."""
    words = ["--set", "ensemble.size=2", "--set", "parallel.degree=1", "--set", "train.epochs=3"]
    run = tmp_path / "run"
    command = start(
        "run", "--workload", "extreme_weather", "--class", "smoke", "--out", run, *words
    )
    assert command.wait(timeout=800) == 0, command.err
    result = ensemble(run)
    assert max(untrained_quality(seed) for seed in (1, 2, 3)) < UNTRAINED
    assert min(result["member_qualities"]) > TRAINED_A_LITTLE
    assert result["ensemble_quality"] > result["members_mean_quality"]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_smoke_as_it_is(start: Start, tmp_path: Path, seed: int) -> None:
    """The default run: the fused boxes are better than those of the best member."""
    run = tmp_path / "run"
    words = ["--class", "smoke", "--out", run, "--set", f"run.seed={seed}"]
    command = start("run", "--workload", "extreme_weather", *words)
    assert command.wait(timeout=1700) == 0, command.err
    result, target = ensemble(run), CLASSES["smoke"].target_quality
    assert min(result["member_qualities"]) > 0.3
    assert max(result["member_qualities"]) < 0.9  # a set that saturates proves nothing
    assert result["ensemble_quality"] > max(result["member_qualities"])
    # The target is what the reference reaches reliably: mean − 2 standard deviations.
    assert result["ensemble_quality"] > target - 0.02
    print(
        f"\nseed {seed}: ensemble {result['ensemble_quality']:.4f}, members "
        + ", ".join(f"{quality:.4f}" for quality in result["member_qualities"])
    )
