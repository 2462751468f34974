"""The run that a command reads if none is named: the newest one in runs/."""

from __future__ import annotations

import sys
from pathlib import Path

from ai500.core.errors import InputError
from ai500.records.run_folder import RunFolder

RUNS = Path("runs")
"""Folder of runs, and of what `roofline`, `profile` and `study` write."""


def runs_by_age(folder: Path) -> list[Path]:
    """List the run folders directly in a folder, newest first by the time they were created."""
    files = [(file.stat().st_mtime, file.parent) for file in folder.glob("*/run.json")]
    return [path for _, path in sorted(files, key=lambda entry: entry[0], reverse=True)]


def chosen_run(path: Path | None) -> RunFolder:
    """Open the named run, or the newest one, which standard error then names."""
    if path is not None:
        return RunFolder.open(path)
    return RunFolder.open(newest_run())


def newest_run() -> Path:
    """Return the newest run in runs/."""
    runs = runs_by_age(RUNS)
    if not runs:
        raise InputError(
            f"there is no run in {RUNS}/.",
            key="RUN",
            path=RUNS,
            remedy="Name a run folder; `ai500 run` makes one.",
        )
    print(f"newest run: {runs[0]}", file=sys.stderr)
    return runs[0]
