"""Leftovers of dead processes are listed, and removed on request; what is used stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ai500.cli import app
from ai500.core.errors import InputError, RunFolderError
from ai500.parallel.placement import scratch_folder
from ai500.pipeline.leftovers import leftovers_of_run, leftovers_of_scratch, remove
from ai500.records.checkpoint_file import previous
from ai500.records.run_folder import RunFolder
from tests.support.synthetic_run import Shape, write_synthetic_run

OLD = time.time() - 3600


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This node's temporary folder."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path, scratch: Path) -> RunFolder:
    return write_synthetic_run(tmp_path / "run", Shape(members=1))


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def touch(path: Path, *, at: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1234")
    os.utime(path, (at, at))
    return path


def test_a_runs_leftovers(run: RunFolder) -> None:
    dead, member = dead_process(), run.trial(1).member(0)
    left = {
        touch(run.path / f".plan.json.{dead}.0123abcd.tmp"),
        touch(member.path / f".progress.json.{dead}.tmp"),
        touch(previous(member.checkpoint)),
        touch(previous(member.array_checkpoint)),
    }
    copied = touch(scratch_folder(run.path, stated=None) / "01" / "train.npy").parents[1]
    kept = [
        touch(run.path / f".score.json.{os.getpid()}.0123abcd.tmp"),  # its process lives
        touch(run.path / f".score.json.{dead}.0123abcd.tmp", at=time.time()),  # on another host?
        touch(run.path / ".notes.tmp"),
        touch(member.checkpoint),
    ]
    listed = leftovers_of_run(run)
    assert {each.path for each in listed} == left | {copied}
    assert sum(each.bytes for each in listed) == 20
    remove(listed)
    assert not any(path.exists() for path in left | {copied})
    assert all(path.exists() for path in kept)
    assert leftovers_of_run(run) == []


def test_a_member_that_has_not_finished_keeps_both_checkpoints(run: RunFolder) -> None:
    member = run.trial(1).member(0)
    member.record.unlink()
    touch(previous(member.checkpoint))
    assert leftovers_of_run(run) == []


def test_a_running_run_is_left_alone(run: RunFolder) -> None:
    with run.locked(), pytest.raises(RunFolderError) as caught:
        leftovers_of_run(run)
    assert caught.value.path == run.path


def test_scratch_that_a_process_uses_stays(scratch: Path) -> None:
    used = touch(scratch / f"ai500-{os.getuid()}" / "first-01234567" / "train.npy")
    unused = touch(scratch / f"ai500-{os.getuid()}" / "second-01234567" / "train.npy")
    torch_folders = [scratch / "torchelastic_abc", scratch / "torchinductor_me"]
    for folder in torch_folders:
        folder.mkdir()
    (scratch / "of another program").mkdir()
    with used.open():
        listed = {each.path for each in leftovers_of_scratch()}
    assert listed == {unused.parent, *torch_folders}


def test_the_folder_of_a_running_torchrun_stays(scratch: Path) -> None:
    used, unused = scratch / "ai500-torchrun-1", scratch / "ai500-torchrun-2"
    used.mkdir()
    unused.mkdir()
    words = [sys.executable, "-c", "input()", f"--log-dir={used}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        left = [each.path for each in leftovers_of_scratch()]
        process.communicate(b"\n")
    assert left == [unused]


def test_the_command_lists_first(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    left = touch(run.path / f".plan.json.{dead_process()}.0123abcd.tmp")
    for options, removed in (([], False), (["--yes"], True)):
        app(["clean", str(run.path), "--json", *options], standalone_mode=False)
        printed = json.loads(capsys.readouterr().out)
        assert printed["removed"] is removed
        assert [each["path"] for each in printed["leftovers"]] == [str(left)]
        assert left.exists() is not removed


def test_the_command_needs_one_of_both(run: RunFolder) -> None:
    for arguments in ([], [str(run.path), "--scratch"]):
        with pytest.raises(InputError):
            app(["clean", *arguments], standalone_mode=False)
