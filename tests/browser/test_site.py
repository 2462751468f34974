"""The documentation's site in a real Chromium, served as it is published."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import contrast


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_copy_button_takes_commands_without_prompts_and_output(
    browser: Browser, address: str
) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{address}/index.html")
    page.locator("button[title*='Copy']").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines() == ["make run", ". .venv/bin/activate", "ai500 run --runs valid"]
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_links_stand_out(browser: Browser, address: str, scheme: Any) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{address}/index.html")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    link = page.locator(".md-content a:not(.headerlink)").first
    colour = link.evaluate("a => getComputedStyle(a).color")
    assert contrast(background, colour) >= 4.5  # WCAG AA
    assert link.evaluate("a => getComputedStyle(a).textDecorationLine") == "underline"
    page.close()


def test_the_search_finds_a_key(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    page.locator("input[name='query']").fill("members_per_accelerator")
    page.locator(".md-search-result__link").first.wait_for()
    page.close()


WIDTHS = (1280, 390)


def wide_pages(browser: Browser, address: str, names: list[str]) -> list[tuple[str, int]]:
    """List the pages that are wider than the window, with its width."""
    wide = []
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": 900})
        for name in names:
            page.goto(f"{address}/{name}")
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wide.append((name, width))
        page.close()
    return wide


def test_no_page_scrolls_sideways(browser: Browser, address: str) -> None:
    names = ["index.html", "gallery.html", "commands.html", "papers.html", "rules.html"]
    assert wide_pages(browser, address, names) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_page_at_all_scrolls_sideways(browser: Browser, address: str, site: Path) -> None:
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(names) > 70
    assert wide_pages(browser, address, names) == []
