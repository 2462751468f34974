"""The studies' reports in a real Chromium: nothing overlaps, in light, dark, print, on a phone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser

from ai500.study.page import write_report
from ai500.study.studies import STUDIES
from tests.support.chromium import TEXT_COLLISIONS, WIDTHS, contrast, opened
from tests.support.synthetic_study import measured_point, result_of


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every study, trusted and doubted."""
    folder = tmp_path_factory.mktemp("studies")
    base = measured_point(folder / "run")
    made = {}
    for name, study in STUDIES.items():
        for doubted in (False, True):
            key = f"{name}{' doubted' if doubted else ''}"
            made[key] = folder / f"{key}.html"
            write_report(made[key], result_of(name, base, doubted=doubted), study)
    return made


def test_nothing_overlaps_and_no_page_scrolls_sideways(
    browser: Browser, reports: dict[str, Path]
) -> None:
    for name, report in reports.items():
        page = opened(browser, report)
        assert page.locator("svg").count() >= 2
        for width, media in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(media=media)
            assert page.evaluate(TEXT_COLLISIONS) == [], (name, width)
            if media == "screen":
                assert page.evaluate("document.documentElement.scrollWidth") == width, name
        page.close()


SCHEMES: tuple[Any, ...] = ("light", "dark")


def test_the_warning_stands_out(browser: Browser, reports: dict[str, Path]) -> None:
    page = opened(browser, reports["scaling doubted"])
    warning = page.locator(".verdict.invalid")
    assert "The speed axis is not meaningful here." in warning.inner_text()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        colours = [
            warning.evaluate(f"box => getComputedStyle(box).{name}")
            for name in ("backgroundColor", "color")
        ]
        assert contrast(*colours) >= 4.5, scheme  # WCAG AA
    page.close()


FIGURE_TEXTS = """[...document.querySelectorAll('figure:has(svg)')].map(figure =>
    [...figure.querySelectorAll('svg text, figcaption')].map(text => text.textContent))"""
MARGIN_POINTS = 15 / 25.4 * 72  # design.css: @page


@pytest.mark.parametrize("name", ["scaling", "optimizations"])  # the longest
def test_on_paper_every_figure_is_whole_and_on_one_page(
    browser: Browser, reports: dict[str, Path], tmp_path: Path, name: str
) -> None:
    page = opened(browser, reports[f"{name} doubted"])
    figures, title = page.evaluate(FIGURE_TEXTS), page.locator("h1").inner_text()
    page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    page.close()
    papers = words_of(tmp_path / "report.pdf")
    assert 2 <= len(papers) <= 5
    assert title in " ".join(papers[0])
    assert len(figures) >= 2
    for texts in figures:
        words = {word for text in texts for word in text.split()}
        assert any(words <= set(paper) for paper in papers), sorted(words)


def words_of(pdf: Path) -> list[list[str]]:
    """Each page's words, none of which lies in a margin or past it."""
    output = subprocess.run(
        ["pdftotext", "-bbox", pdf, "-"], check=True, capture_output=True, text=True
    )
    html = "{http://www.w3.org/1999/xhtml}"
    pages = []
    for paper in ElementTree.fromstring(output.stdout).iter(f"{html}page"):
        words = list(paper.iter(f"{html}word"))
        right = float(paper.attrib["width"]) - MARGIN_POINTS
        for word in words:
            left, end = float(word.attrib["xMin"]), float(word.attrib["xMax"])
            # Chromium lays out in whole pixels.
            assert MARGIN_POINTS - 2 < left < end < right + 2, word.text
        pages.append([word.text or "" for word in words])
    return pages
