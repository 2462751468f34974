"""What can go wrong, and the exit code a person's shell sees.

    AI500Error                 1  the benchmark ran, but something in it failed
    ├── JobError               1  a member crashed or was cancelled
    │   ├── RunCancelledError  130  a person ended the run; what was done is kept
    │   └── RunLeftError       0  the run's jobs go on without this process: no failure
    ├── RuleError              1  a rule of the benchmark is broken
    ├── InputError             2  a mistake of the user's: configuration, arguments, data
    │   ├── ConfigError           a key of ai500.toml, or a combination of keys
    │   ├── DataError             a store, an image, a bootstrap: missing, corrupt, too small
    │   └── RunFolderError        a run folder that is missing, in use, or holds another run
    └── EnvironmentLacksError  3  torch, disk space, permission, a scheduler: not here

Each carries one message for a person: what is wrong, which rule, what to do. The command line
prints it and never a traceback.
"""

from __future__ import annotations

from os import PathLike


class AI500Error(Exception):
    """Root of every error that is reported as one message.

    The fields say the same to a program: tests and callers read them, never the words.
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
        """Keep the fields; `remedy` is the last sentence of the message."""
        super().__init__(f"{message} {remedy}" if remedy else message)
        self.key = key
        """Dotted name of the configuration key or record field at fault."""
        self.value = value
        """The offending value."""
        self.path = path
        """The file or folder at fault."""
        self.remedy = remedy
        """What to do about it, in the imperative."""


class JobError(AI500Error):
    """A member crashed or was cancelled."""


class RunCancelledError(JobError):
    """A person ended the run; what was done is kept."""

    exit_code = 130


class RunLeftError(JobError):
    """This process leaves a run whose jobs go on by themselves."""

    exit_code = 0


class Disconnected(BaseException):
    """The person went away; jobs that can go on without this process shall."""


class RuleError(AI500Error):
    """A rule of the benchmark is broken."""


class InputError(AI500Error):
    """A mistake of the user's."""

    exit_code = 2


class ConfigError(InputError):
    """A key of the configuration, or a combination of keys."""


class DataError(InputError):
    """Data that is missing, corrupt or too small."""


class RunFolderError(InputError):
    """A run folder that is missing, in use, or holds another run."""


class EnvironmentLacksError(AI500Error):
    """The machine lacks something the command needs."""

    exit_code = 3
