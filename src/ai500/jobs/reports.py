"""Reports of members to their controller: empty files in the trial's folder.

`reports/7-2-started`: member 7 began its second attempt; `reports/7-2-ended-0`: it ended with exit
code 0. The controller lists the folder and removes what it has read, so a look costs as much as
happened since the last one, however large the ensemble is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ai500.records.run_folder import TrialFolder

VARIABLE = "AI500_REPORTS"
"""Variable that is set in jobs whose members report."""
_NAME = re.compile(r"(\d+)-(\d+)-(?:started|ended-(\d+))")


@dataclass(frozen=True, slots=True)
class Report:
    """Start or end of an attempt of a member."""

    member: int
    attempt: int
    exit_code: int | None = None
    """None: it started."""

    @property
    def name(self) -> str:
        """Name of its file."""
        end = "started" if self.exit_code is None else f"ended-{self.exit_code}"
        return f"{self.member}-{self.attempt}-{end}"


def send(trial: TrialFolder, reports: Sequence[Report]) -> None:
    """Report to the controller; without the file it asks the scheduler when the member is due."""
    for report in reports:
        with contextlib.suppress(OSError):
            trial.reports.mkdir(exist_ok=True)
            (trial.reports / report.name).touch()


def receive(trial: TrialFolder) -> list[Report]:
    """Return new reports, starts before ends, and remove them."""
    try:
        names = [file.name for file in trial.reports.iterdir()]
    except OSError:
        return []
    reports = []
    for name in names:
        with contextlib.suppress(OSError):
            (trial.reports / name).unlink()
        if match := _NAME.fullmatch(name):
            member, attempt, code = match.groups()
            reports.append(Report(int(member), int(attempt), None if code is None else int(code)))
    return sorted(reports, key=lambda report: (report.attempt, report.exit_code is not None))
