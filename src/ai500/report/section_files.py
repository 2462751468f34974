"""Sections that instruments leave in the run folder for its report: `sections/NAME.json`.

A file may come from a stranger: it holds text, numbers and chart data, checked by the schema when
it is read. Texts are escaped when the page is rendered, so that no file can inject markup.
"""

from __future__ import annotations

from ai500.core.errors import AI500Error
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.section import Paragraph, Section, figures_of

MOST_SECTIONS = 20
"""Files that are shown at most: a folder of a stranger may hold any number."""


def write_section(run: RunFolder, name: str, section: Section) -> None:
    """Write an instrument's section; the report shows it from then on."""
    run_folder.write(run.section(name), section)


def read_sections(run: RunFolder) -> list[Section]:
    """Read all sections in the order of their names; a damaged file is shown as such."""
    sections = []
    for path in sorted(run.sections.glob("*.json"))[:MOST_SECTIONS]:
        try:
            section = run_folder.read(Section, path)
            for figure in figures_of(section.blocks):
                _ = figure.svg  # numbers that no axis can hold raise an error here
        except (AI500Error, ArithmeticError, LookupError, ValueError, RecursionError) as error:
            section = Section(path.stem.capitalize(), [Paragraph(f"Not shown: {error}")])
        sections.append(section)
    return sections
