"""`ai500 runs`: what there is in a folder of runs, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ai500.cli.arguments import AsJson
from ai500.cli.newest import RUNS, runs_by_age
from ai500.cli.terminal import console, print_json, shown
from ai500.core.errors import AI500Error, InputError
from ai500.core.schema import FormatError
from ai500.core.units import human_si
from ai500.records import Plan, Score, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder

STYLES = {"valid": "green", "not valid": "yellow", "running": "cyan", "damaged": "red"}


@dataclass(frozen=True)
class Listed:
    """A run, study, roofline, profile or projection."""

    path: str
    kind: str
    began: float
    """Wall-clock time at which it was created."""
    state: str
    verdict: str | None = None
    """Verdict as recorded with the score; None: there is none."""
    workload: str | None = None
    vflops: float | None = None


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with run folders in it.")
    ] = RUNS,
    as_json: AsJson = False,
) -> None:
    """List the runs here, newest first, with verdict and score.

    Also studies, rooflines, profiles and projections. The verdict is the one recorded with the
    score; `ai500 check RUN` judges anew.

    Example: ai500 runs
    """
    if not folder.is_dir() and folder != RUNS:
        raise InputError(f"{folder}: no such folder.", path=folder, remedy="Name a folder of runs.")
    listed = sorted(list_results(folder), key=lambda entry: entry.began, reverse=True)
    if as_json:
        print_json(listed)
    elif listed:
        console.print(_table(folder, listed))
    else:
        console.print(f"no run in {folder}/; `ai500 run` makes one", markup=False)


def list_results(folder: Path) -> Iterator[Listed]:
    """Yield what a folder holds; a damaged run is listed as such."""
    for path in runs_by_age(folder):
        yield _run(path)
    kinds = {
        "study": "*/study.json", "roofline": "rooflines/*.json",
        "profile": "profiles/*/profile.json", "projection": "projections/*/projection.json",
    }  # fmt: skip
    for kind, pattern in kinds.items():
        for file in folder.glob(pattern):
            path = file if kind == "roofline" else file.parent
            report = path.with_suffix(".html") if kind == "roofline" else None
            done = (file.parent / "result.json" if kind == "study" else report) or file
            state = "finished" if done.exists() else "stopped"
            yield Listed(str(path), kind, file.stat().st_mtime, state)


def _run(path: Path) -> Listed:
    began = (path / "run.json").stat().st_mtime
    try:
        folder = RunFolder.open(path)
        plan = run_folder.read(Plan, folder.plan)
        state = run_folder.state_of(folder, plan)
        score = run_folder.read(Score, folder.score) if folder.score.exists() else None
        judgement = folder.judgement if folder.judgement.exists() else None
        verdict = None
        if score is not None and judgement is not None and state == "finished":
            broken = len(run_folder.read(Judgement, judgement).violations)
            valid = not broken and score.complete
            verdict = "valid" if valid else f"not valid ({broken})"
    except FormatError:
        return Listed(str(path), "run", began, "of another version")
    except (AI500Error, OSError):
        return Listed(str(path), "run", began, "damaged")
    label = f"{plan.workload}, {plan.problem_class}"
    return Listed(
        str(path), "run", began, state, verdict, label, None if score is None else score.vflops
    )


def _table(folder: Path, listed: list[Listed]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("began", f"in {folder}/", "state", "VFLOPS"):
        table.add_column(name, overflow="fold", justify="right" if name == "VFLOPS" else "left")
    for entry in listed:
        name = str(Path(entry.path).relative_to(folder))
        state = entry.verdict or entry.state
        style = next((style for word, style in STYLES.items() if state.startswith(word)), "")
        table.add_row(
            Text(time.strftime("%m-%d %H:%M", time.localtime(entry.began)), no_wrap=True),
            Text(shown(name)),
            Text(state if entry.kind == "run" else f"{entry.kind}, {state}", style=style),
            Text("" if entry.vflops is None else human_si(entry.vflops).strip(), no_wrap=True),
        )
    return table
