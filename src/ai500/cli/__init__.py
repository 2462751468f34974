"""The command line: parsing and printing only. Each command is a stage, or the whole line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated

import typer

from ai500.cli import (
    check,
    data,
    flops,
    plan,
    profile,
    rank,
    roofline,
    run,
    study,
    submit,
    system,
)
from ai500.core import __version__
from ai500.core.errors import AI500Error, RunCancelledError, RunDetachedError

app = typer.Typer(
    name="ai500",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ai500 {__version__}")
        raise typer.Exit


@app.callback()
def version(
    show: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """HPC AI500: measure, tune and rank AI computing systems, from a laptop to a supercomputer."""


for command in (
    plan.init,
    plan.plan,
    run.run,
    run.status,
    run.cancel,
    run.resume,
    run.score,
    run.report,
    check.check,
    check.diff,
    flops.flops,
    system.system,
    submit.submit,
    submit.verify,
    submit.keygen,
    rank.rank,
    roofline.roofline,
    profile.profile,
):
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")


def main() -> None:
    """Run a command; a mistake is one message and an exit code, never a traceback."""
    try:
        app()
    except AI500Error as error:
        failed = not isinstance(error, RunCancelledError | RunDetachedError)
        _tell(f"error: {error}" if failed else str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left; there is nobody to tell
        sys.exit(1)


def _tell(message: str) -> None:
    """One line in a log file, where it is searched for; within the width of a screen on one."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        message = "\n".join(_within(width, line) for line in message.splitlines())
    print(message, file=sys.stderr)


def _within(width: int, line: str) -> str:
    """What is indented, such as the end of a log, stays as it is, and so does a path."""
    if len(line) <= width or line.startswith(" "):
        return line
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
