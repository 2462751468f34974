"""Follow members by their reports; ask the scheduler only when one is overdue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ai500.jobs import reports
from ai500.jobs.schedulers import JobStatus
from ai500.records import JobRecord
from ai500.records.run_folder import TrialFolder


class ReportFollower:
    """Reports of a trial's members, and the members that have not been heard of for too long."""

    def __init__(self, trial: TrialFolder, *, overdue_seconds: float) -> None:
        self._trial = trial
        self._overdue_seconds = overdue_seconds
        self._heard = time.monotonic()
        """Time of the last report of any member."""
        self._asked = time.monotonic()
        self._beats: dict[int, tuple[int | None, float]] = {}
        """Last heartbeat of each member, and when it was first seen."""
        self._failed: set[int] = set()
        """Members that reported a failure which the scheduler has not confirmed."""

    def new_states(
        self, jobs: dict[int, JobRecord]
    ) -> tuple[dict[int, JobStatus], dict[int, JobStatus]]:
        """Return the members that reported a start since the last call, and those that ended."""
        started, ended = {}, {}
        for report in reports.receive(self._trial):
            self._heard = time.monotonic()
            job = jobs.get(report.member)
            if job is None or report.attempt < job.attempt:
                continue  # of an attempt that is known to have ended
            restarts = report.attempt - job.attempt
            if report.exit_code is None:
                started[report.member] = JobStatus("running", restarts=restarts)
            elif report.exit_code == 0:
                ended[report.member] = JobStatus("done", 0, restarts=restarts)
            else:  # the scheduler knows the reason, and whether it starts the job again
                self._failed.add(report.member)
        return started, ended

    def is_due(self, running: Iterable[int], *, waiting: Sequence[int]) -> bool:
        """Return True if the scheduler has to be asked.

        `running`: members whose heartbeat to check; `waiting`: those that have not started.
        """
        now = time.monotonic()
        is_silent = [self._is_silent(member, now) for member in running]
        if self._failed:
            return True
        if now - self._asked < self._overdue_seconds:
            return False
        return any(is_silent) or (bool(waiting) and now - self._heard >= self._overdue_seconds)

    def answered(self, states: dict[int, JobStatus]) -> None:
        """Note the scheduler's answer."""
        self._asked = time.monotonic()
        self._failed &= {member for member, status in states.items() if status.state == "running"}

    def _is_silent(self, member: int, now: float) -> bool:
        """Return True if the worker has not touched its lock for so long, by this host's clock."""
        try:
            beat = self._trial.member(member).lock.stat().st_mtime_ns
        except OSError:
            beat = None  # it has not begun to train
        if member not in self._beats or self._beats[member][0] != beat:
            self._beats[member] = (beat, now)
        return now - self._beats[member][1] >= self._overdue_seconds
