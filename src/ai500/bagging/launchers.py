"""Launchers: what a job's command is wrapped in; schedulers know nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Launcher(Protocol):
    """Wraps the command of one job."""

    def __call__(self, command: Sequence[str]) -> list[str]: ...


def bare(command: Sequence[str]) -> list[str]:
    """No container: the command as it is."""
    return list(command)
