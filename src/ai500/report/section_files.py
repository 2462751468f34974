"""Sections that instruments leave in the run folder for its report: `sections/NAME.json`.

A file may come from a stranger: it holds text, numbers and chart data, checked by the schema when
it is read. Texts are escaped when the page is rendered, so that no file can inject markup.
"""

from __future__ import annotations

from collections.abc import Sequence

from ai500.core.errors import AI500Error
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.section import Block, Figure, Folded, Grid, Paragraph, Section

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
            _draw(section.blocks)
        except (AI500Error, ArithmeticError, ValueError, RecursionError) as error:
            section = Section(path.stem.capitalize(), [Paragraph(f"Not shown: {error}")])
        sections.append(section)
    return sections


def _draw(blocks: Sequence[Block]) -> None:
    """Draw every chart once: numbers that no axis can hold raise an error here."""
    for block in blocks:
        if isinstance(block, Folded):
            _draw(block.blocks)
        for figure in block.figures if isinstance(block, Grid) else ():
            if isinstance(figure, Figure) and figure.chart is not None:
                figure.chart.svg(figure.title)
