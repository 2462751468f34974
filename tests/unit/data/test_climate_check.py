"""Faults of climate files: named by the check, and refused before training."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from ai500.cli.data import app
from ai500.core.errors import DataError, RuleError
from ai500.data.climate.check import check_years
from ai500.data.climate.physics import QUANTITIES
from ai500.data.climate.schema import CHANNELS
from ai500.data.climate.store import ClimateStore
from ai500.data.store import Problem
from ai500.workloads.climate.recipe import ClimateRecipe, generate_years
from tests.support.climate_files import LAYOUTS, boxes_of, flip, frames_of, write_year


@pytest.fixture
def three(tmp_path: Path) -> Path:
    for year in (1979, 1980, 1981):
        write_year(tmp_path / "years", year)
    return tmp_path / "years"


def bad_boxes(frame: int, row: int, values: tuple[float, ...]) -> Any:
    boxes = boxes_of().astype(np.float64)
    boxes[frame, row] = values
    return boxes


def truncate(folder: Path) -> None:
    path = folder / "climo_1980.h5"
    os.truncate(path, path.stat().st_size // 2)


def with_nan(folder: Path, **layout: Any) -> None:
    frames = frames_of(1980)
    frames[4, CHANNELS.index("PSL"), 2, 3:5] = np.nan, np.inf
    write_year(folder, 1980, frames=frames, **layout)


def damage(folder: Path, *, signature: bytes, first: int = 0, **layout: Any) -> None:
    """Overwrite a signature of HDF5 wherever it stands, but for the `first` times."""
    path = write_year(folder, 1980, **layout)
    whole = path.read_bytes()
    places = [match.start() for match in re.finditer(signature, whole)][first:]
    assert places
    for place in places:
        whole = whole[:place] + b"lost" + whole[place + 4 :]
    path.write_bytes(whole)


def normalized_boxes() -> Any:
    boxes = boxes_of().astype(np.float64)
    real = boxes[..., 4] >= 0
    boxes[real] /= (12, 20, 12, 20, 1)
    return boxes


def with_copied_frame(folder: Path, **layout: Any) -> None:
    """The layouts of the two years differ."""
    frames = frames_of(1981)
    frames[5] = frames_of(1979)[2]
    write_year(folder, 1981, frames=frames, **layout)


def with_values(folder: Path, channel: str, values: Any, **layout: Any) -> None:
    frames = frames_of(1980)
    frames[3, CHANNELS.index(channel)] = values
    write_year(folder, 1980, frames=frames, **layout)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing year": (lambda f: (f / "climo_1980.h5").unlink(), "the year 1980 is missing"),
    "truncated": (truncate, r"climo_1980.h5: is truncated: its end is missing"),
    "no HDF5": (
        lambda f: (f / "climo_1980.h5").write_bytes(b"GRIB" * 99), "climo_1980.h5: is no HDF5 file"
    ),
    "damaged chunk index": (
        # The first tree is the group's, the others are the chunks'.
        lambda f: damage(f, signature=b"TREE", first=1, **LAYOUTS["gzip"]),
        r"climo_1980.h5: its chunk index is corrupt \(.*B-tree.*\)\. Copy the file again\.",
    ),
    "damaged contents": (
        lambda f: damage(f, signature=b"SNOD"), "climo_1980.h5: its table of contents is corrupt"
    ),
    "wrong channels": (
        lambda f: write_year(f, 1980, frames=frames_of(1)[:, :3]), r"`images` is \[7, 3, 12, 20\]"
    ),
    "no boxes": (
        lambda f: write_year(f, 1980, boxes=boxes_of()[:, :, :4]), r"`boxes` is \[7, 15, 4\]"
    ),
    "fewer boxes": (
        lambda f: write_year(f, 1980, boxes=boxes_of()[:5]), "7 frames of `images`, but 5 of"
    ),
    "other size": (
        lambda f: write_year(f, 1980, frames=frames_of(1)[:, :, :8]), "frames are 8×20, those of"
    ),
    "integers": (
        lambda f: write_year(f, 1980, frames=frames_of(1).astype(np.int16)), "`images` holds int16"
    ),
    "NaN": (with_nan, "climo_1980.h5: frame 4: PSL: 2 values are NaN or infinite"),
    "NaN in a chunk": (
        lambda f: with_nan(f, **LAYOUTS["gzip, shuffled, frames together"]),
        "climo_1980.h5: frame 4: PSL: 2 values are NaN or infinite",
    ),
    "outside": (
        lambda f: write_year(f, 1980, boxes=bad_boxes(0, 0, (1, 2, 5, 21, 3))),
        r"climo_1980.h5: frame 0: box 0 \(1, 2, 5, 21, 3\) lies outside the frame of 12×20",
    ),
    "inverted": (
        lambda f: write_year(f, 1980, boxes=bad_boxes(0, 0, (5, 2, 5, 9, 3))),
        r"frame 0: box 0 \(5, 2, 5, 9, 3\) is inverted or empty",
    ),
    "class": (
        lambda f: write_year(f, 1980, boxes=bad_boxes(2, 1, (1, 2, 5, 9, 4))),
        r"frame 2: box 1 \(1, 2, 5, 9, 4\) has no class of 0 to 3",
    ),
    "padding": (
        lambda f: write_year(f, 1980, boxes=bad_boxes(5, 3, (1, 2, 5, 9, 1))),
        "frame 5: box 3 .* comes after a row of padding",
    ),
    "fraction": (
        lambda f: write_year(f, 1980, boxes=bad_boxes(0, 0, (1.5, 2, 5, 9, 1))),
        "frame 0: box 0 .* is not of whole numbers",
    ),
    "double precision": (
        lambda f: write_year(f, 1980, frames=frames_of(1980).astype(np.float64)),
        "climo_1980.h5: `images` holds float64; the schema has float32",
    ),
    "normalized": (
        lambda f: write_year(f, 1980, boxes=normalized_boxes()),
        r"climo_1980.h5: all 3 boxes lie between 0 and 1: .*multiply y by 12 and x by 20",
    ),
    "same frame twice": (
        lambda f: with_copied_frame(f),
        "climo_1981.h5: frame 5: is the same as frame 2 of climo_1979.h5",
    ),
    "same frame twice, in chunks": (
        lambda f: with_copied_frame(f, **LAYOUTS["gzip, shuffled, frames together"]),
        "climo_1981.h5: frame 5: is the same as frame 2 of climo_1979.h5",
    ),
    "constant": (
        lambda f: with_values(f, "TS", 280.0), r"climo_1980.h5: frame 3: TS: constant \(280\)"
    ),
    "nothing to learn": (
        lambda f: [write_year(f, y, boxes=np.full((7, 15, 5), -1)) for y in (1979, 1980, 1981)],
        "no frame of any year has a box",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_check_names_what_is_wrong(fault: str, three: Path) -> None:
    spoil, message = BAD[fault]
    assert check_years(three).problems == ()
    spoil(three)
    result = CliRunner().invoke(app, ["check", str(three)])
    assert isinstance(result.exception, RuleError)
    assert result.exception.exit_code == 1
    problems = check_years(three).problems
    assert (result.exception.path, result.exception.value) == (three, len(problems))
    assert any(re.search(message, str(problem)) for problem in problems)


@pytest.mark.parametrize("layout", ["contiguous", "gzip", "lzf"])
@pytest.mark.parametrize("fill", [1e20, 9.96921e36, -9999.0])
def test_fill_values_are_named(fill: float, layout: str, three: Path) -> None:
    frames = frames_of(1980)
    frames[2:4, CHANNELS.index("TMQ"), 1, 3:5] = fill
    write_year(three, 1980, frames=frames, **LAYOUTS[layout])
    (problem,) = check_years(three).problems
    assert (problem.file, problem.frame) == ("climo_1980.h5", 2)
    assert problem.text == f"TMQ: 2 values are {fill:g}, a fill value (and in 1 more frames)"


UNITS = {
    "PSL": (0.01, 0, "hPa"), "T200": (1, -273.15, "°C"), "PRECT": (3.6e6, 0, "mm/h"),
    "Z200": (9.80665, 0, "m²/s²"), "QREFHT": (1000, 0, "g/kg"), "TMQ": (1000, 0, None),
}  # fmt: skip


@pytest.mark.parametrize("channel", UNITS)
def test_a_channel_in_another_unit_is_named(channel: str, three: Path) -> None:
    factor, offset, unit = UNITS[channel]
    frames = frames_of(1980)
    number = CHANNELS.index(channel)
    frames[:, number] = frames[:, number] * factor + offset
    write_year(three, 1980, frames=frames)
    (problem,) = check_years(three).problems
    assert (problem.file, problem.frame) == ("climo_1980.h5", -1)
    assert problem.text.startswith(f"{channel}: values from ")
    assert problem.text.endswith(f"they look like {unit}" if unit else QUANTITIES[channel].unit)


def test_channels_in_another_order_are_named(three: Path) -> None:
    """ClimateNet's files begin with TMQ and U850."""
    write_year(three, 1980, frames=frames_of(1980)[:, ::-1])
    named = {problem.text.split(":")[0] for problem in check_years(three).problems}
    assert {"PS", "PSL", "T200", "Z200"} <= named


