"""The one Jinja environment of every page: undefined names are errors, all text is escaped."""

from __future__ import annotations

from html import escape

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

ROWS_SHOWN = 40
"""Rows of a table that are shown; the rest is folded away."""


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
    return made


def prose(text: str) -> Markup:
    """Escape a text and set `words in backticks` as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner stays a character
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup("".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts)))
