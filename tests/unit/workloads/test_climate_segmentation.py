"""Climate segmentation: masks of the generator, DeepCAM, quantized probabilities, mean IoU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ai500.data.climate.schema import CHANNELS, Boxes, Frames, Masks
from ai500.data.store import Arrays
from ai500.records.fields import Field
from ai500.workloads.climate import recipe as recipes
from ai500.workloads.climate.generator import MASKS, RIVER, TROPICAL, draw
from ai500.workloads.climate.mask_pictures import illustrations
from ai500.workloads.climate.segmented import NORMALIZATION, SOURCES, SegmentedClimate
from ai500.workloads.climate.segmented_tensors import weighted_cross_entropy
from ai500.workloads.climate_segmentation import CLASSES, DESIGNS, FREQUENCIES, WEIGHTS, WORKLOAD
from ai500.workloads.intersection_over_union import class_ious, mean_iou, predicted_classes
from ai500.workloads.member_predictions import ArrayPredictions
from ai500.workloads.models.deepcam import PRIOR, DeepCAM
from ai500.workloads.models.deepcam_plan import LARGE, SMALL, deepcam_plan

RECIPE = replace(recipes.SMOKE, height=192, width=288)


@pytest.fixture(scope="module")
def drawn() -> tuple[Frames, Boxes, Masks]:
    return draw(RECIPE, "train", 0, 24, device="cpu")


def test_masks_lie_inside_their_boxes(drawn: tuple[Frames, Boxes, Masks]) -> None:
    _, boxes, masks = drawn
    assert set(np.unique(masks)) == {0, *MASKS.values()}
    for labels, mask in zip(boxes.astype(int), masks, strict=True):
        outside = mask.copy()
        for south, west, north, east, kind in labels:
            if kind in MASKS:
                window = outside[south:north, west:east]
                window[window == MASKS[kind]] = 0
        assert not outside.any()


def test_a_cyclone_is_the_ellipse_in_its_box(drawn: tuple[Frames, Boxes, Masks]) -> None:
    """Its area is π/4 of the box's before that was rounded outwards to whole pixels."""
    _, boxes, masks = drawn
    shares = []
    for labels, mask in zip(boxes.astype(int), masks, strict=True):
        for south, west, north, east, kind in labels:
            if kind == TROPICAL:
                window = mask[south:north, west:east] == MASKS[TROPICAL]
                assert window.any(axis=0)[1:-1].all()
                assert window.any(axis=1)[1:-1].all()
                shares.append(window.sum() / ((north - south - 1) * (east - west - 1)))
    assert len(shares) > 10
    assert np.mean(shares) == pytest.approx(np.pi / 4, abs=0.03)


def test_a_river_reaches_from_end_to_end_of_its_box(drawn: tuple[Frames, Boxes, Masks]) -> None:
    _, boxes, masks = drawn
    rivers = 0
    for labels, mask in zip(boxes.astype(int), masks, strict=True):
        for south, west, north, east, kind in labels:
            if kind == RIVER:
                rows = (mask[south:north, west:east] == MASKS[RIVER]).any(axis=1)
                assert rows[1:-1].mean() > 0.85  # a cyclone drawn before it may cover the rest
                rivers += 1
    assert rivers > 10


def test_moist_and_windy_pixels_have_the_masks(drawn: tuple[Frames, Boxes, Masks]) -> None:
    frames, _, masks = drawn
    vapour = frames[:, CHANNELS.index("TMQ")]
    east, north = frames[:, CHANNELS.index("U850")], frames[:, CHANNELS.index("V850")]
    speed = np.hypot(east, north)
    assert vapour[masks == 2].mean() > vapour[masks == 0].mean() + 10
    assert speed[masks == 1].mean() > speed[masks == 0].mean() + 5


def test_frames_are_those_of_extreme_weather_and_of_every_chunk() -> None:
    source = SegmentedClimate(recipes.SMOKE)
    together = source.draw("validation", 2, 4)
    assert together["images"].tobytes() == recipes.SMOKE.draw("validation", 2, 4)[0].tobytes()
    for row, number in enumerate((2, 3)):
        alone = source.draw("validation", number, number + 1)
        for name in ("images", "masks"):
            assert alone[name].tobytes() == together[name][row].tobytes()


