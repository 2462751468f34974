"""`report.html` of a run: the program's sections, those of the instruments, and the common ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ai500.core.atomic import write_text
from ai500.records.run_folder import RunFolder
from ai500.report import run_sections
from ai500.report.formats import date_text
from ai500.report.meter_section import power_section
from ai500.report.page import Page, render
from ai500.report.picture_section import picture_section
from ai500.report.run_data import RunData, read_run_data
from ai500.report.section import Block, Section
from ai500.report.section_files import read_sections
from ai500.report.summary import accelerators, verdict
from ai500.rules.decisions import DECISIONS
from ai500.rules.evidence import Evidence


@dataclass(frozen=True)
class ProgramReport:
    """A program's part of the report: how its result is called, summarized and shown."""

    benchmark: str
    """Name of the benchmark that defines the score."""
    subject: str
    """Name of the benchmark, for the page's title."""
    headline: str
    """Score with its unit, for the window's title."""
    summary: Sequence[Block]
    """Cards and sentences at the top."""
    sections: Sequence[Section]


ReportProgram = Callable[[RunData], ProgramReport]


def write_report(
    run: RunFolder, program: ReportProgram, *, evidence: Evidence | None = None
) -> None:
    """Write `report.html` from the run's records; those of the evidence are not read again."""
    write_text(run.report, render(report_page(read_run_data(run, evidence), program)))


def report_page(run: RunData, program: ReportProgram) -> Page:
    """Build the page of a run's report."""
    plan, part = run.plan, program(run)
    sections = [
        *part.sections,
        *read_sections(run.folder),
        power_section(run),
        picture_section(run),
        run_sections.placement_section(run),
        run_sections.configuration_section(run),
        run_sections.system_section(run),
        run_sections.software_section(run),
        run_sections.findings_section(run),
    ]
    return Page(
        title=f"{run.state.name}: {part.headline}",
        kicker=f"{part.benchmark} · class {plan.problem_class}",
        heading=f"{part.subject.capitalize()} on {accelerators(plan, run.system)}",
        facts=f"Run {run.state.name} · {date_text(run.started_at)} · ai500 {run.state.version}",
        lead=[verdict(run), *part.summary],
        sections=[section for section in sections if section is not None],
        footer=[
            "Everything here is recomputed from the records beside this file: `score.json` has "
            "the exact numbers, `events.jsonl` the times. V3, V2 and AIPerf are the papers."
        ],
        decisions=DECISIONS,
    )
