"""Verbosity of a command: `-q`, the default, or `-v`. Every command has both options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.main

QUIET, NORMAL, VERBOSE = -1, 0, 1


class Verbosity:
    """The level that the command line asked for."""

    level = NORMAL


def is_quiet() -> bool:
    """Return True if progress is not shown."""
    return Verbosity.level == QUIET


def is_verbose() -> bool:
    """Return True if sources and conventions are shown beside figures."""
    return Verbosity.level == VERBOSE


def _set_quiet(requested: bool) -> None:
    if requested:
        Verbosity.level = QUIET


def _set_verbose(requested: bool) -> None:
    if requested:
        Verbosity.level = VERBOSE


def _options(
    _quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="No progress: the result alone.",
            callback=_set_quiet,
            expose_value=False,
        ),
    ] = False,
    _verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also sources and conventions: equations, decisions.",
            callback=_set_verbose,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Hold the options that every command gets."""


def verbosity_options() -> list[Any]:
    """Return the two options, new for each command."""
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    return list(typer.main.get_command(app).params)
