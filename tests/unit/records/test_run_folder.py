"""Run folders: creation, opening, the lock, and errors with the path at fault."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ai500.core import sealed_json
from ai500.core.errors import RunFolderError
from ai500.core.schema import FormatError, SchemaError
from ai500.records import Split, TrialRecord, run_folder
from ai500.records.run_folder import RunFolder


def begun(path: Path) -> RunFolder:
    with RunFolder.creating(path, version="0"):
        pass
    return RunFolder(path)


def test_a_run_folder_is_created_once(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    assert RunFolder.open(run.path).path == run.path
    for path in (run.path, tmp_path):
        with pytest.raises(RunFolderError) as error, RunFolder.creating(path, version="0"):
            pass
        assert error.value.path == path
        assert "--out" in error.value.remedy


def test_a_folder_that_is_no_run_folder_names_the_runs_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a.ai500"
    file.touch()
    runs = [begun(tmp_path / "runs" / name).path for name in ("a", "b", "c", "d")]
    for path, hint in (
        (file, "ai500 verify"),
        (tmp_path / "nowhere", "ai500 run"),
        (tmp_path, f"{runs[0]}, {runs[1]}, {runs[2]}, and 1 more"),
    ):
        with pytest.raises(RunFolderError) as error:
            RunFolder.open(path)
        assert error.value.path == path
        assert hint in error.value.remedy


def test_a_folder_of_another_layout_is_rejected(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.state.write_text('{"format": 99, "version": "9.9", "name": "run"}')
    with pytest.raises(FormatError) as error:
        RunFolder.open(run.path)
    assert (error.value.key, error.value.value) == ("run.json.format", 99)
    assert error.value.path == run.state


def test_the_lock_has_one_holder(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    assert run.holder() is None
    with run.locked():
        assert run.holder() is not None
        with pytest.raises(RunFolderError) as error, run.locked():
            pass
        assert error.value.path == run.path
    assert run.owner() is None


def test_a_missing_or_damaged_record_is_an_error_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "trial.json"
    for content in (None, "{", '{"trial": 1, "seed": 2}'):
        if content is not None:
            path.write_text(content)
        with pytest.raises((RunFolderError, SchemaError)) as error:
            run_folder.read(TrialRecord, path)
        assert error.value.path == path


def test_a_changed_byte_of_a_record_is_an_error_with_a_remedy_that_works(tmp_path: Path) -> None:
    run = begun(tmp_path / "my [first] run")
    trial = TrialRecord(trial=1, seed=12345, store_sha256="0" * 64)
    for path in (run.trial(1).trial, run.score):
        run_folder.write(path, trial)
        assert run_folder.read(TrialRecord, path) == trial
        path.write_text(path.read_text().replace("12345", "12346"))
        with pytest.raises(RunFolderError) as caught:
            run_folder.read(TrialRecord, path)
        assert (caught.value.key, caught.value.path) == (sealed_json.KEY, path)
        words = shlex.split(caught.value.remedy.partition(": ")[2])
        mended = words == ["rm", str(path), "&&", "ai500", "resume", str(run.path)]
        assert mended == (path == run.score)  # `resume` can't write a trial's seed again
        path.unlink()
        with pytest.raises(RunFolderError) as caught:
            run_folder.read(TrialRecord, path)
        words = shlex.split(caught.value.remedy.partition(": ")[2])
        assert (words == ["ai500", "resume", str(run.path)]) == mended
    run_folder.write(run.trial(1).jobs, [trial, trial])
    path = run.trial(1).jobs
    path.write_text(path.read_text().replace("12345", "12346", 1))
    with pytest.raises(RunFolderError) as caught:
        run_folder.read_all(TrialRecord, path)
    assert caught.value.key == sealed_json.KEY


def test_a_split_matches_one_component_per_asterisk() -> None:
    split = Split("stages.*.conv1", "columns", 64)
    assert split.matches("stages.3.conv1")
    assert not split.matches("stages.3.0.conv1")
    assert not split.matches("stages.3.conv2")


def test_a_run_folder_that_is_not_complete_does_not_appear(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"

    class FullError(Exception):
        pass

    with pytest.raises(FullError), RunFolder.creating(path, version="0") as new:
        new.config.write_text("half")
        assert not path.exists()
        raise FullError
    assert list(tmp_path.iterdir()) == []  # not even the folder around it


def test_an_empty_folder_becomes_a_run_folder(tmp_path: Path) -> None:
    path, link = tmp_path / "empty", tmp_path / "link"
    path.mkdir()
    link.symlink_to(path)
    assert begun(link).state.exists()
    assert [file.name for file in path.iterdir()] == ["run.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from ai500.records.run_folder import RunFolder

with RunFolder.creating(Path(sys.argv[1]), version="0") as new:
    new.config.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_nothing_that_the_next_run_does_not_remove(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)  # the longest name
    killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not path.exists()
    assert len(list(tmp_path.iterdir())) == 1
    begun(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_file_of_no_use_has_no_holder(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    with run.locked():
        for text in ("[]", '{"host": "a"}', "7", '{"host": "a", "pid": "x"}'):
            run.lock_file.write_text(text)
            assert run.holder() is None
