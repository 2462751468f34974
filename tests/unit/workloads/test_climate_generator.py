"""Learnable climate: the same bytes however it is made, and weather in it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ai500.core.errors import DataError
from ai500.data.climate.schema import CHANNELS, CLASSES, HEIGHT, MOST_BOXES, WIDTH, Boxes, Frames
from ai500.data.climate.store import ClimateStore
from ai500.workloads.climate.recipe import (
    JOB_BYTES,
    SMOKE,
    WORKSTATION,
    ClimateRecipe,
    generate_years,
    plan_years,
)

pytestmark = pytest.mark.slow

FEW = ClimateRecipe(seed=7, height=96, width=144, train=14, validation=6, event_scale=1.6)
GOLDEN = "2896fb8f5e57eea97c1a53eca883a7b992433858a6abe03715c08d1b6849805d"
PLAUSIBLE = {  # units of the schema; the coldest air ever measured had 184 K
    "PRECT": (0, 2e-5), "PS": (45_000, 108_000), "PSL": (92_000, 107_000), "QREFHT": (0, 0.03),
    "T200": (195, 245), "T500": (215, 285), "TMQ": (0, 130), "TREFHT": (184, 330),
    "TS": (180, 335), "U850": (-90, 90), "UBOT": (-80, 80), "V850": (-90, 90),
    "VBOT": (-80, 80), "Z1000": (-800, 600), "Z200": (9_800, 13_200), "ZBOT": (40, 85),
}  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> tuple[Frames, Boxes]:
    return replace(FEW, distractors=0.0, boundary=0.0).draw("train", 0, 40)


def channel(frames: Frames, name: str) -> Frames:
    return frames[:, CHANNELS.index(name)]


def boxes_of(drawn: tuple[Frames, Boxes], kind: str) -> list[tuple[int, tuple[slice, slice]]]:
    events = []
    for number, boxes in enumerate(drawn[1].astype(int)):
        for south, west, north, east, label in boxes:
            if label == CLASSES.index(kind):
                events.append((number, (slice(south, north), slice(west, east))))
    assert len(events) >= 5
    return events


def contrast(drawn: tuple[Frames, Boxes], kind: str, field: Frames) -> float:
    """Median over the boxes of (mean of the middle − mean of its rows) in deviations."""
    values = []
    for number, (rows, columns) in boxes_of(drawn, kind):
        high, wide = (rows.stop - rows.start) // 3, (columns.stop - columns.start) // 3
        middle = slice(rows.start + high, rows.stop - high)
        around = field[number][middle]
        inside = field[number][middle, columns.start + wide : columns.stop - wide]
        values.append((inside.mean() - around.mean()) / around.std())
    return float(np.median(values))


def test_frames_do_not_depend_on_their_neighbours() -> None:
    together = FEW.draw("train", 3, 6)
    for row, number in enumerate((3, 4, 5)):
        alone = FEW.draw("train", number, number + 1)
        assert alone[0].tobytes() == together[0][row : row + 1].tobytes()
        assert alone[1].tobytes() == together[1][row : row + 1].tobytes()
    assert FEW.draw("validation", 3, 4)[0].tobytes() != together[0][:1].tobytes()
    assert replace(FEW, seed=8).draw("train", 3, 4)[0].tobytes() != together[0][:1].tobytes()


def test_the_bytes_are_those_of_every_other_machine() -> None:
    frames, boxes = FEW.draw("train", 0, 2)
    digest = hashlib.sha256(frames.astype("<f4").tobytes() + boxes.astype("<f4").tobytes())
    assert digest.hexdigest() == GOLDEN


def test_drawing_leaves_torchs_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    FEW.draw("train", 0, 1)
    assert torch.get_num_threads() == before


def test_store_is_the_same_for_any_number_of_processes(tmp_path: Path) -> None:
    assert 2 * FEW.height * FEW.width * 16 * 4 < JOB_BYTES < FEW.train * FEW.height * FEW.width * 64
    serial = generate_years(tmp_path / "one", FEW, workers=1)
    parallel = generate_years(tmp_path / "two", FEW, workers=2)
    assert serial.sha256 == parallel.sha256
    assert serial.statistics == parallel.statistics
    assert (serial.splits["train"].count, serial.splits["validation"].count) == (14, 6)
    frames, boxes = serial.splits["train"].rows(np.arange(14)).values()
    made, labelled = FEW.draw("train", 0, 14)
    assert frames.tobytes() == made.tobytes()
    assert boxes.tobytes() == labelled.tobytes()


def test_an_interrupted_generation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    recipe = replace(FEW, train=10, validation=2)
    with pytest.raises(KeyboardInterrupt):
        generate_years(tmp_path / "data", recipe, workers=1, progress=interrupt)
    assert not list((tmp_path / "data").glob("*.h5"))
    progress_calls: list[tuple[int, int]] = []
    store = generate_years(
        tmp_path / "data", recipe, workers=1, progress=lambda *now: progress_calls.append(now)
    )
    assert progress_calls[0][0] > 0
    assert progress_calls[-1] == (12, 12)
    assert store.sha256 == generate_years(tmp_path / "again", recipe, workers=1).sha256
    assert sorted(file.name for file in (tmp_path / "data").iterdir()) == [
        "ai500-index.json", "climo_1979.h5", "climo_1980.h5",
    ]  # fmt: skip


def test_a_folder_with_other_data_is_refused(tmp_path: Path) -> None:
    small = replace(FEW, train=1, validation=1)
    sha256 = generate_years(tmp_path / "data", small, workers=1).sha256
    with pytest.raises(DataError) as raised:
        generate_years(tmp_path / "data", replace(small, seed=9), workers=1)
    assert (raised.value.key, raised.value.value) == ("sha256", sha256)
    with pytest.raises(DataError) as raised:
        generate_years(tmp_path / "data", small, workers=1, expected_sha256="0000")
    assert (raised.value.key, raised.value.value) == ("sha256", sha256)
    with pytest.raises(DataError) as raised:
        generate_years(tmp_path / "wrong", small, workers=1, expected_sha256="0000")
    assert (raised.value.key, raised.value.value) == ("sha256", sha256)
    assert not list((tmp_path / "wrong").glob("*.h5"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(DataError) as raised:
        generate_years(tmp_path / "full", small, workers=1)
    assert raised.value.path == tmp_path / "full"
    with pytest.raises(DataError) as raised:
        generate_years(tmp_path / "none", replace(FEW, validation=0), workers=1)
    assert (raised.value.key, raised.value.value) == ("frames", (14, 0))


def test_long_data_sets_have_years_of_1460_frames() -> None:
    years = plan_years(3000, 100)
    assert [(year.year, year.split, year.first, year.count) for year in years] == [
        (1979, "train", 0, 1460),
        (1980, "train", 1460, 1460),
        (1981, "train", 2920, 80),
        (1982, "validation", 0, 100),
    ]


def test_values_are_plausible_in_every_channel(drawn: tuple[Frames, Boxes]) -> None:
    assert np.isfinite(drawn[0]).all()
    for name, (low, high) in PLAUSIBLE.items():
        field = channel(drawn[0], name)
        assert low <= field.min() < field.max() <= high, name
    tropics, poles = slice(40, 56), slice(0, 8)
    warm, cold = channel(drawn[0], "TREFHT")[:, tropics], channel(drawn[0], "TREFHT")[:, poles]
    assert warm.mean() > cold.mean() + 30
    moist, dry = channel(drawn[0], "TMQ")[:, tropics], channel(drawn[0], "TMQ")[:, poles]
    assert moist.mean() > 5 * dry.mean()


def test_every_frame_is_labelled_as_the_schema_says(drawn: tuple[Frames, Boxes]) -> None:
    boxes = drawn[1]
    assert boxes.shape == (40, MOST_BOXES, 5)
    present = boxes[..., 4] >= 0
    assert 2 <= present.sum() / len(boxes) <= 8
    south, west, north, east, kind = np.moveaxis(boxes[present], -1, 0)
    assert (south >= 0).all() and (west >= 0).all()
    assert (north <= 96).all() and (east <= 144).all()
    assert (north - south >= 3).all() and (east - west >= 3).all()
    assert set(kind.tolist()) == {0, 1, 2, 3}
    assert (boxes[~present] == -1).all()
    assert not (present[:, 1:] & ~present[:, :-1]).any()


def test_tropical_cyclones_are_lows_with_a_warm_core(drawn: tuple[Frames, Boxes]) -> None:
    pressure = channel(drawn[0], "PSL")
    for number, (rows, columns) in boxes_of(drawn, "tropical cyclone"):
        inside = pressure[number][rows, columns]
        middle = inside[2:-2, 2:-2]
        assert middle.min() == inside.min()  # the lowest pressure is not at the box's edge
    assert contrast(drawn, "tropical cyclone", channel(drawn[0], "T200")) > 0.5


def test_depressions_are_weaker_than_cyclones(drawn: tuple[Frames, Boxes]) -> None:
    speed = np.hypot(channel(drawn[0], "U850"), channel(drawn[0], "V850"))
    greatest = {
        kind: [speed[n][where].max() for n, where in boxes_of(drawn, kind)]
        for kind in ("tropical depression", "tropical cyclone")
    }
    assert np.median(greatest["tropical depression"]) < 0.7 * np.median(
        greatest["tropical cyclone"]
    )


def test_extratropical_cyclones_turn_and_are_cold_aloft(drawn: tuple[Frames, Boxes]) -> None:
    u, v = channel(drawn[0], "U850"), channel(drawn[0], "V850")
    turning = []
    for number, (rows, columns) in boxes_of(drawn, "extratropical cyclone"):
        east = v[number][rows, columns]
        north = u[number][rows, columns]
        half_east, half_north = east.shape[1] // 2, north.shape[0] // 2
        turn = east[:, half_east:].mean() - east[:, :half_east].mean()
        turn -= north[half_north:].mean() - north[:half_north].mean()
        turning.append(turn if rows.start + rows.stop > 96 else -turn)
    assert np.mean(np.array(turning) > 0) > 0.9
    assert contrast(drawn, "extratropical cyclone", channel(drawn[0], "T500")) < -0.3


def test_rivers_are_moist_and_windy(drawn: tuple[Frames, Boxes]) -> None:
    assert contrast(drawn, "atmospheric river", channel(drawn[0], "TMQ")) > 0.1
    moist = channel(drawn[0], "TMQ")
    peaks = [
        (moist[n][rows, columns].max(axis=1) - np.median(moist[n][rows], axis=1)).min()
        for n, (rows, columns) in boxes_of(drawn, "atmospheric river")
    ]
    assert np.median(peaks) > 5  # along the whole of it, row after row


def test_weather_is_the_same_at_another_resolution() -> None:
    coarse, coarse_boxes = replace(FEW, noise=0.0).draw("train", 1, 2)
    fine, fine_boxes = replace(FEW, noise=0.0, height=384, width=576).draw("train", 1, 2)
    shrunk = fine.reshape(1, 16, 96, 4, 144, 4).mean(axis=(3, 5))
    for name in ("PSL", "TMQ", "U850", "T500"):
        direct, reduced = channel(coarse, name).ravel(), channel(shrunk, name).ravel()
        assert np.corrcoef(direct, reduced)[0, 1] > 0.98, name
    present = coarse_boxes[..., 4] >= 0
    assert (coarse_boxes[present][:, 4] == fine_boxes[present][:, 4]).all()
    assert np.abs(coarse_boxes[present][:, :4] - fine_boxes[present][:, :4] / 4).max() <= 1


def test_difficulty_has_names_that_work() -> None:
    calm, _ = replace(FEW, noise=0.0).draw("train", 0, 1)
    rough, _ = replace(FEW, noise=4.0).draw("train", 0, 1)
    assert 1 < (rough - calm)[0, CHANNELS.index("TMQ")].std() < 6
    strong, strong_boxes = replace(FEW, contrast=1.0, noise=0.0).draw("train", 0, 1)
    faint, weak_boxes = replace(FEW, contrast=0.5, noise=0.0).draw("train", 0, 1)
    assert (strong_boxes == weak_boxes).all()
    assert (strong != faint).any()
    with pytest.raises(DataError) as raised:
        ClimateRecipe(seed=1, height=20, width=20)
    assert (raised.value.key, raised.value.value) == ("shape", (20, 20))


def test_classes_are_what_their_names_say() -> None:
    assert (SMOKE.height * 8, SMOKE.width * 8) == (HEIGHT, WIDTH)
    frames = WORKSTATION.train + WORKSTATION.validation
    assert (WORKSTATION.height, WORKSTATION.width) == (HEIGHT, WIDTH)
    assert 4 * 16 * HEIGHT * WIDTH * frames < 20e9


@pytest.mark.long
def test_full_size_frames_are_read_as_they_were_drawn(tmp_path: Path) -> None:
    recipe = ClimateRecipe(seed=3, train=2, validation=1)
    generate_years(tmp_path / "full", recipe, workers=2)
    store = ClimateStore.open(tmp_path / "full")
    frames = store.splits["validation"].rows(np.array([0]))["images"]
    assert frames.shape == (1, 16, HEIGHT, WIDTH)
    assert frames.tobytes() == recipe.draw("validation", 0, 1)[0].tobytes()