def test_generated_climate_is_possible(tmp_path: Path) -> None:
    recipe = ClimateRecipe(seed=5, height=48, width=72, train=9, validation=3, event_scale=1.8)
    generate_years(tmp_path / "years", recipe, workers=1)
    assert check_years(tmp_path / "years").problems == ()


def test_a_run_refuses_normalized_boxes_as_the_check_does(three: Path) -> None:
    write_year(three, 1980, boxes=normalized_boxes())
    (problem,) = check_years(three).problems
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three).prepare()
    assert (raised.value.path, raised.value.value) == (three, [problem])


@pytest.mark.parametrize(
    ("fault", "file", "key", "value"),
    [
        ("missing year", "", "years", [1980]),
        ("other size", "", "shape", [(12, 20), (8, 20)]),
        ("truncated", "climo_1980.h5", "length", None),
        ("no HDF5", "climo_1980.h5", "signature", None),
        ("damaged contents", "climo_1980.h5", "table of contents", None),
    ],
)
def test_training_refuses_the_same_with_a_clear_message(
    fault: str, file: str, key: str, value: object, three: Path
) -> None:
    BAD[fault][0](three)
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three)
    assert raised.value.path == three / file
    assert (raised.value.key, raised.value.value) == (key, value)


@pytest.mark.parametrize("fault", ["wrong channels", "fewer boxes"])
def test_training_refuses_another_schema(fault: str, three: Path) -> None:
    spoil, message = BAD[fault]
    spoil(three)
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three)
    assert (raised.value.path, raised.value.key) == (three / "climo_1980.h5", "schema")
    assert isinstance(raised.value.value, list)
    assert re.search(message, raised.value.value[0])


