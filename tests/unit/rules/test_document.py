"""docs/rules.md and docs/glossary.md show the rules and decisions as the code has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ai500
from ai500.rules.decisions import DECISIONS
from ai500.rules.layers import ASPECTS, LEVELS
from ai500.rules.registry import ENSEMBLE_RULES

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


def test_every_rule_and_every_aspect_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for rule in ENSEMBLE_RULES:
        assert f"| {rule.name} | {rule.text} |" in text
    for name, aspect in ASPECTS.items():
        freedoms = " | ".join(aspect.at(level) for level in LEVELS)
        assert f"{name}: {aspect.text} | {freedoms} |" in text


def test_a_level_frees_what_the_levels_below_it_free() -> None:
    freedoms = {
        name: [ASPECTS[name].at(level) for level in LEVELS]
        for name in ("data set", "other hyper-parameters", "AI framework", "precision")
    }
    assert freedoms == {
        "data set": ["fixed", "fixed", "fixed"],
        "other hyper-parameters": ["fixed", "fixed", "free"],
        "AI framework": ["fixed", "free", "free"],
        "precision": ["free", "free", "free"],
    }


def shown_strings(code: str) -> Iterator[str]:
    """Yield every string of a module except its docstrings, which only its readers see."""
    tree = ast.parse(code)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)


def test_cited_sources_are_public() -> None:
    """Cite papers, and decisions by their names in the glossary, not the internal SPEC."""
    package = Path(ai500.__file__).parent
    texts = [
        (path, text)
        for path in sorted(package.rglob("*.py"))
        for text in shown_strings(path.read_text(encoding="utf-8"))
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
