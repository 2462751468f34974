"""The programs of the benchmark: what the members of a run do, and how a run is scored.

There are two. The members of an ensemble each train the class's model on a bootstrap (V3,
`bagging/program.py`); the workers of a search train one architecture after another (AIPerf,
`automl/program.py`). `program_of_class` is the only test of whether a class searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ai500.automl.program import SEARCH
from ai500.bagging.member_views import DetailsReader
from ai500.bagging.program import ENSEMBLE
from ai500.config import Config
from ai500.core.events import Event, EventLog
from ai500.data.store import Store
from ai500.records import EnsembleResult, Plan, ProblemClass, Score, TrialScore
from ai500.records.run_folder import RunFolder
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport
from ai500.rules.evidence import Evidence, Fact, reference_class
from ai500.rules.rule import Rule


class Program(Protocol):
    """Everything about a run that depends on what its members do. `trial` is a trial's number."""

    name: str
    member_noun: str
    """Name of a member in reports."""
    activity: str
    """Name of the training stage."""
    aggregation: str
    """Name of the stage after it."""
    trains_class_model: bool
    """True where every member trains the class's model; False: each chooses models of its own."""
    entry_point: str
    """`module:function` that a member's process calls."""
    member_files: Sequence[str]
    """Files that each member leaves beside its record and events."""
    rules: Sequence[Rule]
    """Rules that a run of the program is judged by."""

    def parallel_degree(self, config: Config, problem_class: ProblemClass) -> int | None:
        """Return P_degree of a member; None: Eq. 5 decides."""

    def complete(self, plan: Plan, config: Config) -> Plan:
        """Check the program's configuration; add its settings, operations and time to the plan."""

    def recover(self, run: RunFolder, plan: Plan, *, trial: int, log: EventLog) -> None:
        """Repair what a trial lost, before it is resumed."""

    def details_reader(self, run: RunFolder, trial: int) -> DetailsReader:
        """Return a function that reads what the live view shows besides epochs."""

    def aggregate(
        self, run: RunFolder, plan: Plan, trial: int, *, finished: Sequence[int], store: Store
    ) -> EnsembleResult:
        """Combine the results of the members that finished."""

    def score_trial(
        self, run: RunFolder, plan: Plan, trial: int, *, events: Sequence[Event]
    ) -> TrialScore:
        """Compute a trial's score from its records."""

    def score_run(self, trials: Sequence[TrialScore], *, required_runs: int) -> Score:
        """Combine the scores of the trials."""

    def evidence(self, run: RunFolder, trial: int) -> object | None:
        """Read what only this program's rules need of a trial."""

    def facts(self, evidence: Evidence) -> Iterable[Fact]:
        """Yield the facts of a run that are compared with the reference."""

    def report(self, run: RunData) -> ProgramReport:
        """Return the part of a run's report that depends on the program."""


PROGRAMS: tuple[Program, ...] = (ENSEMBLE, SEARCH)


def program_of_class(problem_class: ProblemClass) -> Program:
    """Return the program of a problem class."""
    return ENSEMBLE if problem_class.search is None else SEARCH


def program_of(record: Plan | Score) -> Program:
    """Return the program of a record's registered class, whatever definition a plan holds.

    A class of the user's own is never a search.
    """
    if isinstance(record, Score) and record.custom_class:
        return ENSEMBLE
    return program_of_class(reference_class(record))
