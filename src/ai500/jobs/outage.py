"""A scheduler that does not answer: ask again, as long as the user's patience lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ai500.core.errors import EnvironmentLacksError
from ai500.core.units import human_seconds
from ai500.jobs.schedulers import SchedulerUnavailableError

Answer = TypeVar("Answer")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0


@dataclass
class Outage:
    """The time since a scheduler last answered, judged by the user's patience."""

    patience_seconds: float
    began: float | None = None
    """Monotonic clock at the first query without an answer; None: the last query was answered."""
    answered: bool = False
    """True once a query was answered: a command that disappears later is an outage, too."""

    def note(self, error: SchedulerUnavailableError | EnvironmentLacksError) -> bool:
        """Note a query without an answer; raise once patience is used up. Return True if first."""
        if not self.answered and isinstance(error, EnvironmentLacksError):
            raise error
        first = self.began is None
        self.began = time.monotonic() if self.began is None else self.began
        if (seconds := time.monotonic() - self.began) >= self.patience_seconds:
            raise SchedulerUnavailableError(
                f"the scheduler has not answered for {human_seconds(seconds)}: {error}",
                key="scheduler.patience_minutes",
                value=self.patience_seconds / 60,
                remedy="Jobs may still run: `ai500 resume` follows them, `ai500 cancel` ends them.",
            ) from error
        return first

    def end(self) -> float | None:
        """Note an answer; return the seconds without one, None if the query before had one."""
        seconds = None if self.began is None else time.monotonic() - self.began
        self.began, self.answered = None, True
        return seconds


def ask_patiently(
    query: Callable[[], Answer],
    *,
    patience_seconds: float,
    on_outage: Callable[[str], None] = lambda text: None,
) -> Answer:
    """Return the answer of the first query that has one."""
    outage = Outage(patience_seconds)
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return query()
        except SchedulerUnavailableError as error:
            if outage.note(error):
                on_outage(str(error))
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_SECONDS, 1.5 * pause)