@pytest.mark.parametrize("name", ["smoke", "workstation"])
def test_classes_have_the_fields_and_sizes_of_their_sources(name: str) -> None:
    problem_class, source = CLASSES[name], SOURCES[name]
    assert problem_class.fields == source.fields
    assert problem_class.train_samples == source.recipe.train
    assert problem_class.validation_samples == source.recipe.validation
    assert source.recipe.seed == recipes.SMOKE.seed


def test_full_is_mlperfs_and_keeps_27_gigabytes_a_member() -> None:
    full = CLASSES["full"]
    assert (full.train_samples, full.validation_samples) == (121_266, 15_158)
    assert full.input_shape == (16, 768, 1152)
    outputs = torch.zeros(1, 3, 768, 1152, device="meta")
    row = WORKLOAD.predictions(outputs, {})
    assert row.numel() * row.itemsize * full.validation_samples == 26_821_656_576


def test_channels_are_normalized() -> None:
    images = torch.from_numpy(SOURCES["smoke"].draw("train", 0, 8)["images"])
    inputs = WORKLOAD.evaluation_inputs(CLASSES["smoke"], {"images": images})
    assert NORMALIZATION.keys() == set(CHANNELS)
    assert inputs.mean((0, 2, 3)).abs().max() < 0.3
    assert inputs.std((0, 2, 3)).sub(1).abs().max() < 0.3
    assert inputs.is_contiguous(memory_format=torch.channels_last)


def test_the_loss_by_hand() -> None:
    logits = torch.tensor([[[[1.0, 0.0]], [[0.0, 2.0]], [[-1.0, 0.5]]]])
    masks = torch.tensor([[[2, 1]]], dtype=torch.uint8)
    first = np.log(np.exp([1.0, 0.0, -1.0]).sum()) + 1.0
    second = np.log(np.exp([0.0, 2.0, 0.5]).sum()) - 2.0
    loss = weighted_cross_entropy(logits, masks, weights=(1.0, 3.0, 2.0))
    assert loss.item() == pytest.approx((2.0 * first + 3.0 * second) / 2)
    assert pytest.approx([value**8 for value in WEIGHTS]) == [1 / share for share in FREQUENCIES]


def test_predictions_are_bytes_that_average_by_vote() -> None:
    logits = torch.log(torch.tensor([0.5, 0.2, 0.3])).view(1, 3, 1, 1)
    row = WORKLOAD.predictions(logits, {}).numpy()
    assert row.dtype == np.uint8
    assert row.ravel().tolist() == [51, 76]
    members = np.array([[[10, 200]], [[20, 100]], [[90, 0]]], np.uint8)
    voters = np.array([[True], [True], [False]])
    combined = WORKLOAD.combine(ArrayPredictions(members, voters))
    assert combined.dtype == np.uint8
    assert combined.tolist() == [[15, 150]]


def test_quality_by_hand() -> None:
    # One frame of 2 × 3 pixels: probabilities of cyclone and river.
    predictions = np.array([[[[200, 10, 0], [0, 0, 90]], [[0, 200, 130], [0, 60, 90]]]], np.uint8)
    assert predicted_classes(predictions).tolist() == [[[1, 2, 2], [0, 0, 1]]]
    masks = np.array([[[1, 2, 0], [0, 2, 1]]], np.uint8)
    expected = [1 / 3, 2 / 2, 1 / 3]
    assert class_ious(predictions, masks) == pytest.approx(expected)
    assert WORKLOAD.quality(predictions, {"masks": masks}) == pytest.approx(np.mean(expected))


