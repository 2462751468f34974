"""The page of a projection in a real Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ai500.projection import application, page, platform
from ai500.projection.answers import answer
from ai500.projection.model import Settings

H200 = Path(__file__).parents[2] / "docs/examples/h200"
BROKEN_NUMBERS = """
() => [...document.querySelectorAll('.number')].filter(cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const text = cell.textContent.trim();
  return !text.includes(' ') && new Set([...range.getClientRects()].map(r => r.top)).size > 1;
}).map(cell => cell.textContent.trim())
"""
"""Numbers without a space that stand in two lines."""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_number_is_broken(browser: Browser, tmp_path: Path, width: int) -> None:
    result = answer(
        application.read(H200), platform.read("dgx-h100-superpod"), Settings(), version="test",
        accelerators=24, degree=8, sweep=False, wanted=None,
    )  # fmt: skip
    path = tmp_path / "projection.html"
    page.write_page(path, result)
    opened = browser.new_page(viewport={"width": width, "height": 844})
    opened.goto(path.as_uri())
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    assert opened.locator(".number").count() > 20
    assert opened.evaluate(BROKEN_NUMBERS) == []
    # Three nodes have one member of two.
    assert "idle: 8 at P_degree 16" in opened.inner_text("main")
