"""The table of docs/performance.md: figures that its logs have, ratios that follow from them."""

from __future__ import annotations

import re

import pytest

from tests.support.docs_examples import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "performance.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## One H200, in one table")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("| ") and "](logs/" in line
]
PUBLISHED = "MLPerf 4.0"


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def rounded(value: float, like: str) -> str:
    """As many digits as the cell has."""
    return f"{value:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_its_logs(row: list[str]) -> None:
    _, ours, baseline, theirs, ratio, _, floor, share, link = row
    log = (DOCS / link.partition("(")[2].rstrip(")")).read_text(encoding="utf-8")
    figures = set(re.findall(r"\d[\d,]*(?:\.\d+)?", log))
    known = {figure.replace(",", "") for figure in figures}
    assert str(number(ours)).removesuffix(".0") in known
    assert baseline == PUBLISHED or str(number(theirs)).removesuffix(".0") in known
    assert rounded(number(ours) / number(theirs), ratio) == ratio
    if floor:
        assert rounded(number(ours) / number(floor), share) == share


def test_the_table_has_rows_and_floors_follow_from_their_inputs() -> None:
    assert len(ROWS) == 12
    assert round(512 / 0.036) == 14_222  # 36 ms: docs/performance-notebook.md
    assert round(814.3e12 / 1070e9) == 761
    assert round(2 * 204_800 / 53.9) == 7_599
    assert round(256 / 0.02875) == 8_904
    assert round(7_599 / 8_904, 2) == 0.85


def test_every_log_is_cited_by_a_page() -> None:
    """Output that no sentence rests on is not kept."""
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for log in (DOCS / "logs").iterdir():
        assert f"logs/{log.name}" in pages, log.name
