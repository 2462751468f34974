"""State of the process that runs a run folder, and the observer it reports to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ai500.bagging.member_views import MemberView
from ai500.bagging.program import Program
from ai500.config import Config
from ai500.core.events import EventLog
from ai500.pipeline.programs import program_of
from ai500.records import Plan
from ai500.records.run_folder import RunFolder


class Observer(Protocol):
    """Receiver of a run's progress, such as the terminal or a test."""

    def stage(self, text: str) -> None:
        """Note that a stage begins."""

    def progress(self, done: int, total: int) -> None:
        """Note how many parts of the present stage are done."""

    def members(self, views: Sequence[MemberView]) -> None:
        """Show the progress of the members."""


class Silent:
    """An observer that shows nothing."""

    def stage(self, text: str) -> None:
        """Ignore that a stage begins."""

    def progress(self, done: int, total: int) -> None:
        """Ignore how far the stage is."""

    def members(self, views: Sequence[MemberView]) -> None:
        """Ignore where the members are."""


@dataclass
class Session:
    """Everything that the stages of a run share."""

    run: RunFolder
    config: Config
    plan: Plan
    log: EventLog
    observer: Observer
    detach: bool = False
    """Leave as soon as the members are submitted."""

    @property
    def program(self) -> Program:
        """Program of the run: an ensemble or a search."""
        return program_of(self.plan)
