"""The report in a real Chromium: nothing runs, nothing is requested, nothing overlaps.

Debian's chromium is required (`apt-get install chromium`); without it these tests fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog

from ai500.pipeline.scoring import write_report
from ai500.records.run_folder import RunFolder
from tests.support import changed_records
from tests.support.chromium import (
    BROKEN_NAMES,
    TEXT_COLLISIONS,
    WIDTHS,
    contrast,
    luminance,
    opened,
)
from tests.support.synthetic_run import Shape, official_shape, write_synthetic_run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
SHAPES = {
    "one trial": Shape(),
    "failures on long names": Shape(
        members=16, nodes=2, slots=4, failed=frozenset({3}), host="a-very-long-host-name-indeed-"
    ),
    "many trials": Shape(trials=10, resumed=frozenset({2})),
    "one epoch": Shape(members=8, slots=4, members_per_accelerator=2, epochs=1),
    "many members": Shape(members=200, nodes=200, slots=2, degree=2),
}
RARE = ("one trial", "one epoch")
"""Shapes that are tested by `make test-long`."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.long] if name in RARE else []) for name in SHAPES
    ],
    ids=lambda name: name.replace(" ", "-"),
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("reports") / "run", SHAPES[request.param])


@pytest.fixture(scope="module")
def plain_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("plain") / "run", Shape())


def written(path: Path, shape: Shape) -> Path:
    run = write_synthetic_run(path, shape)
    write_report(run)
    return run.report


CUT_OFF = """all => all.filter(box => box.scrollWidth > box.clientWidth)
    .map(box => box.getAttribute('aria-label') + ': ' + box.innerText.slice(0, 80))"""
"""Tables with a part out of sight."""


def test_nothing_overlaps_is_clipped_or_cut_off(browser: Browser, report: Path) -> None:
    """Neither texts of figures nor tables: a seed, in the last column, has up to 19 digits."""
    page = opened(browser, report)
    assert page.locator("svg").count() >= 4
    for width, media in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media)
        assert page.evaluate(TEXT_COLLISIONS) == [], width
        if media == "screen" and width != 800:
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.locator(".scroll").evaluate_all(CUT_OFF) == [], width
    page.close()


def test_on_a_phone_a_cell_has_its_columns_name(browser: Browser, plain_report: Path) -> None:
    page = opened(browser, plain_report, viewport={"width": 390, "height": 900})
    cell = page.locator("section:has(> h2:text-is('Members')) td[data-column]").first
    page.locator("details").evaluate_all("all => all.forEach(part => { part.open = true; })")
    assert page.evaluate(BROKEN_NAMES) == []
    name = "cell => getComputedStyle(cell, '::before').content"
    assert cell.evaluate(name) == '"' + str(cell.get_attribute("data-column")) + '"'
    page.close()


def test_a_figure_is_seen_without_scrolling(browser: Browser, tmp_path: Path) -> None:
    valid = written(tmp_path / "run", official_shape(trials=3))
    page = opened(browser, valid, viewport={"width": 1280, "height": 900})
    box = page.locator("svg").first.bounding_box()
    assert box is not None and box["y"] + box["height"] <= 900
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(
    browser: Browser, plain_report: Path, scheme: Any
) -> None:
    page = opened(browser, plain_report, color_scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(background) > 0.5) == (scheme == "light")
    for text in ("p", ".kicker", "figcaption", "summary, .note", "svg .tick", "svg text.mean"):
        for element in page.locator(text).all():
            colour = element.evaluate(
                """element => {
                  const style = getComputedStyle(element);
                  return element.closest('svg') ? style.fill : style.color;
                }"""
            )
            assert contrast(background, colour) >= 4.5, text  # WCAG AA
    page.close()


def test_paper_is_white_even_from_a_dark_screen(browser: Browser, plain_report: Path) -> None:
    page = opened(browser, plain_report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
    page.close()


def test_the_page_requests_nothing_and_logs_nothing(browser: Browser, plain_report: Path) -> None:
    page = browser.new_page()
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.goto(plain_report.as_uri())
    page.wait_for_load_state("networkidle")
    assert [url for url in requests if not url.startswith("data:")] == [plain_report.as_uri()]
    assert messages == []
    page.close()


def test_what_came_from_disk_never_runs(browser: Browser, tmp_path: Path) -> None:
    report = written(tmp_path / "run", Shape(host=HOSTILE, config=f"# {HOSTILE}\n"))
    state = tmp_path / "run" / "run.json"
    changed_records.save(state, changed_records.load(state) | {"name": HOSTILE})
    write_report(RunFolder.open(tmp_path / "run"))
    ran: list[str] = []

    def stop(dialog: Dialog) -> None:
        ran.append(dialog.message)
        dialog.dismiss()

    page = browser.new_page()
    page.on("dialog", stop)
    page.goto(report.as_uri())
    page.wait_for_load_state("networkidle")
    assert ran == []
    assert page.locator("script, img").count() == 0
    assert f"Run {HOSTILE} · " in page.locator("header").inner_text()
    assert HOSTILE in (page.locator("pre").text_content() or "")
    page.close()
