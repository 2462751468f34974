"""The identity of a folder that only a script understands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ai500.core.errors import DataError
from ai500.frameworks.script_data import NOT_VERIFIED, ScriptFolder, open_script_data
from ai500.records.run_folder import RunFolder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.bin").write_bytes(bytes(range(256)) * 5000)
    (folder / "deep" / "b.bin").write_bytes(b"12")
    return folder


def run_in(folder: Path) -> RunFolder:
    folder.mkdir(parents=True, exist_ok=True)
    return RunFolder(folder)


def identity(data: Path, run: RunFolder) -> str:
    store = open_script_data(data, run=run)
    store.prepare()
    return store.sha256


def flip_a_byte(file: Path) -> None:
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents)


def test_a_flipped_byte_is_another_identity(data: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    before = identity(data, run)
    assert identity(data, run) == before == identity(data, run_in(tmp_path / "another run"))
    flip_a_byte(data / "a.bin")
    assert identity(data, run) != before
    flip_a_byte(data / "a.bin")
    assert identity(data, run) == before, "a folder that was restored is the same again"


def test_names_belong_to_the_identity_and_places_and_times_do_not(
    data: Path, tmp_path: Path
) -> None:
    before = identity(data, run_in(tmp_path / "1"))
    os.utime(data / "a.bin", ns=(1, 1))
    moved = data.rename(tmp_path / "elsewhere")
    assert identity(moved, run_in(tmp_path / "2")) == before
    (moved / "a.bin").rename(moved / "c.bin")
    assert identity(moved, run_in(tmp_path / "3")) != before


def test_only_files_that_changed_are_read_again(data: Path, tmp_path: Path) -> None:
    """A hash in the run folder counts while size and time are the file's."""
    run = run_in(tmp_path / "run")
    before = identity(data, run)
    recorded = json.loads(run.data_files.read_text())
    recorded["deep/b.bin"][2] = "0" * 64
    run.data_files.write_text(json.dumps(recorded))
    assert identity(data, run) != before
    os.utime(data / "deep" / "b.bin")
    assert identity(data, run) == before
    run.data_files.write_text("torn")
    assert identity(data, run) == before


def test_the_run_may_lie_in_its_data(data: Path) -> None:
    run = run_in(data / "runs" / "mine")
    before = identity(data, run)
    (run.path / "events.jsonl").write_text("{}\n")
    assert identity(data, run) == before


def test_progress_is_in_bytes_and_ends_at_all(data: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    open_script_data(data, run=run_in(tmp_path / "run")).prepare(
        lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (1_280_002, 1_280_002)


def test_data_that_only_the_script_knows_is_not_verified(tmp_path: Path) -> None:
    folder = ScriptFolder(tmp_path, run=None)
    folder.prepare()
    assert folder.preparation is None
    assert folder.sha256 == NOT_VERIFIED


def test_a_missing_folder_and_a_file_that_cannot_be_read(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_script_data(tmp_path / "none", run=run_in(tmp_path / "run"))
    assert caught.value.key == "data.path"
    store = open_script_data(data, run=run_in(tmp_path / "run"))
    (data / "loop").symlink_to("/proc/self/mem")  # opens, and fails when it is read
    with pytest.raises(DataError) as caught:
        store.prepare()
    assert str(caught.value.path).endswith("loop")
