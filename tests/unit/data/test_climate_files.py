"""Climate files: read as h5py reads them, indexed, checked, staged; every bad one is named."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from ai500.cli.data import app
from ai500.core.errors import DataError
from ai500.data.climate import index as indexing
from ai500.data.climate.check import check_years
from ai500.data.climate.schema import year_files
from ai500.data.climate.store import ClimateStore
from ai500.data.climate.years import Chunked, open_year
from ai500.data.open_store import VerifiedSplit, open_store
from ai500.data.packed_store import PackedStore
from ai500.data.resumable_work import PLAN
from ai500.parallel.data_duplicator import Staged, duplicate
from ai500.workloads.climate.recipe import ClimateRecipe, generate_years
from tests.support.climate_files import (
    HEIGHT,
    LAYOUTS,
    WIDTH,
    boxes_of,
    flip,
    frames_of,
    write_year,
)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    for year in (1979, 1980, 1981):
        write_year(tmp_path / "years", year)
    return tmp_path / "years"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_what_h5py_reads(layout: str, tmp_path: Path) -> None:
    for year in (1979, 1980, 1981):
        write_year(tmp_path, year, **LAYOUTS[layout])
    split = ClimateStore.open(tmp_path).splits["train"]
    indices = np.array([13, 0, 7, 6, 0, 13, 2])
    frames, boxes = split.rows(indices).values()
    expected = np.concatenate([frames_of(1979), frames_of(1980)])[indices]
    assert frames.tobytes() == expected.tobytes()
    assert boxes.dtype == np.float32
    assert (boxes == np.concatenate([boxes_of(), boxes_of()])[indices]).all()
    assert (split.rows(indices, names=["boxes"])["boxes"] == boxes).all()


def test_the_fast_paths_are_taken_where_they_can_be(tmp_path: Path) -> None:
    kinds = {}
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        kinds[name] = type(open_year(write_year(tmp_path, 1979 + number, **layout)).layout)
    assert kinds["contiguous"] is int
    assert kinds["gzip"] is kinds["gzip, shuffled, frames together"] is Chunked
    assert kinds["lzf"] is kinds["checksummed"] is type(None)


def test_identity_and_statistics_do_not_depend_on_the_layout(tmp_path: Path) -> None:
    identities = set()
    for name, layout in LAYOUTS.items():
        folder = tmp_path / name.replace(" ", "-")
        for year in (1979, 1980):
            write_year(folder, year, **layout)
        store = ClimateStore.open(folder)
        identities.add((store.sha256, store.statistics))
    ((_, statistics),) = identities
    train = frames_of(1979).astype(np.float64)
    assert np.allclose(statistics.mean, train.mean(axis=(0, 2, 3)), rtol=1e-5)
    assert np.allclose(statistics.deviation, train.std(axis=(0, 2, 3)), rtol=1e-5)


def test_last_year_validates_and_of_one_year_the_last_fifth(three: Path) -> None:
    splits = ClimateStore.open(three).splits
    assert (splits["train"].count, splits["validation"].count) == (14, 7)
    third = splits["validation"].rows(np.array([3]))
    assert third["images"].tobytes() == frames_of(1981)[3].tobytes()
    assert splits["train"].fields[0].shape == (16, HEIGHT, WIDTH)
    for year in (1979, 1981):
        (three / f"climo_{year}.h5").unlink()
    splits = ClimateStore.open(three).splits
    assert (splits["train"].count, splits["validation"].count) == (5, 2)
    second = splits["validation"].rows(np.array([1]))
    assert second["images"].tobytes() == frames_of(1980)[6].tobytes()


def test_the_index_is_made_once_and_again_when_a_file_changes(three: Path) -> None:
    store = ClimateStore.open(three)
    progress: list[tuple[int, int]] = []
    store.prepare(lambda *now: progress.append(now))
    assert progress[-1] == (21, 21)
    before = store.sha256
    again = ClimateStore.open(three)
    progress.clear()
    again.prepare(lambda *now: progress.append(now))
    assert (again.sha256, progress) == (before, [])
    write_year(three, 1980, frames=frames_of(5))
    assert ClimateStore.open(three).sha256 != before
    (three / indexing.INDEX).write_text("{}")
    assert ClimateStore.open(three).sha256 != before


def test_a_folder_that_cannot_be_written_has_its_index_in_the_cache(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    sha256 = ClimateStore.open(three).sha256
    assert not (three / indexing.INDEX).exists()
    store = ClimateStore.open(three)
    kept = indexing.load(three, store.years)
    assert kept is not None
    assert kept.sha256 == sha256
    # An index of files that were here before, beside those of now, hides nothing.
    (good,) = (tmp_path / "cache" / "climate").iterdir()
    stale = replace(kept, files={f"{name}.old": file for name, file in kept.files.items()})
    monkeypatch.setattr(os, "access", lambda *_: True)
    indexing.save(three, stale)
    assert indexing.load(three, store.years) == kept
    good.unlink()
    assert indexing.load(three, store.years) is None


def test_statistics_that_were_changed_are_not_believed(three: Path) -> None:
    before = ClimateStore.open(three).statistics
    body = json.loads((three / indexing.INDEX).read_text())
    body["statistics"]["mean"][3] += 1.0
    (three / indexing.INDEX).write_text(json.dumps(body))
    assert list(indexing.saved(three)) == []
    assert ClimateStore.open(three).statistics == before


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("climate") / "few frames"
    recipe = ClimateRecipe(seed=5, height=48, width=72, train=9, validation=3, event_scale=1.8)
    generate_years(path, recipe, workers=1)
    return path


def test_generated_files_are_of_the_schema_for_anyone(generated: Path) -> None:
    with h5py.File(generated / "climo_1979.h5") as file:
        assert sorted(file) == ["boxes", "images"]
        assert (file["images"].shape, file["images"].dtype) == ((9, 16, 48, 72), np.float32)
        assert file["boxes"].shape == (9, 15, 5)
        expected = file["images"][4]
    assert ClimateStore.open(generated).splits["train"].rows(np.array([4]))["images"].tobytes() == (
        expected.tobytes()
    )


def test_a_copied_store_is_verified_once_and_a_corrupt_one_refused(
    generated: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(generated, copy)
    for file in copy.glob("*.h5"):
        os.utime(file)
    store = ClimateStore.open(copy)
    assert store.sha256 == ClimateStore.open(generated).sha256
    progress: list[tuple[int, int]] = []
    store.verify(lambda *now: progress.append(now))
    assert progress[-1] == (12, 12)
    progress.clear()
    ClimateStore.open(copy).verify(lambda *now: progress.append(now))
    assert progress == []
    offset = open_year(copy / "climo_1979.h5").layout
    assert isinstance(offset, int)
    flip(copy / "climo_1979.h5", offset + 5 * 4 * 16 * 48 * 72 + 9)
    with pytest.raises(DataError) as raised:
        ClimateStore.open(copy).verify()
    assert (raised.value.path, raised.value.value) == (copy / "climo_1979.h5", 5)
    (problem,) = check_years(copy).problems
    assert (problem.file, problem.frame) == ("climo_1979.h5", 5)


@pytest.mark.parametrize("fault", ["missing", "added", "frames"])
def test_a_generated_folder_with_other_files_is_refused(
    fault: str, generated: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(generated, copy)
    if fault == "missing":
        (copy / "climo_1980.h5").unlink()
        message = "climo_1980.h5: is missing: ai500-index.json has it"
    elif fault == "added":
        shutil.copy(copy / "climo_1980.h5", copy / "climo_1981.h5")
        message = "climo_1981.h5: is not in ai500-index.json"
    else:
        shutil.copy(copy / "climo_1980.h5", copy / "climo_1979.h5")
        message = "climo_1979.h5: has 3 frames, 9 in ai500-index.json"
    with pytest.raises(DataError) as raised:
        open_store(copy)
    assert (raised.value.path, raised.value.value) == (copy, [message.partition(":")[0]])
    assert message in map(str, check_years(copy).problems)


def test_a_kill_right_after_the_index_leaves_a_store(generated: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(generated, copy)
    (copy / PLAN).write_text("{}")
    store = open_store(copy)
    assert isinstance(store, ClimateStore)
    recipe = ClimateRecipe(seed=5, height=48, width=72, train=9, validation=3, event_scale=1.8)
    generate_years(copy, recipe, workers=1)
    assert not (copy / PLAN).exists()


def test_what_was_not_staged_is_held_against_its_digest(generated: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(generated, copy)
    store = open_store(copy)
    offset = open_year(copy / "climo_1979.h5").layout
    assert isinstance(offset, int)
    held = VerifiedSplit(store.splits["train"], store.digests("train"))
    indices = np.array([5, 2, 5])
    for name, stored in store.splits["train"].rows(indices).items():
        read = held.rows(indices)[name]
        assert read.tobytes() == stored.tobytes()
    flip(copy / "climo_1979.h5", offset + 5 * 4 * 16 * 48 * 72)
    held.rows(np.array([4, 6]))
    with pytest.raises(DataError) as raised:
        held.rows(indices)
    assert (raised.value.path, raised.value.value) == (copy / "climo_1979.h5", 5)


def test_staging_brings_the_frames_a_node_needs(generated: Path, tmp_path: Path) -> None:
    store = open_store(generated)
    counts = np.zeros(9, np.uint8)
    counts[[1, 4, 8]] = (2, 1, 1)
    staged = duplicate(store, counts=[counts], folder=tmp_path / "scratch", workers=2)
    indices = np.array([8, 1, 1, 4])
    for name, stored in store.splits["train"].rows(indices).items():
        read = staged.splits["train"].rows(indices)[name]
        assert read.dtype == stored.dtype
        assert read.tobytes() == stored.tobytes()
    everything = np.arange(3)
    assert (
        staged.splits["validation"].rows(everything)["images"].tobytes()
        == store.splits["validation"].rows(everything)["images"].tobytes()
    )
    assert staged.splits["train"].fields == store.splits["train"].fields
    with pytest.raises(DataError) as raised:
        staged.splits["train"].rows(np.array([0]))
    assert (raised.value.key, raised.value.value) == ("train", 0)
    Staged.open(staged.path).verify()


def test_staging_refuses_a_corrupt_frame(generated: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(generated, copy)
    offset = open_year(copy / "climo_1980.h5").layout
    assert isinstance(offset, int)
    flip(copy / "climo_1980.h5", offset + 2 * 4 * 16 * 48 * 72)
    with pytest.raises(DataError) as raised:
        duplicate(open_store(copy), counts=[np.ones(9, np.uint8)], folder=tmp_path / "s", workers=2)
    assert (raised.value.path, raised.value.value) == (copy / "climo_1980.h5", 2)


def test_opening_knows_both_kinds(generated: Path, tiny_store: Path, tmp_path: Path) -> None:
    assert isinstance(open_store(generated), ClimateStore)
    assert isinstance(open_store(tiny_store), PackedStore)
    with pytest.raises(DataError) as raised:
        open_store(tmp_path)
    assert raised.value.path == tmp_path
    half = tmp_path / "half"
    with pytest.raises(KeyboardInterrupt):
        generate_years(
            half, ClimateRecipe(seed=1, height=48, width=72, train=2, validation=1), workers=1,
            progress=lambda done, _: (_ for _ in ()).throw(KeyboardInterrupt) if done else None,
        )  # fmt: skip
    with pytest.raises(DataError) as raised:
        open_store(half)
    assert raised.value.path == half
    assert "ai500 data generate" in raised.value.remedy


def test_two_files_of_one_year_are_refused(three: Path) -> None:
    shutil.copy(three / "climo_1980.h5", three / "other_1980.h5")
    with pytest.raises(DataError) as raised:
        year_files(three)
    assert (raised.value.key, raised.value.value) == ("year", 1980)


def test_generate_makes_frames_of_any_size_from_the_command_line(tmp_path: Path) -> None:
    words = ["generate", "--workload", "extreme_weather", "--class", "smoke", "--frames", "5"]
    size = ["--height", "48", "--width", "96", "--out", str(tmp_path / "five"), "--json"]
    result = CliRunner().invoke(app, [*words, *size])
    assert result.exit_code == 0, result.exception
    facts = json.loads(result.stdout)
    assert facts["splits"] == {"train": 4, "validation": 1}
    assert facts["sha256"] == ClimateStore.open(tmp_path / "five").sha256
    for option, least in (("--height", 48), ("--width", 72)):
        small = CliRunner().invoke(app, [*words, option, "0"])
        assert small.exit_code == 2
        assert option in small.output and f"{least}" in small.output
    wrong = CliRunner().invoke(app, ["generate", "--frames", "5", "--class", "smoke"])
    assert "are for climate data" in str(wrong.exception)
    own = CliRunner().invoke(app, ["generate", "--workload", "extreme_weather", "--class", "full"])
    assert "Pass --data FOLDER with its HDF5 files" in str(own.exception)


def test_a_changed_recipe_is_another_store(generated: Path) -> None:
    origin = ClimateStore.open(generated).index.origin
    recipe = ClimateRecipe(seed=5, height=48, width=72, train=9, validation=3, event_scale=1.8)
    assert origin == repr(recipe)
    assert origin != repr(replace(recipe, noise=2.0))