def test_quality_counts_pixels_of_the_whole_split(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    predictions = generator.integers(0, 128, (7, 2, 5, 6), dtype=np.uint8)
    masks = generator.integers(0, 3, (7, 5, 6), dtype=np.uint8)
    whole = mean_iou(predictions, masks)
    chosen = predicted_classes(predictions)
    ious = [((chosen == c) & (masks == c)).sum() / ((chosen == c) | (masks == c)).sum()
            for c in range(3)]  # fmt: skip
    assert whole == pytest.approx(np.mean(ious))
    monkeypatch.setattr("ai500.workloads.intersection_over_union.BLOCK_PIXELS", 31)
    assert mean_iou(predictions, masks) == whole


def test_classes_that_are_nowhere_do_not_count() -> None:
    nothing = np.zeros((1, 2, 4, 4), np.uint8)
    assert mean_iou(nothing, np.zeros((1, 4, 4), np.uint8)) == 1.0


def small() -> DeepCAM:
    torch.manual_seed(5)
    model = WORKLOAD.model(CLASSES["smoke"])
    assert isinstance(model, DeepCAM)
    return model


def test_the_model_answers_for_every_pixel() -> None:
    model = small()
    assert model(torch.randn(2, 16, 64, 96)).shape == (2, 3, 64, 96)
    with torch.device("meta"):
        large = DeepCAM(LARGE, channels=16, classes=3)
        assert large(torch.randn(2, 16, 96, 64)).shape == (2, 3, 96, 64)
        encoded = large.stages(large.stem(torch.randn(2, 16, 96, 64)))
    assert encoded.shape == (2, LARGE.encoded, 6, 4)  # an output stride of 16


def test_an_untrained_model_expects_background() -> None:
    with torch.no_grad():
        probabilities = small()(torch.randn(2, 16, 64, 96)).softmax(dim=1)
    assert probabilities[:, 0].mean().item() == pytest.approx(PRIOR, abs=0.01)


def test_units_of_the_pipeline_are_the_model() -> None:
    model = small().eval()
    inputs = torch.randn(2, 16, 64, 96)
    carried: tuple[torch.Tensor, ...] = (inputs,)
    with torch.no_grad():
        for unit in deepcam_plan(SMALL).stages:
            for name in unit:
                carried = model.forward_unit(name, carried)
        (outputs,) = carried
        assert torch.equal(outputs, model(inputs))


@pytest.mark.parametrize("name", CLASSES)
def test_the_plan_splits_layers_that_exist(name: str) -> None:
    with torch.device("meta"):
        model = DeepCAM(DESIGNS[name], channels=16, classes=3)
    layers = dict(model.named_modules())
    plan = WORKLOAD.parallel_plan(CLASSES[name])
    for split in plan.splits:
        matched = [layer for path, layer in layers.items() if split.matches(path)]
        assert matched, split
        for layer in matched:
            assert _channels(layer, split.kind) == split.channels, split


def _channels(layer: nn.Module, kind: str) -> int:
    if isinstance(layer, nn.BatchNorm2d):
        return layer.num_features
    assert isinstance(layer, nn.Conv2d)
    return layer.out_channels if kind.startswith("columns") else layer.in_channels


class Frozen:
    """A split in memory."""

    def __init__(self, arrays: Arrays, fields: tuple[Field, ...]) -> None:
        self.arrays = arrays
        self.fields = fields
        self.count = len(arrays["masks"])

    def rows(self, indices: Any, *, names: Any = None, empty: Any = None) -> Arrays:
        return {name: self.arrays[name][indices] for name in names or self.arrays}


def test_pictures_show_masks_and_their_iou() -> None:
    source = SOURCES["smoke"]
    arrays = source.draw("validation", 0, 6)
    perfect = np.stack([arrays["masks"] == 1, arrays["masks"] == 2], axis=1).astype(np.uint8) * 255
    blind = np.zeros_like(perfect)
    predictions = {0: perfect, 1: perfect, 2: blind}
    ensemble = WORKLOAD.combine(ArrayPredictions(list(predictions.values())))
    samples: Any = Frozen(arrays, source.fields)
    drawn = illustrations(predictions, ensemble=ensemble, samples=samples)
    record = drawn.illustrations
    assert [row[1] for row in record.rows] == ["1.0000", "1.0000", "1.0000"]
    assert [row[2] for row in record.rows[1:]] == ["0.6667", "0.6667"]
    assert {picture.file for picture in record.pictures} < drawn.images.keys()
    for picture in record.pictures:
        assert drawn.images[picture.file].startswith(b"\x89PNG")
