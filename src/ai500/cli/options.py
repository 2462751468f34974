"""Options that several commands share, and the configuration they select."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import plugins
from ai500.core.errors import InputError


@dataclass(frozen=True)
class ConfigOptions:
    """The options that select a configuration, with their values; None: not given."""

    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="Configuration file. Default: ./ai500.toml, if it exists."
        ),
    ] = None
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help=f"{', '.join(plugins.BUILT_IN['workload'])}, or a plugin's.",
        ),
    ] = None
    problem_class: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="Problem class: smoke, workstation or full."),
    ] = None
    runs: Annotated[
        str | None,
        typer.Option(
            "--runs",
            metavar="N",
            help="Number of trials, or 'valid': trials and layout that a valid result needs.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Store made by `ai500 data pack`, or folder of climate data."),
    ] = None
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="NAME", help="local, slurm or grid_engine.")
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of the configuration, e.g. ensemble.size=8.",
        ),
    ] = None

    def overrides(self) -> dict[str, Any]:
        """Return the overridden keys: those of --set, and of dedicated options over them."""
        flags = {
            "workload": self.workload,
            "problem_class": self.problem_class,
            "run.trials": None if self.runs is None else _trials(self.runs),
            "data.path": None if self.data is None else str(self.data),
            "scheduler.kind": self.scheduler,
        }
        return dict(map(configuration.parse_assignment, self.settings or [])) | {
            key: value for key, value in flags.items() if value is not None
        }

    def load(self) -> Config:
        """Load the file and override its keys."""
        default = Path("ai500.toml")
        path = self.config or (default if default.exists() else None)
        return configuration.load(path, overrides=self.overrides())


Command = Callable[..., None]
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def with_options(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Expand parameters of a command that are dataclasses, such as ConfigOptions, to options."""

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if not is_dataclass(kind := parameter.annotation):
                parameters.append(parameter.replace(kind=KEYWORD_ONLY))
                continue
            hints = get_type_hints(kind, include_extras=True)
            offered = [field for field in fields(kind) if field.name not in without]
            groups[parameter.name] = kind, [field.name for field in offered]
            parameters += [
                inspect.Parameter(
                    field.name, KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
                )
                for field in offered
            ]

        @functools.wraps(command)
        def expanded(**options: Any) -> None:
            for name, (kind, names) in groups.items():
                options[name] = kind(**{key: options.pop(key) for key in names})
            command(**options)

        # Typer reads a command's options from its signature and annotations.
        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        expanded.__annotations__ = {part.name: part.annotation for part in parameters}
        return expanded

    return decorate


def _trials(text: str) -> int | str:
    if not re.fullmatch(r"valid|[1-9][0-9]{0,8}", text):
        raise InputError(
            f"--runs {text}: expected a whole number of at least 1, or 'valid'.",
            key="--runs",
            value=text,
        )
    return text if text == "valid" else int(text)
