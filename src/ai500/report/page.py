"""A self-contained HTML page of sections, readable offline, on paper and on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ai500.report.section import Block, Section
from ai500.report.templating import environment


@dataclass(frozen=True)
class Page:
    """A page's header, sections and footer."""

    title: str
    """Title of the browser's window."""
    kicker: str
    """Line above the heading."""
    heading: str
    facts: str
    """Line below the heading."""
    lead: Sequence[Block]
    """Blocks before the first section: verdict, cards, summary."""
    sections: Sequence[Section]
    footer: Sequence[str] = ()
    decisions: Mapping[str, str] = field(default_factory=dict)
    """Decisions of the benchmark, folded away at the end."""


def render(page: Page) -> str:
    """Return the page as HTML."""
    return environment().get_template("page.html").render(page=page)
