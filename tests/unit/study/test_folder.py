"""The folder of a study: results, reasons, and the lock."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ai500.bagging.member_views import MemberView
from ai500.config import to_toml
from ai500.core.atomic import write_text
from ai500.core.errors import JobError, RunFolderError
from ai500.records import run_folder
from ai500.study.definition import StudyOptions
from ai500.study.folder import StudyFolder
from ai500.study.planning import check_same_study
from ai500.study.run_study import run_study, write_results
from tests.support.synthetic_study import prepared, pretend_finished


class SilentObserver:
    """Ignores all progress."""

    def stage(self, text: str) -> None: ...
    def progress(self, done: int, total: int) -> None: ...
    def members(self, views: Sequence[MemberView]) -> None: ...


def test_fewer_points_lose_no_results(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    whole = prepared("scaling", tmp_path, choices=StudyOptions(max_members=3))
    for point in whole.plan.points:
        pretend_finished(folder.run_path(str(point.run)), whole.context.config_for(point.overrides))
    write_text(folder.config, to_toml(whole.context.config))
    run_folder.write(folder.plan, whole.plan)
    drawn = write_results(folder, whole.study)
    assert [point.name for point in drawn.points] == ["m1", "m2", "m3"]

    shutil.rmtree(folder.runs)  # large: what was collected of them is what counts
    for fewer in (
        prepared("scaling", tmp_path, choices=StudyOptions(max_members=3), only=["m2"]),
        prepared("scaling", tmp_path, choices=StudyOptions(max_members=1)),
    ):
        assert fewer.pending() == []
        run_folder.write(folder.plan, fewer.plan)
        assert write_results(folder, fewer.study).points == drawn.points

    other: dict[str, Any] = {"choices": StudyOptions(max_members=3), "train__epochs": 3}
    with pytest.raises(RunFolderError) as raised:
        prepared("scaling", tmp_path, only=["m2"], **other)
    assert (raised.value.key, raised.value.value) == ("points", ["m1", "m3"])
    assert len(prepared("scaling", tmp_path, **other).pending()) == 3


def test_its_own_run_serves_a_point_whatever_its_workers_tell(tmp_path: Path) -> None:
    """In a container the source is another one than here, and is not known beforehand."""
    folder = StudyFolder(tmp_path / "study")
    before = prepared("tradeoff", tmp_path)
    point = before.plan.points[0]
    config = before.context.config_for(point.overrides)
    pretend_finished(folder.run_path(str(point.run)), config, source="the container's")
    after = prepared("tradeoff", tmp_path, runs=folder.runs)
    assert [point.name for point in after.pending()] == [before.plan.points[1].name]
    assert not after.plan.points[0].reused


def test_a_failed_point_is_reported_and_kept_and_the_others_are_tried(tmp_path: Path) -> None:
    study = prepared("tradeoff", tmp_path)
    folder = StudyFolder(tmp_path / "study")
    folder.path.mkdir()
    folder.runs.touch()  # a file: no run can be made there
    with pytest.raises(JobError) as raised:
        run_study(folder, study, SilentObserver())
    assert (raised.value.key, raised.value.value) == ("points", ["m2-p1", "m1-p2"])
    result = folder.read_result()
    assert result is not None
    assert [(point.name, point.failed) for point in result.missing] == [
        ("m2-p1", True),
        ("m1-p2", True),
    ]
    assert all(str(folder.runs) in point.reason for point in result.missing)
    assert write_results(folder, study.study).missing == result.missing
    assert str(folder.runs) in folder.report.read_text()


def test_one_command_at_a_time_works_in_a_study(tmp_path: Path) -> None:
    study = prepared("tradeoff", tmp_path)
    folder = StudyFolder(tmp_path / "study")
    folder.path.mkdir()
    with folder.locked(), pytest.raises(RunFolderError) as raised:
        run_study(folder, study, SilentObserver())
    assert raised.value.path == folder.path
    check_same_study(folder, study.study, study.context.config)  # the lock's file is no obstacle
    assert not folder.plan.exists()
