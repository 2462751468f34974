"""A run folder of another version of ai500: every command that reads it says so and refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert "has layout 2, this version reads 1" in message
    assert "Use ai500 9.1, which wrote it." in message
    assert code == 2


def test_the_list_of_runs_names_a_run_of_another_version(ai500: Run, tmp_path: Path) -> None:
    later(tmp_path / "runs" / "later")
    code, out, _ = ai500("runs")
    assert code == 0
    assert "of another version" in out
