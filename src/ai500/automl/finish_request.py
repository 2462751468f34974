"""The end of a search at a person's request (AIPerf §IV-E), with a score. Needs no torch.

"The user can terminate the running once the result is converged", but not before the class's least
time. The request is a file in the trial's folder, which the workers see on the shared file system.
"""

from __future__ import annotations

import time
from pathlib import Path

from ai500.automl.history import History
from ai500.automl.score import timed_search
from ai500.core import events
from ai500.core.atomic import write_text
from ai500.core.errors import InputError
from ai500.core.shell import quoted
from ai500.core.units import human_seconds
from ai500.records import Plan
from ai500.records.run_folder import RunFolder, TrialFolder

CHECK_SECONDS = 1.0
"""Seconds between two looks for the request; a look is a query to a network file system."""


def require_least_time(run: RunFolder, plan: Plan, trial: int) -> None:
    """Raise InputError unless the trial's search has lasted the class's least time."""
    searched = _seconds_searched(run, plan, trial)
    terms = plan.definition.search
    least = 0.0 if terms is None else 60 * terms.minutes
    if searched < least:
        raise InputError(
            f"{run.path} has searched for {human_seconds(searched)}; the least time of class "
            f"{plan.problem_class} is {human_seconds(least)} (AIPerf §IV-E).",
            key="automl.minutes",
            value=searched,
            path=run.path,
            remedy=f"Wait {human_seconds(least - searched)}, or add --early: the score is then not "
            "a valid result.",
        )


def request_finish(run: RunFolder, plan: Plan, trial: int) -> None:
    """Ask the workers of a trial to end their search."""
    _seconds_searched(run, plan, trial)  # refuses what can't be scored
    write_text(run.trial(trial).finish_request, "requested\n")


def _seconds_searched(run: RunFolder, plan: Plan, trial: int) -> float:
    """Return the seconds from the first batch to the newest line; raise without a search."""
    if plan.search is None:
        raise InputError(
            f"{run.path} trains {plan.workload} for a fixed number of epochs: only a search can "
            "be finished.",
            key="workload",
            value=plan.workload,
            path=run.path,
            remedy=f"Stop it with: ai500 cancel {quoted(run.path)}",
        )
    recorded = [event for event in events.read(run.events) if event.get("trial") == trial]
    return timed_search(History(run.trial(trial).members), recorded).search.seconds


class FinishRequest:
    """Request to end a trial, as a worker sees it."""

    def __init__(self, trial: Path) -> None:
        self._file = TrialFolder(trial).finish_request
        self._seen = False
        self._looked = -CHECK_SECONDS

    def seen(self) -> bool:
        """Return True once the request is there; look at most once a second."""
        now = time.monotonic()
        if not self._seen and now - self._looked >= CHECK_SECONDS:
            self._looked = now
            self._seen = self._file.exists()
        return self._seen
