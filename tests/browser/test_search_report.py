"""The report of a search with a hundred models in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ai500.pipeline.scoring import write_report
from tests.support.chromium import TEXT_COLLISIONS, contrast, opened
from tests.support.synthetic_search import SearchShape, write_synthetic_search


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = SearchShape(workers=9, killed=frozenset({1}), spoiled=True)
    run = write_synthetic_search(tmp_path_factory.mktemp("search") / "run", shape)
    write_report(run)
    return run.report


@pytest.mark.parametrize(
    ("width", "media", "scheme"),
    [(1280, "screen", "light"), (390, "screen", "dark"), (680, "print", "dark")],
)
def test_a_search_of_a_hundred_models_stays_readable(
    browser: Browser, report: Path, width: int, media: Any, scheme: Any
) -> None:
    page = opened(browser, report, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.emulate_media(media=media)
    assert page.evaluate(TEXT_COLLISIONS) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    tree = page.get_by_role("img", name="Search tree")
    assert tree.locator("circle").count() > 100
    tip = tree.locator("circle title").first.text_content()
    assert tip is not None and "error" in tip and "per image" in tip
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    best = tree.locator("text.label").last
    assert best.text_content().startswith("best")  # type: ignore[union-attr]
    assert contrast(background, best.evaluate("one => getComputedStyle(one).fill")) >= 4.5
    page.close()
