"""Cosmology: generated volumes, CosmoFlow, its workload."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ai500.data.generated import generate
from ai500.operations import count
from ai500.report.picture_section import picture_figure
from ai500.workloads import learnable_volumes, volume_pictures
from ai500.workloads.averaging import average
from ai500.workloads.cosmology import WORKLOAD
from ai500.workloads.learnable_volumes import TIMES, LearnableVolumes
from ai500.workloads.member_predictions import ArrayPredictions

TINY = LearnableVolumes(seed=3, edge=16, train=12, validation=6)


def test_a_sample_depends_on_its_number_alone() -> None:
    whole = TINY.draw("train", 0, 12)
    part = TINY.draw("train", 5, 8)
    for name, rows in part.items():
        assert np.array_equal(rows, whole[name][5:8])
    assert not np.array_equal(TINY.draw("validation", 5, 8)["volumes"], part["volumes"])
    assert TINY.draw("train", 4, 4)["volumes"].shape == (0, TIMES, 16, 16, 16)


def test_another_fft_gives_the_same_bytes() -> None:
    """Voxels are rounded to integers, far from the error of a double-precision FFT."""
    source = dataclasses.replace(learnable_volumes.SMOKE, train=8)
    with pytest.MonkeyPatch.context() as patch:
        volumes = source.draw("train", 0, 8)["volumes"]
        patch.setattr(np.fft, "rfftn", lambda noise: torch.fft.rfftn(torch.tensor(noise)).numpy())
        patch.setattr(
            np.fft, "irfftn",
            lambda waves, s, axes: torch.fft.irfftn(torch.tensor(waves), s=s, dim=axes).numpy(),
        )  # fmt: skip
        other = source.draw("train", 0, 8)["volumes"]
    assert np.array_equal(volumes, other)


def test_the_parameters_shape_the_spectrum() -> None:
    """Variance at the middle is 1 plus the shot noise's; amplitude and growth scale it."""
    key = np.uint64(7)
    middle = TINY._volumes(key, np.zeros(4, np.float32)) / learnable_volumes.SCALE
    shot = learnable_volumes.SHOT_NOISE**2
    assert middle[0].var() == pytest.approx(1 + shot, rel=0.25)
    louder = TINY._volumes(key, np.array([1, 0, 0, 0], np.float32)) / learnable_volumes.SCALE
    gain = np.exp(2 * learnable_volumes.AMPLITUDE)
    expected = (middle[0].var() - shot) * gain + shot
    assert louder[0].var() == pytest.approx(expected, rel=0.05)
    growing = TINY._volumes(key, np.array([0, 0, 0, 1], np.float32)) / learnable_volumes.SCALE
    variances = growing.reshape(TIMES, -1).var(axis=1)
    assert np.all(np.diff(variances) > 0)
    # A higher turnover leaves more power at small scales: neighbours differ more.
    fine = TINY._volumes(key, np.array([0, 0, 1, 0], np.float32)) / learnable_volumes.SCALE
    assert np.diff(fine[0], axis=0).var() > np.diff(middle[0], axis=0).var()


def test_parameters_are_within_their_limits(tmp_path: Path) -> None:
    store = generate(tmp_path / "s", TINY, name="tiny", splits={"train": 12, "validation": 6})
    assert store.fields == TINY.fields
    parameters = store.splits["train"].rows(np.arange(12), names=["parameters"])["parameters"]
    assert np.abs(parameters).max() <= 1
    assert parameters.std(axis=0).min() > 0.2


@pytest.mark.parametrize(("edge", "blocks"), [(32, 3), (64, 4), (128, 5)])
def test_the_model_ends_at_an_edge_of_four(edge: int, blocks: int) -> None:
    name = {32: "smoke", 64: "workstation", 128: "full"}[edge]
    with torch.device("meta"):
        model = WORKLOAD.model(WORKLOAD.problem_classes[name])
        outputs = model(torch.empty(2, TIMES, edge, edge, edge))
    assert len(model.blocks) == blocks  # type: ignore[arg-type]
    assert outputs.shape == (2, 4)


