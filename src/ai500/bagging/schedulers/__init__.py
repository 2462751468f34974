"""Schedulers: who runs the members' jobs. Three verbs, each for all jobs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ai500.records import JobState, Share

ATTEMPT_MARK = "=== ai500: attempt "
"""Begins the part of a job's log that belongs to one attempt."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One member's job: a command, where its output goes, and the slots it was given."""

    member: int
    attempt: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the scheduler knows of a job."""

    state: JobState
    exit_code: int | None = None


class Scheduler(Protocol):
    """Runs jobs and tells their states."""

    slowest_poll_seconds: float
    """How rarely it is asked when nothing changes."""

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """Take all jobs; ids in the same order."""

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The states of all these jobs in one call; an id nobody knows is `lost`."""

    def cancel(self, ids: Sequence[str]) -> None:
        """End these jobs, waiting until they are gone."""
