"""Run folders and records of another version of ai500: what reads them says so and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.core import schema
from ai500.core.schema import FormatError, UnknownKeyError
from ai500.profile.record import Profile
from ai500.records import RunState
from ai500.roofline.records import RooflineRecord
from ai500.study.records import StudyPlan, StudyResult
from ai500.submission.manifest import Info, Manifest
from tests.support.commands import Run
from tests.support.synthetic_run import Shape, write_synthetic_run

COMMANDS = (
    "status", "score", "report", "check", "compare", "export --csv", "export --mllog", "resume",
    "cancel", "finish", "clean", "profile", "system", "roofline --run",
    "submit --level hardware --system-name s --organization o --out s.ai500",
)  # fmt: skip


def later(folder: Path) -> Path:
    """Turn a run into that of a later version, with a key that this one does not know."""
    run = write_synthetic_run(folder, Shape(members=2, epochs=2))
    state = {"format": 2, "version": "9.1", "name": folder.name, "a_later_key": True}
    run.state.write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_of_another_version_is_refused(ai500: Run, tmp_path: Path, command: str) -> None:
    run = later(tmp_path / "runs" / "later")
    name, *options = command.split()
    words = [*options, run] if command.endswith("--run") else [run, *options]
    code, out, err = ai500(name, *words, *([run] if name == "compare" else []))
    message = " ".join((out + err).replace("│", " ").split())
    assert "format: 2, this version reads 1" in message
    assert "Use ai500 9.1, which wrote it." in message
    assert code == 2


def test_the_list_of_runs_names_a_run_of_another_version(ai500: Run, tmp_path: Path) -> None:
    later(tmp_path / "runs" / "later")
    code, out, _ = ai500("runs")
    assert code == 0
    assert "of another version" in out


@pytest.mark.parametrize(
    "kind", [RunState, RooflineRecord, Profile, StudyPlan, StudyResult, Info, Manifest]
)
def test_a_record_of_another_version_is_refused_by_its_format(kind: type[object]) -> None:
    later = {"a_later_key": True, "format": 2, "version": "9.1"}
    with pytest.raises(FormatError) as error:
        schema.decode(kind, later)
    assert (error.value.key, error.value.value) == ("format", 2)
    assert "9.1" in error.value.remedy
    with pytest.raises(UnknownKeyError):
        schema.decode(kind, later | {"format": 1})
