"""Schedulers: who runs the members' jobs. Three verbs, each for all jobs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ai500.config import Config
from ai500.core import plugins
from ai500.core.errors import JobError
from ai500.jobs.launchers import Launcher
from ai500.records import Cluster, JobState, Plan, Share

ATTEMPT_MARK = "=== ai500: attempt "
"""Begins the part of a job's log that belongs to one attempt."""


class SchedulerUnavailableError(JobError):
    """The scheduler does not answer now; it may later, and its jobs go on meanwhile."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One process's job: a command, where its output goes, and the slots it was given."""

    member: int
    attempt: int
    command: tuple[str, ...]
    """The same words for every member: which one it is, the environment says."""
    environment: Mapping[str, str]
    log: Path
    shares: tuple[Share, ...]
    others: tuple[int, ...] = ()
    """Members that the same process trains [D11]."""

    @property
    def members(self) -> tuple[int, ...]:
        """All that the job trains."""
        return (self.member, *self.others)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the scheduler knows of a job."""

    state: JobState
    exit_code: int | None = None
    reason: str | None = None
    """Why it waits or has ended, in the scheduler's own words."""
    restarts: int | None = None
    """How often the scheduler has put it back by itself; None: it does not say."""


class Scheduler(Protocol):
    """Runs jobs and tells their states."""

    poll_seconds: float
    slowest_poll_seconds: float
    """How often it is asked, and how rarely when nothing changes."""

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """Take all jobs; ids in the same order."""

    def submitted_before(self) -> dict[int, str]:
        """Member → id of jobs that an earlier controller handed over, told or not."""

    def follow(self) -> None:
        """A controller begins to follow the jobs of this trial, its own and those before."""

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The states of all these jobs in one call; an id nobody knows is `lost`."""

    def cancel(self, ids: Sequence[str]) -> None:
        """End these jobs, waiting until they are gone."""

    def close(self) -> None:
        """The controller goes away; jobs that outlive it are left alone."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a scheduler is made for: one trial of one run."""

    config: Config
    plan: Plan
    trial: Path
    """The trial's folder; the scheduler may keep a folder of its own there."""
    name: str
    """Names the run to the scheduler's users; unique to this run folder and trial."""
    launcher: Launcher


class SchedulerKind(Protocol):
    """A kind of scheduler, as plugins offer it: `scheduler.kind` names it."""

    outlives_controller: bool
    """Its jobs go on when the process that submitted them ends."""
    controller_places_data: bool
    """The controller is on the node itself and stages there; otherwise the jobs do."""

    def survey(self, config: Config) -> Cluster | None:
        """The cluster as the scheduler tells it; None: this machine is all there is."""

    def make(self, setting: Setting) -> Scheduler:
        """A scheduler for one trial."""

    def preview(self, setting: Setting, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """What it would submit, as (name, text); nothing where there are no scripts."""


def load_scheduler(name: str) -> SchedulerKind:
    """Load the kind of scheduler of that name, built in or from another package."""
    loaded: SchedulerKind = plugins.load("scheduler", name)
    return loaded
