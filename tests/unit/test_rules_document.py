"""docs/rules.md is what the rules say."""

from __future__ import annotations

from pathlib import Path

from ai500.rules.document import document
from ai500.rules.layers import ASPECTS, RULES

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == document(), "run: python -m ai500.rules.document > docs/rules.md"


def test_every_rule_and_every_row_is_on_it() -> None:
    text = document()
    for rule in RULES:
        assert f"| {rule.name} | {rule.text} |" in text
    for name, row in ASPECTS.items():
        assert f"{name}: {row.text} | {row.hardware} | {row.system} | {row.free} |" in text
