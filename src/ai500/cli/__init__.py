"""The command line: parses arguments and prints results. A command is a stage, or all of them."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from ai500.cli.lazy_group import SETTINGS, USAGE, CommandGroup
from ai500.cli.output import discard_buffer, print_any_character
from ai500.cli.verbosity import NORMAL, Verbosity
from ai500.core import __version__
from ai500.core.atomic import explained
from ai500.core.errors import AI500Error, InputError, RunCancelledError, RunDetachedError

MISTAKES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
CIRCLE = "Symlink loop"  # from Path.resolve in Python 3.11 and 3.12
NO_THREAD = "can't start new thread"  # CPython's only sign of a limit on processes (`ulimit -u`)

app = typer.Typer(
    name="ai500",
    cls=CommandGroup,
    no_args_is_help=True,
    options_metavar="",
    subcommand_metavar=USAGE,
    context_settings={"help_option_names": ["-h", "--help"]},
    **SETTINGS | {"add_completion": True},
)


def _print_version(requested: bool) -> None:
    if requested:
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


def main() -> None:
    """Run a command; report an error as one message and an exit code, without a traceback."""
    print_any_character()
    Verbosity.level = NORMAL  # of an earlier call in this process
    try:
        app()
    except AI500Error as error:
        failed = not isinstance(error, RunCancelledError | RunDetachedError)
        with contextlib.suppress(OSError):  # a log on a full disk: the exit code remains
            _print_error(f"error: {error}" if failed else str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        discard_buffer(sys.stdout)
        print("error: the reader of the output has closed the pipe", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        sys.exit(_report_system_error(error))
    except RuntimeError as error:
        if str(error).startswith(CIRCLE):
            _print_error(f"error: {error}: its links lead in a circle.")
            sys.exit(InputError.exit_code)
        if str(error) != NO_THREAD:
            raise
        sys.exit(_report_system_error(OSError(errno.EAGAIN, str(error))))


def _report_system_error(error: OSError) -> int:
    """Print an error of the operating system as one message; return the exit code."""
    path = error.filename if isinstance(error.filename, str | bytes) else None
    file = None if path is None else Path(os.fsdecode(path))
    problem = explained(error, f"cannot use {file}" if file else "the system refuses", path=file)
    with contextlib.suppress(OSError):
        _print_error(f"error: {problem}")
    # A name that can't be a file here is a mistake; a full disk or a permission is not.
    return InputError.exit_code if error.errno in MISTAKES else problem.exit_code


def _print_error(message: str) -> None:
    """Print one line per message to a log file; wrap to the screen's width on a terminal."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        message = "\n".join(_wrap(width, line) for line in message.splitlines())
    print(message, file=sys.stderr)


def _wrap(width: int, line: str) -> str:
    """Wrap a line; keep indented lines, such as the end of a log, and paths unbroken."""
    if len(line) <= width or line.startswith(" "):
        return line
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
