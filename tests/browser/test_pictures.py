"""Maps and curves of extreme weather in a real Chromium: on a phone in the dark, wide, on paper."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser

from ai500.pipeline.scoring import write_report
from ai500.records import run_folder
from ai500.records.illustrations import Illustrations
from tests.support.chromium import TEXT_COLLISIONS, contrast, opened
from tests.support.synthetic_detections import climate_store, write_illustrated_run
from tests.support.synthetic_run import Shape

SECTION = "section:has(> h2:text-is('Detections of the ensemble'))"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("illustrated")
    run = write_illustrated_run(folder / "run", climate_store(folder / "store"), Shape())
    run_folder.write(run.trial(1).pictures_record, crowded(run.trial(1).pictures_record))
    write_report(run)
    return run.report


def crowded(path: Path) -> Illustrations:
    """The first map with each box of truth and ensemble five times, a little apart."""
    record = run_folder.read(Illustrations, path)
    first, *rest = record.pictures
    boxes = [
        replace(box, left=max(0.0, box.left - shift), right=max(0.0, box.right - shift))
        for box in first.boxes
        for shift in ((0, 0.04, 0.08, 0.12, 0.16) if box.role != "member" else (0,))
    ]
    return replace(record, pictures=(replace(first, boxes=tuple(boxes)), *rest))


@pytest.mark.parametrize(
    ("width", "scheme", "media"),
    [(390, "dark", "screen"), (1280, "light", "screen"), (680, "light", "print")],
)
def test_maps_are_there_and_nothing_overlaps(
    browser: Browser, report: Path, tmp_path: Path, width: int, scheme: Any, media: Any
) -> None:
    size = {"width": width, "height": 900}
    page = opened(browser, report, viewport=size, color_scheme=scheme)
    page.emulate_media(media=media)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(TEXT_COLLISIONS) == []
    section = page.locator(SECTION)
    assert section.locator("figure").count() == 3 + 1 + 4  # maps, table, a chart per class
    section.screenshot(path=tmp_path / f"{media}-{width}.png")
    field = section.locator("figure svg image").first
    shot = Image.open(io.BytesIO(field.screenshot())).convert("RGB")
    # Shades of the field, and on it the white of a true box.
    colours = shot.getcolors(maxcolors=1 << 24) or []
    assert len(colours) > 200
    assert any(colour == (255, 255, 255) for _, colour in colours)
    page.close()


COLOURS = """all => all.map(getComputedStyle).map(style => [style.fill, style.stroke])"""
SCHEMES: tuple[Any, ...] = ("light", "dark")


def test_texts_beside_a_map_stand_out(browser: Browser, report: Path) -> None:
    page = opened(browser, report)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        beside = page.locator(f"{SECTION} svg text:not(.on-map)").evaluate_all(COLOURS)
        on_map = page.locator(f"{SECTION} svg .on-map").evaluate_all(COLOURS)
        assert len(beside) > 50
        assert len(on_map) > 10
        assert min(contrast(background, fill) for fill, _ in beside) >= 4.5  # WCAG AA
        assert min(contrast(edge, fill) for fill, edge in on_map) >= 4.5
    page.close()
