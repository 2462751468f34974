"""The report of a run, whichever program ran."""

from __future__ import annotations

from ai500.pipeline.programs import program_of
from ai500.records.run_folder import RunFolder
from ai500.report import run_report
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport


def write_report(run: RunFolder) -> None:
    """Write `report.html` from the run's records."""
    run_report.write_report(run, program_report)


def program_report(run: RunData) -> ProgramReport:
    """Return the part of the report that depends on the program."""
    return program_of(run.plan).report(run)
