"""The parts of a page as plain data: sections of paragraphs, tables, figures and lists.

A part of a report is a function that returns a `Section`; `page.py` renders all of them with one
macro. Every text is escaped when it is rendered, and `words in backticks` become code. A section
can be written to a file and read back, so that an instrument leaves its own in the run folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from ai500.report.charts import Chart


@dataclass(frozen=True)
class Table:
    """Rows of text with an optional title and note above them."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: tuple[int, ...] = ()
    """Columns that are set flush right."""
    marked: Sequence[int] = ()
    """Rows that differ from the reference."""
    title: str = ""
    note: str = ""
    noun: str = "rows"
    """Name of the rows that are folded away in a long table."""
    style: Literal["", "kernels", "layers", "hashes", "trials"] = ""
    """Class in the style sheet that sets the column widths."""
    shown: int | None = None
    """Rows that are shown before the rest is folded away; None: the page's default."""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption; without a chart the caption says why there is none."""

    title: str
    chart: Chart | None
    caption: str
    alternative: str = ""
    """Text for screen readers in place of the chart; empty: the title."""

    @property
    def svg(self) -> Markup | None:
        """The chart as SVG; charts escape every text."""
        chart = self.chart
        return None if chart is None else Markup(chart.svg(self.alternative or self.title))


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str
    style: Literal["", "lead", "warning"] = ""


@dataclass(frozen=True)
class Grid:
    """Figures side by side, two in a row on a wide screen."""

    figures: Sequence[Figure | Table]


@dataclass(frozen=True)
class Item:
    """An entry of a list."""

    text: str
    label: str = ""
    """Word in bold before the text."""
    severity: Literal["", "violation", "unchecked", "note"] = ""
    """Colour of the label."""
    detail: str = ""
    """Smaller text below."""


@dataclass(frozen=True)
class Items:
    """A list with an optional title."""

    items: Sequence[Item]
    title: str = ""


@dataclass(frozen=True)
class Listing:
    """A file's text, shown as it is."""

    listing: str
    title: str = ""
    wrapped: bool = False


@dataclass(frozen=True)
class Card:
    """A large number with its name and a note."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Cards:
    """The numbers to remember."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Notice:
    """A coloured box: a verdict or a warning, with its reasons."""

    notice: str
    """Text in bold."""
    level: Literal["valid", "invalid", "incomplete"] = "invalid"
    explanation: str = ""
    reasons: Sequence[str] = ()
    label: str = "warning"
    """Name of the box for screen readers."""


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that unfolds them."""

    summary: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Beside:
    """Blocks with a figure at their right on a wide screen, above it on a narrow one."""

    blocks: Sequence[Block]
    figure: Figure


Block = Paragraph | Table | Grid | Items | Listing | Cards | Notice | Folded | Beside


@dataclass(frozen=True)
class Section:
    """A titled part of a page; without a title it is not set off from what precedes it."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Identifier of the section in links; equal titles have the same."""
        return slug(self.title)


def anchors(sections: Sequence[Section]) -> list[str]:
    """Return an identifier of its own for each section: system, system-2."""
    counts: Counter[str] = Counter()
    names = []
    for section in sections:
        counts[section.anchor] += 1
        number = counts[section.anchor]
        names.append(section.anchor if number == 1 else f"{section.anchor}-{number}")
    return names


def slug(title: str) -> str:
    """Return a title as a word of letters, digits and hyphens."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def figures_of(blocks: Iterable[Block]) -> Iterator[Figure]:
    """Yield the figures of blocks in order, folded ones included."""
    for block in blocks:
        if isinstance(block, Grid):
            yield from (figure for figure in block.figures if isinstance(figure, Figure))
        elif isinstance(block, Beside):
            yield from figures_of(block.blocks)
            yield block.figure
        elif isinstance(block, Folded):
            yield from figures_of(block.blocks)


def named_figures(blocks: Iterable[Block]) -> dict[str, Figure]:
    """Return the figures that have a chart; those of one title are `title`, `title-2`, …"""
    named: dict[str, Figure] = {}
    counts: Counter[str] = Counter()
    for figure in figures_of(blocks):
        if figure.chart is not None:
            name = slug(figure.title)
            counts[name] += 1
            named[name if counts[name] == 1 else f"{name}-{counts[name]}"] = figure
    return named
