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


LOOKS: list[tuple[int, Any, Any]] = [
    (1280, "screen", "light"), (390, "screen", "dark"), (680, "print", "dark"),
]  # fmt: skip
"""Width in pixels, medium and colour scheme."""


def test_a_search_of_a_hundred_models_stays_readable(browser: Browser, report: Path) -> None:
    page = opened(browser, report)
    tree = page.get_by_role("img", name="Search tree")
    assert tree.locator("circle").count() > 100
    tip = tree.locator("circle title").first.text_content()
    assert tip is not None and "error" in tip and "per image" in tip
    best = tree.locator("text.label").last
    assert best.text_content().startswith("best")  # type: ignore[union-attr]
    for width, media, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media, color_scheme=scheme)
        assert page.evaluate(TEXT_COLLISIONS) == [], width
        assert page.evaluate("document.documentElement.scrollWidth") == width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = best.evaluate("label => getComputedStyle(label).fill")
        assert contrast(background, ink) >= 4.5, (width, scheme)
    page.close()
