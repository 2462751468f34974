"""Schedulers: run the members' jobs. Each method handles all jobs of a trial in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ai500.core import plugins
from ai500.core.errors import JobError
from ai500.records import Cluster, JobState, NodeSlots, Plan

if TYPE_CHECKING:
    from ai500.config import Config
    from ai500.jobs.launchers import Launcher

ATTEMPT_MARK = "=== ai500: attempt "
"""First characters of the line that opens an attempt in a job's log."""
ACTIVE: tuple[JobState, ...] = ("pending", "running")
"""States of jobs that have not ended."""
PREPARING = "others train on its slots"
"""Reason that a scheduler gives for a running job which it started early."""


class SchedulerUnavailableError(JobError):
    """The scheduler does not respond; its jobs may still be running."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The job of one process: its command, environment, log and slots."""

    members: tuple[int, ...]
    """Members that the process trains: one, or several that share an accelerator [D11]."""
    attempt: int
    command: tuple[str, ...]
    """Argument words, equal for all members; the environment names the member."""
    environment: Mapping[str, str]
    log: Path
    shares: tuple[NodeSlots, ...]

    @property
    def member(self) -> int:
        """The first member, which names the job."""
        return self.members[0]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """State of a job as reported by the scheduler."""

    state: JobState
    exit_code: int | None = None
    reason: str | None = None
    """Reason for waiting or for the end, in the scheduler's own words."""
    restarts: int | None = None
    """Number of times the scheduler requeued the job; None if it does not report that."""


class Scheduler(Protocol):
    """Runs jobs and reports their states."""

    poll_seconds: float
    """Shortest interval between polls, in seconds."""
    slowest_poll_seconds: float
    """Longest interval between polls, in seconds, reached while nothing changes."""

    def submit(self, jobs: Sequence[JobSpec]) -> list[str]:
        """Submit the jobs; return the ids of those taken, the first ones, in the same order.

        The controller submits the rest later: a scheduler may have no room for all.
        """

    def submitted_before(self) -> dict[int, str]:
        """Return member → id of jobs that earlier controllers submitted, recorded or not."""

    def follow(self) -> None:
        """Prepare to follow the trial's jobs, including those of earlier controllers."""

    def states(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the states of all these jobs in one call; an unknown id is `lost`."""

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel these jobs and wait until they have ended."""

    def close(self) -> None:
        """Release the controller's resources; jobs that outlive it keep running."""


@runtime_checkable
class StartsEarly(Protocol):
    """A scheduler that starts waiting jobs before those on their slots have ended."""

    def end_soon(self, ids: Sequence[str]) -> None:
        """Note that these jobs end soon: the next ones on their slots may start and prepare."""


@dataclass(frozen=True, slots=True)
class SchedulerContext:
    """The trial of a run that a scheduler works for."""

    config: Config
    plan: Plan
    trial: Path
    """The trial's folder; the scheduler may keep a subfolder of its own there."""
    name: str
    """Job name, unique to this run folder and trial."""
    launcher: Launcher
    note: Callable[[str], None] = lambda text: None
    """Receiver of notes for the person who follows the run, and for its log."""


class SchedulerKind(Protocol):
    """A kind of scheduler, selected by `scheduler.kind`: built in, or from a plugin."""

    outlives_controller: bool
    """True if jobs keep running after the process that submitted them has ended."""
    controller_places_data: bool
    """True if the controller stages data on the node itself; otherwise each job does."""

    def survey(self, config: Config) -> Cluster | None:
        """Return the cluster that the scheduler manages; None for this machine alone."""

    def make(self, context: SchedulerContext) -> Scheduler:
        """Make the scheduler of one trial."""

    def preview(self, context: SchedulerContext, jobs: Sequence[JobSpec]) -> list[tuple[str, str]]:
        """Return the batch scripts that would be submitted, as (name, text)."""


def load_scheduler(name: str) -> SchedulerKind:
    """Load the kind of scheduler of that name, built in or from another package."""
    loaded: SchedulerKind = plugins.load("scheduler", name)
    return loaded
