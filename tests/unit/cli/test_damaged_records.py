"""Records of a real run with missing keys, other types, unknown members: one error, no traceback.

A longer run: HYPOTHESIS_CASES=2000 pytest tests/unit/cli/test_damaged_records.py
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ai500.cli import app
from ai500.core.errors import AI500Error
from tests.support import changed_records

CASES = int(os.environ.get("HYPOTHESIS_CASES", "60"))
COMMANDS = (
    "status", "score", "report", "check", "compare", "submit", "resume", "cancel", "runs", "export",
    "export --mllog",
)  # fmt: skip
MISSING, UNKNOWN = object(), object()
VALUES = [
    MISSING, UNKNOWN, None, True, -1, 0, 99, 10**320, 0.5, "", "x", [], [1], [None], {}, {"a": 1},
]  # fmt: skip
DECIDING = ("plan.json", "events.jsonl", "jobs.json", "config.toml", "record.json", "score.json")
"""Files that most commands read: changed as often as all the others together."""

Path_ = tuple[str | int, ...]


def places(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Paths of all values in plain data; of a list, those of its first two items."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for key, item in items:
        if isinstance(item, dict | list):
            yield from places(item, (*at, key))
        else:
            yield (*at, key)


def changed(value: Any, place: Path_, new: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return None if new in (MISSING, UNKNOWN) else new
    result = copy.deepcopy(value)
    parent = result
    for key in place[:-1]:
        parent = parent[key]
    if new is MISSING:
        del parent[place[-1]]
    elif new is UNKNOWN:
        parent[place[-1]] = {"unknown": 1}
    else:
        parent[place[-1]] = new
    return result


@st.composite
def damage(draw: st.DrawFn, run: Path) -> tuple[Path, str]:
    """A file of the run, and its text with one value changed."""
    files = sorted(run.rglob("*.json")) + sorted(run.rglob("*.jsonl")) + [run / "config.toml"]
    deciding = [file for file in files if file.name in DECIDING]
    file = draw(st.sampled_from(deciding if draw(st.booleans()) else files))
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".toml":
        lines = text.splitlines()
        number = draw(st.integers(0, len(lines) - 1))
        lines[number] = draw(st.sampled_from(["", "x", "x = 1", "[x]", "seed = []", "= 1"]))
        return file, "\n".join(lines)
    lines = text.splitlines() if file.suffix == ".jsonl" else [text]
    number = draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[number])
    place = draw(st.sampled_from(list(places(value))))
    lines[number] = json.dumps(changed(value, place, draw(st.sampled_from(VALUES))))
    return file, "\n".join(lines) + "\n"


def arguments(command: str, run: Path, intact: Path, folder: Path) -> list[str]:
    if command == "runs":
        return ["runs", str(folder)]
    if command.startswith("export"):
        form = "--mllog" if command.endswith("mllog") else "--csv"
        return ["export", str(run), form, "--out", str(folder / "tables")]
    if command == "compare":
        return ["compare", str(run), str(intact)]
    if command == "submit":
        return ["submit", str(run), "--level", "hardware", "--out", str(folder / "mine.ai500")]
    return [command, str(run)]


@pytest.mark.timeout(600)
def test_no_damaged_record_is_a_traceback(finished_run: Path, tmp_path: Path) -> None:
    intact, copied = tmp_path / "intact", tmp_path / "run"
    shutil.copytree(finished_run, intact)

    @seed(24)
    @settings(
        max_examples=CASES, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(damage(intact), st.sampled_from(COMMANDS))
    def check(damaged: tuple[Path, str], command: str) -> None:
        file, text = damaged
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(intact, copied)
        (copied / file.relative_to(intact)).write_text(text, encoding="utf-8")
        try:
            app(arguments(command, copied, intact, tmp_path), standalone_mode=False)
        except AI500Error as error:
            assert str(error)
        except (typer.Exit, SystemExit) as ended:
            assert getattr(ended, "exit_code", getattr(ended, "code", 0)) in (0, 1)

    check()


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("plan.json", "plan.json.trials", "two"),
        ("plan.json", "plan.json.mapping", None),
        ("run.json", "run.json.format", []),
        ("trials/02/jobs.json", None, {"a": 1}),
        ("trials/01/trial.json", "trial.json.seed", 0.5),
    ],
)
def test_the_error_names_the_file_and_the_key(
    finished_run: Path, tmp_path: Path, name: str, key: str | None, value: object
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    record = json.loads((run / name).read_text())
    if key is None:
        record = value
    else:
        record[key.rpartition(".")[2]] = value
    (run / name).write_text(json.dumps(record))
    command = "check" if "trial.json" in name else "status"
    with pytest.raises(AI500Error) as caught:
        app([command, str(run)], standalone_mode=False)
    assert (caught.value.key, caught.value.path) == (key, run / name)
    assert Path(name).name in str(caught.value)


def test_a_job_of_a_member_that_the_plan_does_not_have(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    file = run / "trials" / "02" / "jobs.json"
    jobs = changed_records.load(file)
    jobs[1]["member"] = 99
    changed_records.save(file, jobs)
    with pytest.raises(AI500Error) as caught:
        app(["status", str(run)], standalone_mode=False)
    assert (caught.value.key, caught.value.value, caught.value.path) == ("member", 99, file)