@pytest.mark.parametrize("year", [1980, 1981])
def test_a_pass_refuses_values_that_are_no_numbers(year: int, three: Path) -> None:
    """In frames that train, and in those that only validate."""
    with_nan(three)
    (three / "climo_1980.h5").rename(three / f"climo_{year}.h5")
    write_year(three, 1980 if year == 1981 else 1981)
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three).prepare()
    assert raised.value.path == three / f"climo_{year}.h5"
    assert (raised.value.key, raised.value.value) == ("PSL", 4)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((1, 2, 5, 9, 4), "has no class of 0 to 3"),
        ((1, 2, 5, 9, 1.5), "has no class of 0 to 3"),
        ((5, 2, 5, 9, 3), "is inverted or empty"),
        ((np.nan, 2, 5, 9, 3), "is inverted or empty"),
        ((1, 20, 5, 29, 3), "lies wholly outside the frame of 12×20"),
        ((-9, 2, 0, 9, 3), "lies wholly outside the frame of 12×20"),
    ],
)
def test_a_pass_refuses_boxes_that_cannot_be_learned(
    box: tuple[float, ...], message: str, three: Path
) -> None:
    write_year(three, 1981, boxes=bad_boxes(2, 1, box))
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three).prepare()
    (problem,) = cast("list[Problem]", raised.value.value)
    assert (problem.file, problem.frame) == ("climo_1981.h5", 2)
    values = ", ".join(f"{value:g}" for value in box)
    assert problem.text == f"box 1 ({values}) {message}"


@pytest.mark.parametrize("fault", ["outside", "padding", "fraction"])
def test_a_pass_takes_boxes_that_do_no_harm(fault: str, three: Path) -> None:
    BAD[fault][0](three)
    ClimateStore.open(three).prepare()


def test_boxes_that_cannot_be_unpacked_are_named(three: Path) -> None:
    with h5py.File(three / "climo_1980.h5", "r+") as file:
        del file["boxes"]
        boxes = file.create_dataset("boxes", data=boxes_of(), chunks=(7, 15, 5), compression="gzip")
        place = boxes.id.get_chunk_info(0).byte_offset
    flip(three / "climo_1980.h5", place + 8)
    (problem,) = check_years(three).problems
    assert str(problem).startswith("climo_1980.h5: `boxes` cannot be read (")
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three).prepare()
    assert (raised.value.path, raised.value.key) == (three / "climo_1980.h5", "boxes")


def test_a_damaged_year_hides_nothing_of_the_others(three: Path) -> None:
    damage(three, signature=b"TREE", first=1, **LAYOUTS["gzip"])
    frames = frames_of(1981)
    frames[3, CHANNELS.index("TMQ"), 0, 0] = np.nan
    write_year(three, 1981, frames=frames, **LAYOUTS["gzip"])
    damaged, other = map(str, check_years(three).problems)
    assert damaged.startswith("climo_1980.h5: its chunk index is corrupt (")
    assert other == "climo_1981.h5: frame 3: TMQ: 1 value is NaN or infinite"
    with pytest.raises(DataError) as raised:
        ClimateStore.open(three).splits["train"].rows(np.array([8]))
    assert (raised.value.path, raised.value.key) == (three / "climo_1980.h5", "chunk index")


def test_frames_without_boxes_are_no_problem(three: Path) -> None:
    boxes = np.full((7, 15, 5), -1)
    write_year(three, 1980, boxes=boxes)
    assert check_years(three).problems == ()
    assert (ClimateStore.open(three).splits["train"].boxes[7:] == -1).all()


def test_check_tells_the_first_twenty_and_counts_all(three: Path) -> None:
    boxes = boxes_of(7).astype(np.float64)
    boxes[:, :4] = (9, 9, 1, 1, 7)
    write_year(three, 1980, boxes=boxes)
    result = CliRunner().invoke(app, ["check", str(three), "--json"])
    report = json.loads(result.stdout)
    assert report["problem_count"] == 56
    assert len(report["problems"]) == 20
    assert report["problems"][0]["file"] == "climo_1980.h5"
    assert "36 more" in str(result.exception)
