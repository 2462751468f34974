"""Self-contained HTML pages of sections, readable offline, on paper and on a phone.

All pages share one Jinja environment, in which undefined names are errors and all text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ai500.report.section import Block, Section, anchors

ROWS_SHOWN = 24
"""Rows of a table that are shown; the rest is folded away."""
LEAST_CONTENTS = 4
"""Titled sections from which a page has a table of contents."""


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

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Anchor and title of each titled section; empty for a short page."""
        named = zip(anchors(self.sections), self.sections, strict=True)
        titled = [(anchor, section.title) for anchor, section in named if section.title]
        return titled if len(titled) >= LEAST_CONTENTS else []


def render(page: Page) -> str:
    """Return the page as HTML."""
    return environment().get_template("page.html").render(page=page)


def environment(*packages: str, **names: object) -> Environment:
    """Make the environment of templates in `packages` and of the report's; all see `names`."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "ai500.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"rows_shown": ROWS_SHOWN, **names}
    made.filters["prose"] = prose
    made.filters["kind"] = lambda block: type(block).__name__
    made.filters["anchors"] = anchors
    return made


def template_text(name: str, *, package: str = "ai500.report") -> str:
    """Return the text of a template file as it is."""
    return resources.files(package).joinpath("templates", name).read_text(encoding="utf-8")


def standalone_svg(figure: str) -> str:
    """Return a figure as a file of its own: on white, with its colours inside."""
    head, mark, rest = figure.partition(">")
    return f"{head}{mark}<style>\n{template_text('standalone.css')}</style>{rest}\n"


def prose(text: str) -> Markup:
    """Escape a text and set `words in backticks` as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner stays a character
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup(
        "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    )
