"""Options that several commands share, and the configuration they select."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import plugins
from ai500.core.errors import InputError

ConfigPath = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file. Default: ./ai500.toml, if it exists."),
]
WorkloadName = Annotated[
    str | None,
    typer.Option("--workload", help=f"{', '.join(plugins.BUILT_IN['workload'])}, or a plugin's."),
]
ClassName = Annotated[
    str | None, typer.Option("--class", help="Problem class: smoke, workstation or full.")
]
Runs = Annotated[
    str | None,
    typer.Option("--runs", help="Number of trials, or 'valid': the minimum of the class."),
]
DataPath = Annotated[
    Path | None,
    typer.Option("--data", help="Store made by `ai500 data pack`, or folder of climate data."),
]
SchedulerName = Annotated[str | None, typer.Option("--scheduler", help="local or slurm.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the configuration, e.g. ensemble.size=8.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, e.g. runs/my-run.")]
TrustedKeys = Annotated[
    Path | None,
    typer.Option(
        "--trusted-keys", help="Public key (PEM) that is trusted, or a folder of such keys."
    ),
]


def load_config(
    path: Path | None,
    *,
    workload: str | None = None,
    problem_class: str | None = None,
    runs: str | None = None,
    data: Path | None = None,
    scheduler: str | None = None,
    settings: list[str] | None = None,
) -> Config:
    """Load the file; --set overrides it, and dedicated options override --set."""
    overrides: dict[str, Any] = dict(
        configuration.parse_assignment(text) for text in settings or []
    )
    flags = {
        "workload": workload,
        "problem_class": problem_class,
        "run.trials": None if runs is None else _trials(runs),
        "data.path": None if data is None else str(data),
        "scheduler.kind": scheduler,
    }
    overrides |= {key: value for key, value in flags.items() if value is not None}
    default = Path("ai500.toml")
    return configuration.load(path or (default if default.exists() else None), overrides=overrides)


def _trials(text: str) -> int | str:
    if not re.fullmatch(r"valid|[1-9][0-9]{0,8}", text):
        raise InputError(
            f"--runs {text}: expected a whole number of at least 1, or 'valid'.",
            key="--runs",
            value=text,
        )
    return text if text == "valid" else int(text)
