"""Errors that the command line reports as one message, and their exit codes.

    AI500Error                 1  the benchmark ran, but something in it failed
    ├── JobError               1  a member crashed or was cancelled
    │   ├── RunCancelledError  130  the user cancelled the run; finished work is kept
    │   └── RunDetachedError   0  jobs are still running; this process stops watching them
    ├── RuleError              1  a rule of the benchmark is broken
    ├── InputError             2  a user's mistake: configuration, arguments, data
    │   ├── ConfigError           a key of ai500.toml, or a combination of keys
    │   ├── DataError             a store, an image, a bootstrap: missing, corrupt, too small
    │   └── RunFolderError        a run folder that is missing, in use, or holds another run
    └── EnvironmentLacksError  3  torch, disk space, permission or a scheduler is missing

A message states the problem, the rule that it breaks, and the remedy. The command line prints the
message without a traceback.
"""

from __future__ import annotations

from os import PathLike


class AI500Error(Exception):
    """Root of all errors that are reported as one message.

    The fields carry the same information for programs: tests and callers compare fields, not text.
    """

    exit_code = 1

    def __init__(
        self,
        message: str = "",
        *,
        key: str | None = None,
        value: object = None,
        path: str | PathLike[str] | None = None,
        remedy: str = "",
    ) -> None:
        """Store the fields and append `remedy` to the message."""
        super().__init__(f"{message} {remedy}" if remedy else message)
        self.key = key
        """Dotted name of the configuration key or record field at fault."""
        self.value = value
        """Value of `key` that was rejected."""
        self.path = path
        """File or folder at fault."""
        self.remedy = remedy
        """Action that fixes the problem, in the imperative."""


class JobError(AI500Error):
    """A member crashed or was cancelled."""


class RunCancelledError(JobError):
    """The user cancelled the run; finished work is kept."""

    exit_code = 130


class RunDetachedError(JobError):
    """The run's jobs are still running; this process stops watching them."""

    exit_code = 0


class Disconnected(BaseException):
    """The terminal closed; jobs that need no controller keep running."""


class RuleError(AI500Error):
    """A rule of the benchmark is broken."""


class InputError(AI500Error):
    """A user's mistake in the configuration, the arguments or the data."""

    exit_code = 2


class ConfigError(InputError):
    """A key of the configuration, or a combination of keys."""


def setting_error(key: str, value: object, problem: str, remedy: str = "") -> ConfigError:
    """Build the error about one setting: `key = value: problem remedy`."""
    shown = list(value) if isinstance(value, tuple) else value
    return ConfigError(f"{key} = {shown!r}: {problem}", key=key, value=value, remedy=remedy)


class DataError(InputError):
    """Data that is missing, corrupt or too small."""


class RunFolderError(InputError):
    """A run folder that is missing, in use, or holds another run."""


class EnvironmentLacksError(AI500Error):
    """The machine lacks something the command needs."""

    exit_code = 3
