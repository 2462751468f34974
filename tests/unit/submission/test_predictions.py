"""Quality from the predictions of a real run, and the records that the list reads."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from ai500.cli import main
from ai500.core.errors import DataError
from ai500.core.reading import file_sha256
from ai500.data.open_store import open_store
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission.confirmations import (
    Confirmation,
    confirmation_path,
    write_confirmation,
)
from ai500.submission.manifest import open_submission
from ai500.submission.predictions import PredictionCheck, check_predictions, class_store
from ai500.submission.verify import recompute
from tests.support import changed_records
from tests.support.forgeries import better_ensemble, copied, in_file
from tests.support.submitted import packed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def submitted(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of the real run; it breaks rules, as its data are few."""
    return packed(RunFolder(finished_run), tmp_path_factory.mktemp("submitted") / "s.ai500")


def checked(submission: Path, folder: Path, store: Path) -> PredictionCheck:
    with open_submission(submission) as opened:
        assert recompute(opened).confirmed
        return check_predictions(opened, folder, open_store(store))


def test_a_real_run_has_the_qualities_of_its_predictions(
    submitted: Path, finished_run: Path, tiny_store: Path
) -> None:
    result = checked(submitted, finished_run, tiny_store)
    assert result.problems == ()
    assert (result.members, len(result.qualities)) == (4, 2)


@pytest.mark.parametrize("change", [lambda _: 1.0, lambda quality: quality * (1 + 1e-6)])
def test_another_quality_of_the_ensemble(
    change: object, finished_run: Path, tiny_store: Path, tmp_path: Path
) -> None:
    """Consistent in every record, so that nothing but the predictions shows it."""
    run = copied(RunFolder(finished_run), tmp_path / "run")
    better_ensemble(change)(run)  # type: ignore[arg-type]
    forged = packed(run, tmp_path / "s.ai500")
    result = checked(forged, finished_run, tiny_store)
    assert len(result.problems) == 2
    assert all("ensemble quality" in problem for problem in result.problems)


def test_files_that_are_not_those_of_the_members(
    submitted: Path, finished_run: Path, tiny_store: Path, tmp_path: Path
) -> None:
    for name, damage in (
        ("validation.npy", "flipped"), ("out_of_bag.npy", "flipped"), ("validation.npy", "missing"),
    ):  # fmt: skip
        folder = tmp_path / f"{name} {damage}"
        shutil.copytree(finished_run, folder)
        path = RunFolder(folder).trial(2).member(1).path / name
        if damage == "missing":
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        [problem] = checked(submitted, folder, tiny_store).problems
        assert problem.startswith("trial 2: member 1: ")
        assert name in problem
        assert str(tmp_path) not in problem


def test_a_record_without_digests_is_not_confirmed(finished_run: Path, tmp_path: Path) -> None:
    run = copied(RunFolder(finished_run), tmp_path / "run")
    in_file("trials/01/members/000/record.json", "validation_sha256", value=None)(run)
    with open_submission(packed(run, tmp_path / "s.ai500")) as opened:
        (problem,) = recompute(opened).problems
    assert problem.startswith("trials/01/members/000/record.json: ")


def test_other_data_is_refused(submitted: Path, tmp_path: Path, tiny_store: Path) -> None:
    other = tmp_path / "run"
    with open_submission(submitted) as opened:
        assert class_store(opened, tiny_store, progress=None).path == tiny_store
        other = opened.run.trial(1).trial
        changed_records.save(other, changed_records.load(other) | {"store_sha256": "e" * 64})
        with pytest.raises(DataError) as caught:
            class_store(opened, tiny_store, progress=None)
    assert caught.value.key == "store_sha256"


def test_the_record_beside_the_submission_is_of_this_file_alone(
    submitted: Path, finished_run: Path, tiny_store: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "s.ai500"
    path.write_bytes(submitted.read_bytes())
    words = ["verify", path, "--predictions", finished_run, "--data", tiny_store]
    monkeypatch.setattr(sys, "argv", ["ai500", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1  # the run breaks rules
    assert "4 members" in capsys.readouterr().out
    record = run_folder.read(Confirmation, confirmation_path(path, "predictions"))
    assert record.confirmed
    assert record.submission_sha256 == file_sha256(path)
    assert not confirmation_path(path, "rerun").exists()
    write_confirmation(path, "rerun", confirmed=False, statement="differs", details={})
    record = run_folder.read(Confirmation, confirmation_path(path, "rerun"))
    assert not record.confirmed