def test_operations_are_those_of_the_formula() -> None:
    """Products of the convolutions and linear layers of `full`, two operations each."""
    model = WORKLOAD.model(WORKLOAD.problem_classes["full"])
    counted = count(model, (1, TIMES, 128, 128, 128), convention="matmul")
    widths = [4, 32, 64, 128, 256, 512]
    convolutions = sum(
        27 * before * after * (128 >> level) ** 3
        for level, (before, after) in enumerate(pairwise(widths))
    )
    linear = 512 * 64 * 128 + 128 * 64 + 64 * 4
    assert counted.forward_per_sample == 2 * (convolutions + linear)


def test_training_mirrors_and_keeps_the_targets() -> None:
    problem_class = WORKLOAD.problem_classes["smoke"]
    fields = {name: torch.from_numpy(rows) for name, rows in TINY.draw("train", 0, 2).items()}
    plain = WORKLOAD.evaluation_inputs(problem_class, fields)
    same, targets = WORKLOAD.train_inputs(problem_class, fields, torch.zeros(2, 3))
    assert torch.equal(same, plain)
    assert torch.equal(targets, fields["parameters"])
    mirrored, _ = WORKLOAD.train_inputs(problem_class, fields, torch.ones(2, 3))
    assert torch.equal(mirrored, plain.flip(2, 3, 4))


def test_quality_and_average_by_hand() -> None:
    members = np.array([[[0.0, 0, 0, 0]], [[1.0, 1, 1, 1]]])
    ensemble = average(ArrayPredictions(members))
    assert ensemble.tolist() == [[0.5] * 4]
    truth = {"parameters": np.array([[0.0, 1.0, 0.5, 0.25]], np.float32)}
    assert WORKLOAD.quality(ensemble, truth) == pytest.approx((0.5 + 0.5 + 0 + 0.25) / 4)
    alone = average(ArrayPredictions(members, np.array([[True], [False]])))
    assert alone.tolist() == [[0.0] * 4]


def test_pictures_of_the_best_and_the_worst(tmp_path: Path) -> None:
    store = generate(tmp_path / "s", TINY, name="tiny", splits={"train": 12, "validation": 6})
    samples = store.splits["validation"]
    truth = samples.rows(np.arange(6), names=["parameters"])["parameters"]
    wrong = truth.copy()
    wrong[4] += 1
    drawn = WORKLOAD.illustrations(
        {0: truth, 1: wrong}, ensemble=(truth + wrong) / 2, samples=samples
    )
    titles = [picture.title for picture in drawn.illustrations.pictures]
    assert titles[1].endswith("volume 4")
    for picture in drawn.illustrations.pictures:
        with Image.open(io.BytesIO(drawn.images[picture.file])) as image:
            assert image.size == (picture.width, picture.height)
    assert [row[0] for row in drawn.illustrations.rows] == list(learnable_volumes.PARAMETERS)


def test_a_report_shows_slices_apart_and_no_legend_of_boxes(tmp_path: Path) -> None:
    store = generate(tmp_path / "s", TINY, name="tiny", splits={"train": 12, "validation": 6})
    samples = store.splits["validation"]
    truth = samples.rows(np.arange(6), names=["parameters"])["parameters"]
    drawn = WORKLOAD.illustrations({0: truth}, ensemble=truth, samples=samples)
    picture = drawn.illustrations.pictures[0]
    with Image.open(io.BytesIO(drawn.images[picture.file])) as image:
        shades = np.asarray(image)
    white = np.flatnonzero((shades == 255).all(axis=0))
    between = [tick.at * picture.width for tick in picture.x_ticks]
    for left, right in pairwise(between):
        assert np.count_nonzero((left < white) & (white < right)) == volume_pictures.GAP
    figure = picture_figure(picture, kinds=drawn.illustrations.kinds, images=drawn.images)
    assert figure.chart is not None
    drawing = figure.chart.svg(picture.title)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
    assert texts == [f"time {number + 1}" for number in range(TIMES)] + [picture.shading.text]
    assert "<line" in drawing and 'class="box' not in drawing


def test_targets_are_measured_or_published() -> None:
    """Mean of the reference ensembles plus one standard deviation (docs/workloads.md)."""
    classes = WORKLOAD.problem_classes
    assert not any(entry.provisional_target for entry in classes.values())
    for name, qualities in {
        "smoke": (0.2347, 0.2551, 0.2469),
        "workstation": (0.2891, 0.3449, 0.3427),
    }.items():
        limit = statistics.mean(qualities) + statistics.stdev(qualities)
        assert classes[name].target_quality == math.ceil(100 * limit) / 100
    assert classes["full"].target_quality == 0.124  # MLPerf HPC's
