"""The studies' reports in a real Chromium: nothing overlaps, in light, dark, print, on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ai500.study.page import write_report
from ai500.study.studies import STUDIES
from tests.browser.chromium import TEXT_COLLISIONS, contrast, opened
from tests.unit.synthetic_study import measured_point, result_of


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


@pytest.mark.parametrize(
    ("width", "media"), [(1280, "screen"), (800, "screen"), (390, "screen"), (680, "print")]
)
def test_nothing_overlaps_and_no_page_scrolls_sideways(
    browser: Browser, reports: dict[str, Path], width: int, media: Any
) -> None:
    for name, report in reports.items():
        page = opened(browser, report, viewport={"width": width, "height": 900})
        page.emulate_media(media=media)
        assert page.locator("svg").count() >= 2
        assert page.evaluate(TEXT_COLLISIONS) == [], name
        if media == "screen":
            assert page.evaluate("document.documentElement.scrollWidth") == width, name
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_warning_stands_out(browser: Browser, reports: dict[str, Path], scheme: Any) -> None:
    page = opened(browser, reports["scaling doubted"], color_scheme=scheme)
    warning = page.locator(".verdict.invalid")
    assert "The speed axis is not meaningful here." in warning.inner_text()
    colours = [
        warning.evaluate(f"box => getComputedStyle(box).{name}")
        for name in ("backgroundColor", "color")
    ]
    assert contrast(*colours) >= 4.5  # WCAG AA
    page.close()
