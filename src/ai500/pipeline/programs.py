"""The choice between the programs of the benchmark: the only test of whether a class searches."""

from __future__ import annotations

from ai500.automl.program import SEARCH
from ai500.bagging.program import ENSEMBLE, Program
from ai500.records import Plan, ProblemClass, Score
from ai500.rules.evidence import reference_class

PROGRAMS: tuple[Program, ...] = (ENSEMBLE, SEARCH)


def program_of_class(problem_class: ProblemClass) -> Program:
    """Return the program of a problem class."""
    return ENSEMBLE if problem_class.search is None else SEARCH


def program_of(record: Plan | Score) -> Program:
    """Return the program of a record's registered class, whatever definition a plan holds."""
    return program_of_class(reference_class(record))
