"""docs/rules.md is what the rules say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ai500
from ai500.rules.decisions import DECISIONS
from ai500.rules.document import document
from ai500.rules.layers import ASPECTS, RULES

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == document(), "run: python -m ai500.rules.document > docs/rules.md"


def test_every_rule_and_every_row_is_on_it() -> None:
    text = document()
    for rule in RULES:
        assert f"| {rule.name} | {rule.text} |" in text
    for name, row in ASPECTS.items():
        assert f"{name}: {row.text} | {row.hardware} | {row.system} | {row.free} |" in text


def said_to_people(code: str) -> Iterator[str]:
    """Every string of a module but its docstrings, which only readers of the source see."""
    tree = ast.parse(code)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)


def test_people_are_told_sources_that_they_can_look_up() -> None:
    """Papers, and decisions by the names that the glossary has: nobody has our specification."""
    package = Path(ai500.__file__).parent
    texts = [
        (path, text)
        for path in sorted(package.rglob("*.py"))
        for text in said_to_people(path.read_text(encoding="utf-8"))
    ]
    texts += [(path, path.read_text(encoding="utf-8")) for path in package.rglob("*.html")]
    cited = set()
    for path, text in texts:
        assert not re.search(r"SPEC §|\[D\d", text), f"{path}: {text}"
        cited |= set(re.findall(r"[Dd]ecisions? (D\d+)", text))
    assert {"D6", "D13"} <= cited <= set(DECISIONS)


def test_decisions_are_in_the_glossary_once_each() -> None:
    page = (PAGE.parent / "glossary.md").read_text(encoding="utf-8")
    for name, text in DECISIONS.items():
        assert page.count(f"| {name} | {text} |") == 1
